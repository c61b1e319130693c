"""The planner without a model: fixed forms of clauses, and fixed rules after a refusal."""

import difflib
import re
from collections.abc import Collection, Mapping, Sequence
from datetime import date

from pydantic import JsonValue, ValidationError

from activities.offline.form import Clause, Form, It, Noun, Own, Value, Wanted, cut
from activities.offline.forms import FORMS
from activities.offline.phrases import PHRASES
from activities.offline.repair import CannotTell, left_to_do, rejection, repair, unfinished
from activities.toolbox.declare.kind import Kind
from workflows.plan import TURN_ID, Answer, GiveUp, NewSteps, Question, Step, canonical
from workflows.record import StepRecord, StepStatus
from workflows.situation import Situation

MODEL_HINT = "The offline planner knows a few forms only; with a model key there is one that understands free text."
CUTOFF = 0.4
"""How alike a clause and a form must be to be called near, where they share no word."""
_WORDS = re.compile(r"[^\W\d_]{3,}")
_FILLER = {"and", "the", "for", "all", "most", "each", "other", "what"}


class NotUnderstood(ValueError):
    """A clause that no form fits; the message names it and the nearest form."""


def read(text: str, today: date, kinds: Collection[str]) -> tuple[Step, ...]:
    """Turn a text into steps.

    Raises:
        NotUnderstood: a clause fits no form, or asks for a kind that is not among `kinds`.
    """
    steps, before, group = list[Step](), list[str](), list[str]()
    for clause in cut(text, begins=lambda rest: any(form.beginning.match(rest) for form in FORMS)):
        wanted = _understand(clause, today, kinds)
        if clause.is_after:
            before, group = group, []
        for source in _sources(clause, wanted, steps):
            new = _steps(clause, wanted, source, (*steps,), before)
            steps += new
            group += [step.id for step in new]
    if not steps:
        raise NotUnderstood(f"There is nothing to do in the task: write e.g. {_spellings(kinds)}. {MODEL_HINT}")
    return tuple(steps)


def _understand(clause: Clause, today: date, kinds: Collection[str]) -> Sequence[Wanted]:
    for form in FORMS:
        found = form.pattern.fullmatch(clause.text)
        wanted = form.read(found, today) if found else None
        if wanted is None:
            continue
        missing = [one.kind for one in wanted if one.kind not in kinds]
        if missing:
            reason = f"{clause.text[:120]!r} needs the kind {missing[0]}, which cannot be used in this task."
            raise NotUnderstood(f"{reason} What can be used: {_spellings(kinds)}.")
        return wanted
    raise _not_understood(clause, kinds)


def _not_understood(clause: Clause, kinds: Collection[str]) -> NotUnderstood:
    usable = _usable(kinds)
    begun = [form for form in usable if form.pattern.fullmatch(clause.text)]
    near = begun or sorted(usable, key=lambda form: _likeness(clause.text, form), reverse=True)[:1]
    is_near = begun or (near and _likeness(clause.text, near[0]) >= CUTOFF)
    hint = f"the nearest form is: {near[0].spelling}" if is_near else f"the forms are: {_spellings(kinds)}"
    return NotUnderstood(f"{clause.text[:120]!r} is not understood; {hint}. {MODEL_HINT}")


def _likeness(text: str, form: Form) -> float:
    """How many words a clause and a form share; the letters decide where that is equal."""
    said, spelt = (set(_WORDS.findall(words.lower())) - _FILLER for words in (text[:120], form.spelling))
    return len(said & spelt) + difflib.SequenceMatcher(None, text[:120].lower(), form.spelling.lower()).ratio()


def _usable(kinds: Collection[str]) -> list[Form]:
    return [form for form in FORMS if set(form.kinds) <= set(kinds)]


def _spellings(kinds: Collection[str]) -> str:
    return "; ".join(form.spelling for form in _usable(kinds)) or "nothing"


def _sources(clause: Clause, wanted: Sequence[Wanted], steps: Sequence[Step]) -> Sequence[Step | None]:
    """The steps that `it` or `them` refers to; one None where neither is said."""
    said = [value for one in wanted for value in one.args.values() if isinstance(value, It)]
    if not said:
        return [None]
    fitting = [step for step in steps if said[0].noun.path(step)]
    if not fitting:
        raise _nothing_before(clause, said[0].noun)
    return fitting if said[0].is_each else fitting[-1:]


def _nothing_before(clause: Clause, noun: Noun) -> NotUnderstood:
    word = re.search(r"\b(?:it|them|these|those|that|the (?:result|summary|page|text)s?)\b", clause.text, re.IGNORECASE)
    said = word.group() if word else "it"
    reason = f"In {clause.text[:120]!r} is not understood what `{said}` is: it must be {noun.what}."
    return NotUnderstood(f"{reason} {noun.instead}. {MODEL_HINT}")


def _steps(
    clause: Clause, wanted: Sequence[Wanted], source: Step | None, before: Sequence[Step], needs: Sequence[str]
) -> list[Step]:
    """The steps of one clause, for one of the things that `it` or `them` stands for."""
    new = list[Step]()
    for one in wanted:
        args = {name: _value(value, source, new) for name, value in one.args.items()}
        title = one.title.replace("{it}", source.label) if source else one.title
        own = (*needs, *(step.id for step in new)) if one.is_last else tuple(needs)
        id = _id(one, (*before, *new))
        new.append(Step(id=id, kind=one.kind, args=args, needs=own, title=title[:80]))
    return new


def _value(value: Value, source: Step | None, own: Sequence[Step]) -> JsonValue:
    if isinstance(value, Own):
        return {"$from": own[value.call].id, "path": value.noun.path(own[value.call])}
    if isinstance(value, It):
        return {"$from": source.id, "path": value.noun.path(source)} if source else None
    return value


def _id(wanted: Wanted, steps: Sequence[Step]) -> str:
    earlier = sum(re.sub(r"-[0-9]+$", "", step.id) == wanted.id for step in steps)
    return f"{wanted.id}-{earlier + 1}" if earlier else wanted.id


MAX_SENTENCE = 500


def tell(records: Sequence[StepRecord], today: date) -> str:
    """What the finished steps came to, in the order of the plan."""
    return "\n".join(_sentence(record, today)[:MAX_SENTENCE] for record in records)


def _sentence(record: StepRecord, today: date) -> str:
    phrase = PHRASES.get(record.kind)
    if record.left_out:
        return f"{record.step.label or record.step.id}: {record.left_out} bytes, too much to be told here"
    if phrase is not None:
        try:
            return phrase(record.result, today)
        except ValidationError:
            pass  # a kind of the same name with another result
    return f"{record.step.label or record.step.id}: {_brief(record.result)}"


def _brief(value: JsonValue) -> str:
    """A result as text: the plain fields of an object, everything else as JSON."""
    if isinstance(value, dict) and value:
        return ", ".join(f"{name} {item if isinstance(item, str) else canonical(item)}" for name, item in value.items())
    return value if isinstance(value, str) else canonical(value)


BEGUN = "A model chose the steps turn by turn, and no rule can say what is missing: what was finished stays."

IN_WORDS = "The rules answer in words, and the answer of this task is to fit a schema: that needs a model."


class OfflinePlanner:
    """Proposes the same for the same situation, in no time and for nothing."""

    name = "offline"

    async def propose(self, situation: Situation, kinds: Mapping[str, Kind]) -> NewSteps | Answer | Question | GiveUp:
        """Read the text into steps; after a refusal take what the world offers; at the end say what came of it."""
        if situation.result_schema is not None:
            return GiveUp(reason=IN_WORDS)
        try:
            if not situation.planned and not situation.is_last:
                proposal = _first_plan(situation, kinds)
            elif unfinished(situation) and not situation.is_last:
                proposal = repair(situation, kinds)
            else:
                return _answer(situation)
        except CannotTell as unknown:
            return GiveUp(reason=str(unknown))
        is_done = isinstance(proposal, NewSteps) and not proposal.steps  # an earlier run did all that is left
        return _answer(situation) if is_done else proposal


def _answer(situation: Situation) -> Answer | GiveUp:
    finished = [record for record in situation.records if record.status is StepStatus.COMPLETED]
    if not finished:
        return GiveUp(reason="No step of the plan was finished.")
    if not situation.is_last and any(re.fullmatch(TURN_ID, record.step.id) for record in finished):
        return GiveUp(reason=BEGUN)
    return Answer(result=tell(finished, situation.now.date()))


def _first_plan(situation: Situation, kinds: Mapping[str, Kind]) -> NewSteps | GiveUp:
    if situation.rejected:
        return GiveUp(reason=rejection(situation.rejected))
    usable = [kind for kind in kinds if kind not in situation.down]
    try:
        steps = read(situation.text, situation.now.date(), usable)
    except NotUnderstood as wrong:
        return GiveUp(reason=str(wrong))
    return NewSteps(steps=left_to_do(steps, situation.earlier, kinds))
