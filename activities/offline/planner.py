"""The planner without a model: it reads a task by fixed forms, repairs a rejected plan by rules, and reports results.

For example, if 14:00 is taken, the rules of `repair` plan the nearest free time; if two times are equally near and the
task waits for people, the user is asked. If a text matches no form, the planner gives up and names the form that is
most similar, and the page with all of them.
"""

import difflib
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from datetime import date
from typing import NamedTuple, TypeVar

from pydantic import BaseModel, JsonValue, ValidationError

from activities.offline.forms import FORMS, read_groups
from activities.offline.grammar import Clause, read_name, split_clauses
from activities.offline.repair import UnclearEffect, rejection_reason, remaining_steps, repair, unfinished_steps
from activities.toolbox.declare.form import CallResult, Calls, Form, Pronoun, Things, Value
from activities.toolbox.declare.kind import Kind
from activities.toolbox.documents.excerpt import DocumentText
from activities.toolbox.documents.search import Found
from activities.toolbox.expressions.calculate import Calculation, plain
from activities.toolbox.http.fetch_page import WebPage
from activities.toolbox.reasoning.compose import Composition
from activities.toolbox.reasoning.summarise import Summary
from activities.toolbox.workspace import Written
from workflows.account.records import StepRecord, StepStatus
from workflows.json_values import canonical, text_of
from workflows.planning.situation import Situation
from workflows.plans.proposal import TURN_ID, Answer, GiveUp, NewSteps, Proposal, Step
from workflows.plans.references import references

PAGE = "docs/offline-planner.md lists the forms; with a model key a model plans, which understands free text."
MIN_LIKENESS = 0.4  # similarity from which on a form is named as the nearest, even without a common word
MAX_SENTENCE = 500
MAX_PHRASE_TEXT = 400  # characters of a text that the sentence about a result shows
BEGUN = "A model chose the steps turn by turn, and no rule can say what is missing: what was finished stays."
ANSWERS_IN_TEXT = "The rules answer in words, and the answer of this task is to fit a schema: that needs a model."
Result = TypeVar("Result", bound=BaseModel)
Phrase = Callable[[JsonValue], str]
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
                return _answer(situation, kinds)
        except UnclearEffect as unclear:
            return GiveUp(reason=str(unclear))
        is_done = isinstance(proposal, NewSteps) and not proposal.steps  # an earlier run did everything
        return _answer(situation, kinds) if is_done else proposal


def _first_plan(situation: Situation, kinds: Mapping[str, Kind]) -> NewSteps | GiveUp:
    if situation.rejected:
        return GiveUp(reason=rejection_reason(situation.rejected))
    try:
        steps = read_task(situation.text, situation.now.date(), kinds, situation.down)
    except NotUnderstood as wrong:
        return GiveUp(reason=str(wrong))
    return NewSteps(steps=remaining_steps(steps, situation.earlier, kinds))


def _answer(situation: Situation, kinds: Mapping[str, Kind]) -> Answer | GiveUp:
    finished = [record for record in situation.records if record.status is StepStatus.COMPLETED]
    if not finished:
        return GiveUp(reason="No step of the plan was finished.")
    if not situation.is_last and any(re.fullmatch(TURN_ID, record.step.id) for record in finished):
        return GiveUp(reason=BEGUN)
    today = situation.now.date()
    sentences = (_result_sentence(record, kinds.get(record.kind), today) for record in finished)
    return Answer(result="\n".join(sentence[:MAX_SENTENCE] for sentence in sentences))


def _result_sentence(record: StepRecord, kind: Kind | None, today: date) -> str:
    if record.left_out:
        return f"{record.label or record.step.id}: {record.left_out} bytes, too much to be told here"
    with suppress(ValidationError):  # an earlier version of the kind may have another result
        if kind is not None and kind.sentence is not None:
            return kind.sentence(kind.result.validate_json(canonical(record.result)), today)
        if record.kind in _PHRASES:
            return _PHRASES[record.kind](record.result)
    label = record.step.title or (record.step.id if any(references(record.step.args)) else record.label)
    fields = record.result.items() if isinstance(record.result, dict) else ()
    shown = ", ".join(f"{name} {text_of(item)}" for name, item in fields) or text_of(record.result)
    return f"{label or record.step.id}: {shown}"


def _phrase(model: type[Result], write: Callable[[Result], str]) -> Phrase:
    """Make a function that validates a step's result as a `model`, and writes it as a sentence with `write`."""
    return lambda result: write(model.model_validate(result))


def _search_sentence(found: Found) -> str:
    if not found.hits:
        return f"Nothing was found for {found.query}."
    best = found.hits[0]
    page = f" page {best.page}," if best.page else ""
    return f"{best.title}: {best.text} ({best.path},{page} line {best.line})"


def _short(text: str) -> str:
    line = " ".join(text[: 2 * MAX_PHRASE_TEXT].split())
    return line if len(line) <= MAX_PHRASE_TEXT else f"{line[:MAX_PHRASE_TEXT].rsplit(' ', 1)[0]} …"


_SUMMARY = _phrase(Summary, lambda result: f"In short: {result.summary}")
_PHRASES: Mapping[str, Phrase] = {
    "search": _phrase(Found, _search_sentence),
    "calculate": _phrase(Calculation, lambda result: f"{result.expression} = {plain(result.value)}."),
    "read_document": _phrase(
        DocumentText, lambda text: f"{text.title or text.name}: {_short(text.text)} ({text.name})"
    ),
    "fetch_page": _phrase(WebPage, lambda page: f"{page.title or 'The page says'}: {_short(page.text)} ({page.url})"),
    "summarise": _SUMMARY,
    "key_sentences": _SUMMARY,
    "compose": _phrase(Composition, lambda result: result.text),
    "write_file": _phrase(Written, lambda file: f"Saved {file.path} ({file.bytes:,} bytes)."),
}
"""For each built-in kind, what writes a result as a sentence; it raises ValidationError if the model does not fit."""


class _PlannedStep(NamedTuple):
    step: Step
    things: Things
    """What a pronoun of a later clause may stand for."""


class _FormReader:
    """Reads tasks by the forms of `kinds` and those of the built-in kinds; a step may use no kind that is `down`."""

    def __init__(self, kinds: Mapping[str, Kind], down: Collection[str]) -> None:
        # Those of other tools first: the built-in ones are general, e.g. `search for WORDS`.
        self.forms = [*(form for kind in kinds.values() for form in kind.forms), *FORMS]
        self._kinds = kinds
        self._usable = kinds.keys() - set(down)

    @property
    def usable_forms(self) -> list[Form]:
        return [form for form in self.forms if self._usable.issuperset(form.kinds)]

    def calls(self, clause: Clause, today: date) -> Calls:
        """Read a clause by the first form that can read it.

        Raises NotUnderstood if no form can read the clause, or its calls need a kind that is not usable.
        """
        for form in self.forms:
            found = form.whole.fullmatch(clause.text)
            calls = self._read_match(form, found, today) if found else None
            if calls is None:
                continue
            missing = [call.kind for call in calls if call.kind not in self._usable]
            if missing:
                reason = f"{clause.text[:120]!r} needs the kind {missing[0]}, which cannot be used in this task."
                raise NotUnderstood(f"{reason} {PAGE}")
            return calls
        raise self._not_understood(clause)

    def _read_match(self, form: Form, found: re.Match[str], today: date) -> Calls | None:
        if form.read is not None:
            return form.read(found, today)
        return read_groups(form, self._kinds[form.kinds[-1]].args_schema, found, today)

    def _not_understood(self, clause: Clause) -> NotUnderstood:
        usable = self.usable_forms
        # A form whose pattern matches, but whose function could not read the clause, is the nearest one.
        begun = [form for form in usable if form.whole.fullmatch(clause.text)]
        near = begun or sorted(usable, key=lambda form: _likeness(clause.text, form), reverse=True)[:1]
        is_near = begun or (near and _likeness(clause.text, near[0]) >= MIN_LIKENESS)
        hint = f"the nearest form is: {near[0].spelling}" if is_near else "no form is like it"
        if begun and read_name(clause.text) is None:
            hint += " (words that belong together need quotation marks)"
        return NotUnderstood(f"{clause.text[:120]!r} is not understood; {hint}. {PAGE}")


def read_task(text: str, today: date, kinds: Mapping[str, Kind], down: Collection[str]) -> tuple[Step, ...]:
    """The steps that a text asks for.

    Raises:
        NotUnderstood: the text has no clause, or one without a usable form, with a kind that is missing or `down`, or
            with a pronoun that stands for no result.
    """
    reader = _FormReader(kinds, down)
    # `group` collects steps since the last `then`; each of them needs the steps in `before`, the group before it.
    steps, before, group = list[_PlannedStep](), list[str](), list[str]()
    for clause in split_clauses(text, lambda rest: any(form.beginning.match(rest) for form in reader.forms)):
        calls = reader.calls(clause, today)
        if clause.is_after:
            before, group = group, []
        for source in _sources(clause, calls, steps):
            new = _steps(calls, source, (*steps,), before)
            steps += new
            group += [planned.step.id for planned in new]
    if not steps:
        example = next((f": write e.g. {form.spelling}" for form in reader.usable_forms), "")
        raise NotUnderstood(f"There is nothing to do in the task{example}. {PAGE}")
    return tuple(planned.step for planned in steps)


def _likeness(text: str, form: Form) -> float:
    """The similarity of a clause and a form: the number of common words, plus a ratio of equal letters (0 to 1)."""
    clause_words, spelt = (set(_WORD.findall(part.lower())) - _FILLER for part in (text[:120], form.spelling))
    return len(clause_words & spelt) + difflib.SequenceMatcher(None, text[:120].lower(), form.spelling.lower()).ratio()


def _sources(clause: Clause, calls: Calls, steps: Sequence[_PlannedStep]) -> Sequence[_PlannedStep | None]:
    """The steps whose results the clause's pronoun stands for; `[None]` if the clause has no pronoun.

    Raises NotUnderstood if no step in `steps` has a result that the pronoun can stand for.
    """
    pronouns = [value for call in calls for value in call.args.values() if isinstance(value, Pronoun)]
    if not pronouns:
        return [None]
    referent = pronouns[0].referent
    fitting = [planned for planned in steps if referent in planned.things]
    if fitting:
        return fitting if pronouns[0].is_plural else fitting[-1:]
    word = re.search(r"\b(?:it|them|these|those|that|the (?:result|summary|page|text)s?)\b", clause.text, re.IGNORECASE)
    pronoun = word.group() if word else "it"
    reason = f"In {clause.text[:120]!r} it is not clear what `{pronoun}` means: it must be {referent.description}."
    raise NotUnderstood(f"{reason} {referent.remedy}. {PAGE}")


def _steps(
    calls: Calls, source: _PlannedStep | None, before: Sequence[_PlannedStep], needs: Sequence[str]
) -> list[_PlannedStep]:
    """Make the steps of one clause; each of them waits for the steps in `needs`.

    A pronoun in the clause stands for a thing in the result of `source`. `before` are the task's steps so far.
    """
    new = list[_PlannedStep]()
    for call in calls:
        args = {name: _step_argument(value, source, new) for name, value in call.args.items()}
        title = call.title.replace("{it}", source.step.label) if source else call.title
        own = (*needs, *(planned.step.id for planned in new)) if call.is_last else tuple(needs)
        earlier = sum(re.sub(r"-[0-9]+$", "", planned.step.id) == call.id for planned in (*before, *new))
        id = f"{call.id}-{earlier + 1}" if earlier else call.id
        step = Step(id=id, kind=call.kind, args=args, needs=own, title=title[:80])
        new.append(_PlannedStep(step, call.things))
    return new


def _step_argument(value: Value, source: _PlannedStep | None, new: Sequence[_PlannedStep]) -> JsonValue:
    if isinstance(value, CallResult):
        return {"$from": new[value.call].step.id, "path": value.path}
    if isinstance(value, Pronoun):
        if source is None:
            return None
        path = ".".join(filter(None, (source.things[value.referent], value.field)))
        return {"$from": source.step.id, **({"path": path} if path else {})}
    return value
