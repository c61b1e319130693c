"""The planner without a model: it reads a task by fixed forms, repairs a rejected plan by rules, and reports results.

For example, if 14:00 is taken, the rules of `repair` plan the nearest free time; if two times are equally near and the
task waits for people, the user is asked. If a text matches no form, the planner gives up and names the form that is
most similar, and the page with all of them.
"""

import difflib
import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import date

from pydantic import JsonValue, ValidationError

from activities.offline.forms import FORMS
from activities.offline.grammar import (
    CallResult,
    Calls,
    Clause,
    Form,
    Pronoun,
    Referent,
    Value,
    read_name,
    split_clauses,
)
from activities.offline.phrases import PHRASES
from activities.offline.repair import UnclearEffect, rejection_reason, remaining_steps, repair, unfinished_steps
from activities.toolbox.declare.kind import Kind
from workflows.plan import TURN_ID, Answer, GiveUp, NewSteps, Proposal, Step, canonical, references
from workflows.record import StepRecord, StepStatus
from workflows.situation import Situation

PAGE = "docs/offline-planner.md lists the forms; with a model key a model plans, which understands free text."
MIN_LIKENESS = 0.4  # similarity from which on a form is named as the nearest, even without a common word
MAX_SENTENCE = 500
BEGUN = "A model chose the steps turn by turn, and no rule can say what is missing: what was finished stays."
IN_WORDS = "The rules answer in words, and the answer of this task is to fit a schema: that needs a model."
_WORDS = re.compile(r"[^\W\d_]{3,}")
_FILLER = {"and", "the", "for", "all", "most", "each", "other", "what"}


class NotUnderstood(ValueError):
    """A clause of the task matches no usable form; the message names the clause and the nearest form."""


class OfflinePlanner:
    """The planner without a model: deterministic, immediate and free."""

    name = "offline"

    async def propose(self, situation: Situation, kinds: Mapping[str, Kind]) -> Proposal:
        """Plan the task's text at first, repair the plan after a rejection, and report the results at the end."""
        if situation.result_schema is not None:
            return GiveUp(reason=IN_WORDS)
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
    usable = [kind for kind in kinds if kind not in situation.down]
    try:
        steps = read_task(situation.text, situation.now.date(), usable)
    except NotUnderstood as wrong:
        return GiveUp(reason=str(wrong))
    return NewSteps(steps=remaining_steps(steps, situation.earlier, kinds))


def _answer(situation: Situation) -> Answer | GiveUp:
    finished = [record for record in situation.records if record.status is StepStatus.COMPLETED]
    if not finished:
        return GiveUp(reason="No step of the plan was finished.")
    if not situation.is_last and any(re.fullmatch(TURN_ID, record.step.id) for record in finished):
        return GiveUp(reason=BEGUN)
    today = situation.now.date()
    return Answer(result="\n".join(_sentence(record, today)[:MAX_SENTENCE] for record in finished))


def _sentence(record: StepRecord, today: date) -> str:
    phrase = PHRASES.get(record.kind)
    if record.left_out:
        return f"{record.label or record.step.id}: {record.left_out} bytes, too much to be told here"
    if phrase is not None:
        with suppress(ValidationError):  # a user's kind of the same name may have another result
            return phrase(record.result, today)
    label = record.step.title or (record.step.id if any(references(record.step.args)) else record.label)
    return f"{label or record.step.id}: {_brief(record.result)}"


def _brief(value: JsonValue) -> str:
    if isinstance(value, dict) and value:
        return ", ".join(f"{name} {item if isinstance(item, str) else canonical(item)}" for name, item in value.items())
    return value if isinstance(value, str) else canonical(value)


def read_task(text: str, today: date, kinds: Collection[str]) -> tuple[Step, ...]:
    """The steps that a text asks for; raises NotUnderstood if a clause matches no form or needs other kinds."""
    # `group` collects steps since the last `then`; each of them needs the steps in `before`, the group before it.
    steps, before, group = list[Step](), list[str](), list[str]()
    for clause in split_clauses(text, lambda rest: any(form.beginning.match(rest) for form in FORMS)):
        calls = _understand(clause, today, kinds)
        if clause.is_after:
            before, group = group, []
        for source in _sources(clause, calls, steps):
            new = _steps(calls, source, (*steps,), before)
            steps += new
            group += [step.id for step in new]
    if not steps:
        example = next((f": write e.g. {form.spelling}" for form in _usable(kinds)), "")
        raise NotUnderstood(f"There is nothing to do in the task{example}. {PAGE}")
    return tuple(steps)


def _understand(clause: Clause, today: date, kinds: Collection[str]) -> Calls:
    for form in FORMS:
        found = form.pattern.fullmatch(clause.text)
        calls = form.read(found, today) if found else None
        if calls is None:
            continue
        missing = [call.kind for call in calls if call.kind not in kinds]
        if missing:
            reason = f"{clause.text[:120]!r} needs the kind {missing[0]}, which cannot be used in this task."
            raise NotUnderstood(f"{reason} {PAGE}")
        return calls
    raise _not_understood(clause, kinds)


def _not_understood(clause: Clause, kinds: Collection[str]) -> NotUnderstood:
    usable = _usable(kinds)
    # A form whose pattern matches, but whose function could not read the clause, is the nearest one.
    begun = [form for form in usable if form.pattern.fullmatch(clause.text)]
    near = begun or sorted(usable, key=lambda form: _likeness(clause.text, form), reverse=True)[:1]
    is_near = begun or (near and _likeness(clause.text, near[0]) >= MIN_LIKENESS)
    hint = f"the nearest form is: {near[0].spelling}" if is_near else "no form is like it"
    if begun and read_name(clause.text) is None:
        hint += " (words that belong together need quotation marks)"
    return NotUnderstood(f"{clause.text[:120]!r} is not understood; {hint}. {PAGE}")


def _likeness(text: str, form: Form) -> float:
    """The similarity of a clause and a form: the number of common words, plus a ratio of equal letters (0 to 1)."""
    said, spelt = (set(_WORDS.findall(words.lower())) - _FILLER for words in (text[:120], form.spelling))
    return len(said & spelt) + difflib.SequenceMatcher(None, text[:120].lower(), form.spelling.lower()).ratio()


def _usable(kinds: Collection[str]) -> list[Form]:
    return [form for form in FORMS if set(form.kinds) <= set(kinds)]


def _sources(clause: Clause, calls: Calls, steps: Sequence[Step]) -> Sequence[Step | None]:
    """The steps whose results the clause's pronoun stands for; `[None]` if the clause has no pronoun."""
    pronouns = [value for call in calls for value in call.args.values() if isinstance(value, Pronoun)]
    if not pronouns:
        return [None]
    fitting = [step for step in steps if pronouns[0].referent.path(step)]
    if not fitting:
        raise _nothing_before(clause, pronouns[0].referent)
    return fitting if pronouns[0].is_plural else fitting[-1:]


def _nothing_before(clause: Clause, referent: Referent) -> NotUnderstood:
    word = re.search(r"\b(?:it|them|these|those|that|the (?:result|summary|page|text)s?)\b", clause.text, re.IGNORECASE)
    said = word.group() if word else "it"
    reason = f"In {clause.text[:120]!r} it is not clear what `{said}` means: it must be {referent.description}."
    return NotUnderstood(f"{reason} {referent.remedy}. {PAGE}")


def _steps(calls: Calls, source: Step | None, before: Sequence[Step], needs: Sequence[str]) -> list[Step]:
    """Make the steps of one clause; each of them waits for the steps in `needs`.

    A pronoun in the clause stands for the result of `source`.
    """
    new = list[Step]()
    for call in calls:
        args = {name: _value(value, source, new) for name, value in call.args.items()}
        title = call.title.replace("{it}", source.label) if source else call.title
        own = (*needs, *(step.id for step in new)) if call.is_last else tuple(needs)
        earlier = sum(re.sub(r"-[0-9]+$", "", step.id) == call.id for step in (*before, *new))
        id = f"{call.id}-{earlier + 1}" if earlier else call.id
        new.append(Step(id=id, kind=call.kind, args=args, needs=own, title=title[:80]))
    return new


def _value(value: Value, source: Step | None, own: Sequence[Step]) -> JsonValue:
    if isinstance(value, CallResult):
        return {"$from": own[value.call].id, "path": value.referent.path(own[value.call])}
    if isinstance(value, Pronoun):
        return {"$from": source.id, "path": value.referent.path(source)} if source else None
    return value
