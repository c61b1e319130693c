"""The planner without a model: it reads a task by verbs, repairs a rejected plan by rules, and reports results.

For example, if 14:00 is taken, the rules of `repair` plan the nearest free time; if two times are equally near and the
task waits for people, the user is asked. If a clause is not understood, the planner gives up, and names the sentence
that is most similar, and the page with all of them.
"""

import difflib
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from datetime import date, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

from pydantic import JsonValue

from activities.offline.grammar import Clause, read_name, split_clauses
from activities.offline.repair import UnclearEffect, rejection_reason, remaining_steps, repair, unfinished_steps
from activities.offline.verbs import VERBS, ClauseCall, Pronoun, Value, Verb, brings, read_call, verbs_of
from activities.toolbox.declare.kind import Kind
from activities.toolbox.expressions.calculate import plain
from workflows.account.records import StepRecord, StepStatus
from workflows.json_values import text_of
from workflows.planning.situation import Situation
from workflows.plans.proposal import TURN_ID, Answer, GiveUp, NewSteps, Proposal, Step
from workflows.plans.references import references

PAGE = "docs/offline-planner.md lists the sentences; with a model key a model plans, which understands free text."
MIN_LIKENESS = 0.6  # similarity from which on a sentence is named as the nearest, even without a common word
MAX_SENTENCE = 500
MAX_SHOWN = 400  # characters of a text that the sentence about a result shows
MAX_LISTED = 8
BEGUN = "A model chose the steps turn by turn, and no rule can say what is missing: what was finished stays."
ANSWERS_IN_TEXT = "The rules answer in words, and the answer of this task is to fit a schema: that needs a model."
_WORD = re.compile(r"[^\W\d_]{3,}")
_FILLER = {"and", "the", "for", "all", "most", "each", "other", "what"}


class NotUnderstood(ValueError):
    """A task cannot be read as steps; the message says why, and names the clause if the reason is in a clause."""


class OfflinePlanner:
    """The planner without a model: deterministic, immediate and free."""

    name = "offline"

    async def propose(self, situation: Situation, kinds: Mapping[str, Kind]) -> Proposal:
        """Plan the task's text at first, repair the plan after a rejection, and report the results at the end."""
        if situation.result_schema is not None:
            return GiveUp(reason=ANSWERS_IN_TEXT)
        proposal: Proposal
        try:
            if not situation.planned and not situation.is_last:
                proposal = _first_plan(situation, kinds)
            elif unfinished_steps(situation) and not situation.is_last:
                proposal = repair(situation, kinds)
            else:
                return _answer(situation)
        except UnclearEffect as unclear:
            return GiveUp(reason=str(unclear))
        is_done = isinstance(proposal, NewSteps) and not proposal.steps  # an earlier run did everything
        return _answer(situation) if is_done else proposal


def _first_plan(situation: Situation, kinds: Mapping[str, Kind]) -> NewSteps | GiveUp:
    if situation.rejected:
        return GiveUp(reason=rejection_reason(situation.rejected))
    try:
        steps = read_task(situation.text, situation.now.date(), kinds, situation.down)
    except NotUnderstood as wrong:
        return GiveUp(reason=str(wrong))
    return NewSteps(steps=remaining_steps(steps, situation.earlier, kinds))


def _answer(situation: Situation) -> Answer | GiveUp:
    finished = [record for record in situation.records if record.status is StepStatus.COMPLETED]
    if not finished:
        return GiveUp(reason="No step of the plan was finished.")
    if not situation.is_last and any(re.fullmatch(TURN_ID, record.step.id) for record in finished):
        return GiveUp(reason=BEGUN)
    sentences = (_result_sentence(record, situation.now.date()) for record in finished)
    return Answer(result="\n".join(sentence[:MAX_SENTENCE] for sentence in sentences))


def _result_sentence(record: StepRecord, today: date) -> str:
    if record.left_out:
        return f"{record.label or record.step.id}: {record.left_out} bytes, too much to be told here"
    with suppress(LookupError, TypeError, ValueError, ArithmeticError):  # another tool has the name of this kind
        if record.kind in _SENTENCES:
            return _SENTENCES[record.kind](record.result, today)
    label = record.step.title or (record.step.id if any(references(record.step.args)) else record.label)
    return f"{label or record.step.id}: {_shown(record.result)}"


def _shown(result: JsonValue) -> str:
    """The fields of a result; of a list, the first items, and of objects in it the values."""
    fields = result.items() if isinstance(result, dict) else ()
    shown = (f"{name} {_listed(value)}" for name, value in fields if value is not None)
    return ", ".join(shown) or _listed(result)


def _listed(value: JsonValue) -> str:
    if not isinstance(value, list):
        return text_of(value)
    rows = [
        " ".join(text_of(field) for field in item.values() if field is not None)
        if isinstance(item, dict)
        else text_of(item)
        for item in value[:MAX_LISTED]
    ]
    more = f" and {len(value) - MAX_LISTED} more" if len(value) > MAX_LISTED else ""
    return "; ".join(rows) + more if rows else "none"


def _short(text: str) -> str:
    line = " ".join(text[: 2 * MAX_SHOWN].split())
    return line if len(line) <= MAX_SHOWN else f"{line[:MAX_SHOWN].rsplit(' ', 1)[0]} …"


def _hit(found: Any) -> str:
    if not found["hits"]:
        return f"Nothing was found for {found['query']}."
    best = found["hits"][0]
    page = f" page {best['page']}," if best.get("page") else ""
    return f"{best['title']}: {best['text']} ({best['path']},{page} line {best['line']})"


def _slot(booking: Any, today: date) -> str:
    near = {str(today): "today", str(today + timedelta(days=1)): "tomorrow"}
    name = booking["name"]
    whom = "" if name == "me" else f" for the {name.removeprefix('the ')}" if name[:1].islower() else f" for {name}"
    return f"{booking['at'][:5]} {near.get(booking['day'], 'on ' + booking['day'])}{whom}"


_SENTENCES: Mapping[str, Callable[[Any, date], str]] = {
    "search": lambda found, _: _hit(found),
    "calculate": lambda done, _: f"{done['expression']} = {plain(Decimal(done['value']))}.",
    "read_document": lambda read, _: f"{read['title'] or read['name']}: {_short(read['text'])} ({read['name']})",
    "fetch_page": lambda page, _: f"{page['title'] or 'The page says'}: {_short(page['text'])} ({page['url']})",
    "summarise": lambda done, _: f"In short: {done['summary']}",
    "key_sentences": lambda done, _: f"In short: {done['summary']}",
    "compose": lambda done, _: str(done["text"]),
    "write_file": lambda file, _: f"Saved {file['path']} ({file['bytes']:,} bytes).",
    "book_slot": lambda booking, today: f"Booked {_slot(booking, today)}.",
}
"""By kind, the sentence about a result, from the result and today's date; for others, its fields are listed."""


class _PlannedStep(NamedTuple):
    step: Step
    brings: Mapping[str, str]
    """What a pronoun of a later clause may stand for: by argument, the path in the result."""


def read_task(text: str, today: date, kinds: Mapping[str, Kind], down: Collection[str]) -> tuple[Step, ...]:
    """The steps that a text asks for.

    Raises:
        NotUnderstood: the text has no clause, or one without a usable verb, with a kind that is missing or `down`, or
            with a pronoun that stands for no result.
    """
    verbs = [*verbs_of({name: kind for name, kind in kinds.items() if not kind.is_hidden})]
    # `group` collects steps since the last `then`; each of them needs the steps in `before`, the group before it.
    steps, before, group = list[_PlannedStep](), list[str](), list[str]()
    for clause in split_clauses(text, lambda rest: any(verb.pattern.match(rest) for verb in verbs)):
        call = _read(clause, verbs, kinds, down, today)
        if clause.is_after:
            before, group = group, []
        for source in _sources(clause, call, steps):
            earlier = sum(re.sub(r"-[0-9]+$", "", planned.step.id) == call.verb.id for planned in steps)
            id = f"{call.verb.id}-{earlier + 1}" if earlier else call.verb.id
            args = {name: _step_argument(value, source) for name, value in call.args.items()}
            title = call.title.replace("{it}", source.step.label) if source else call.title
            step = Step(id=id, kind=call.verb.kind, args=args, needs=tuple(before), title=title[:80])
            steps.append(_PlannedStep(step, brings(kinds[call.verb.kind])))
            group.append(id)
    if not steps:
        example = next((f": write e.g. {verb.spelling}" for verb in verbs), "")
        raise NotUnderstood(f"There is nothing to do in the task{example}. {PAGE}")
    return tuple(planned.step for planned in steps)


def _read(
    clause: Clause, verbs: Sequence[Verb], kinds: Mapping[str, Kind], down: Collection[str], today: date
) -> ClauseCall:
    """Read a clause by the first verb that fits.

    Raises NotUnderstood if no verb fits, or its kind is missing or `down`.
    """
    for verb in verbs:
        if read := read_call(verb, clause.text, kinds[verb.kind], today):
            if verb.kind in down:
                raise _unusable(clause, verb.kind)
            return read
    if absent := [verb for verb in VERBS if verb.kind not in kinds and verb.pattern.match(clause.text)]:
        raise _unusable(clause, absent[0].kind)
    # A verb that fits, but whose arguments could not be read, is the nearest one.
    begun = [verb for verb in verbs if verb.pattern.match(clause.text)]
    near = begun or sorted(verbs, key=lambda verb: _likeness(clause.text, verb), reverse=True)[:1]
    is_near = begun or (near and _likeness(clause.text, near[0]) >= MIN_LIKENESS)
    hint = f"the nearest sentence is: {near[0].spelling}" if is_near else "no sentence is like it"
    if begun and read_name(clause.text) is None:
        hint += " (words that belong together need quotation marks)"
    raise NotUnderstood(f"{clause.text[:120]!r} is not understood; {hint}. {PAGE}")


def _unusable(clause: Clause, kind: str) -> NotUnderstood:
    return NotUnderstood(f"{clause.text[:120]!r} needs the kind {kind}, which cannot be used in this task. {PAGE}")


def _likeness(text: str, verb: Verb) -> float:
    """The similarity of a clause and a sentence: the number of common words, plus a ratio of equal letters (0 to 1)."""
    words, spelt = (set(_WORD.findall(part.lower())) - _FILLER for part in (text[:120], verb.spelling))
    return len(words & spelt) + difflib.SequenceMatcher(None, text[:120].lower(), verb.spelling.lower()).ratio()


def _sources(clause: Clause, call: ClauseCall, steps: Sequence[_PlannedStep]) -> Sequence[_PlannedStep | None]:
    """The steps whose results the clause's pronoun stands for; `[None]` if the clause has no pronoun.

    Raises NotUnderstood if no step in `steps` has a result that the pronoun can stand for.
    """
    pronouns = [value for value in call.args.values() if isinstance(value, Pronoun)]
    if not pronouns:
        return [None]
    fitting = [planned for planned in steps if all(pronoun.argument in planned.brings for pronoun in pronouns)]
    if fitting:
        return fitting if pronouns[0].is_plural else fitting[-1:]
    what = "a number" if pronouns[0].argument == "it" else f"the {pronouns[0].argument} of {call.verb.kind}"
    word = "them" if pronouns[0].is_plural else "it"
    reason = f"In {clause.text[:120]!r} it is not clear what `{word}` means: no earlier clause brings {what}"
    raise NotUnderstood(f"{reason}. Write it instead. {PAGE}")


def _step_argument(value: Value, source: _PlannedStep | None) -> JsonValue:
    if isinstance(value, Pronoun):
        return {"$from": source.step.id, "path": source.brings[value.argument]} if source else None
    return value
