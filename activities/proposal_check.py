"""Whether a proposal can be run at all: the checks that need the kinds' schemas."""

import re
from collections.abc import Collection, Mapping, Sequence

from pydantic import JsonValue, ValidationError

from activities.borders import validation
from activities.lookalike import lookalikes
from activities.toolbox.kind import Kind
from workflows.plan import (
    MAX_BYTES,
    MAX_DEPTH,
    MAX_STEPS,
    STEP_ID,
    TURN_ID,
    Answer,
    GiveUp,
    NewSteps,
    Proposed,
    Question,
    Step,
    depth,
    nearest,
    references,
)


def check(proposal: NewSteps | Answer | Question | GiveUp, kinds: Mapping[str, Kind]) -> list[str]:
    """Say what is wrong with a proposal as such; how it fits the task is the workflow's to check."""
    if _size(proposal) > MAX_BYTES:
        return [f"the proposal has {_size(proposal)} bytes, more than {MAX_BYTES}: propose less at once"]
    if not isinstance(proposal, NewSteps):
        return []
    if len(proposal.steps) > MAX_STEPS:
        return [f"the plan has {len(proposal.steps)} steps, more than {MAX_STEPS}: propose the first of them"]
    ids = {id for step in proposal.steps for id in (step.id, *step.needs)}
    return [reason for step in proposal.steps for reason in _check_step(step, kinds, ids)]


def checked(proposed: Proposed, kinds: Mapping[str, Kind]) -> Proposed:
    """The proposal with what is wrong with it; one that is too large stays here, or the server would refuse it."""
    if proposed.rejected or proposed.compact:
        return proposed
    reasons = check(proposed.proposal, kinds)
    kept = proposed.proposal if _size(proposed.proposal) <= MAX_BYTES else GiveUp(reason=reasons[0])
    return proposed.model_copy(update={"proposal": kept, "rejected": tuple(reasons)})


def _size(proposal: NewSteps | Answer | Question | GiveUp) -> int:
    return len(proposal.model_dump_json().encode())


def _check_step(step: Step, kinds: Mapping[str, Kind], ids: Collection[str]) -> list[str]:
    if not re.fullmatch(STEP_ID, step.id) and not re.fullmatch(TURN_ID, step.id):
        return [f"step id {step.id[:80]!r} must be a letter, then letters, digits, - or _, 64 at most"]
    if step.kind not in kinds:
        there = nearest(step.kind, kinds) or f": there are {', '.join(sorted(kinds))}"
        return [f"step {step.id!r}: there is no kind {step.kind[:80]!r}{there}"]
    if depth(step.args) > MAX_DEPTH:
        return [f"step {step.id!r}: its arguments are nested deeper than {MAX_DEPTH}: make them flat"]
    kind, others = kinds[step.kind], set(ids) - {step.id}
    wrong = _unknown_arguments(step, kind) or "; ".join(lookalikes(step.args, others)) or _wrong_arguments(step, kind)
    return [f"step {step.id!r}: {step.kind}: {wrong}"] if wrong else []


def _unknown_arguments(step: Step, kind: Kind) -> str:
    """Names that the kind would silently ignore: `limt=3` is a mistake of whoever planned it."""
    schema = kind.args_schema
    known = {*schema.get("properties", ()), *kind.args.model_fields}
    if _is_reference(step.args) or schema.get("additionalProperties"):
        return ""
    takes = f": it takes {', '.join(schema.get('properties', ())) or 'none'}"
    unknown = [name for name in step.args if name not in known][: validation.MAX_NAMED]
    return "; ".join(f"has no argument {name[:40]!r}{nearest(name, known) or takes}" for name in unknown)


def _wrong_arguments(step: Step, kind: Kind) -> str:
    """What the kind's model has against the arguments, but for values that are not known yet."""
    try:
        kind.parse(step.args)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)
        known = [one for one in found if not _is_open(step.args, one["loc"], one["type"])]
        return validation.fields(known)
    return ""


def _is_open(value: JsonValue, loc: Sequence[int | str], mistake: str) -> bool:
    """Whether a reference stands at this place of the arguments or above it; a name is known before its value is."""
    for part in loc:
        if _is_reference(value):
            return True
        if isinstance(value, dict) and part in value:
            value = value[str(part)]
        elif isinstance(value, list) and isinstance(part, int) and part < len(value):
            value = value[part]  # any other part names a member of a union, which is no place
    return mistake not in ("missing", "extra_forbidden") and any(references(value))


def _is_reference(value: JsonValue) -> bool:
    return isinstance(value, dict) and "$from" in value and value.keys() <= {"$from", "path"}
