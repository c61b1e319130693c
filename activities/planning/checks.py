"""Why a worker cannot take a task at all, each in one sentence with a remedy."""

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from pydantic import JsonValue, ValidationError

from activities.borders import validation
from activities.errors import NeedsPerson
from activities.offline.planner import OfflinePlanner
from activities.planning.planner import Past, Planner
from activities.toolbox.declare.kind import Kind
from activities.toolbox.injection import folder
from activities.toolbox.json_schema import BadSchema, JsonSchema
from workflows.catalogue import Price
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

_STEP = ("$ref", "$step", "from", "ref", "step")
_PATH = {"path", "field", "key", "$path"}
_WORDS = re.compile(r"(?:\$\{|\{\{|\{|\$)\s*([A-Za-z][\w-]*(?:\.[\w-]+)*)\s*\}{0,2}")
_WHOLE = {"result", "output"}
"""Words that other languages put between a step and its field."""


def lookalikes(value: JsonValue, steps: Collection[str], at: str = "") -> Iterator[str]:
    """Say of each such value in a step's arguments how it is written here; `steps` are the ids that it may mean."""
    meant = _meant(value, steps)
    if meant is not None:
        yield f"{at!r} looks like a reference: write {json.dumps(meant)}"
    elif isinstance(value, dict | list):
        for name, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from lookalikes(item, steps, f"{at}.{name}" if at else str(name))


def _meant(value: JsonValue, steps: Collection[str]) -> JsonValue:
    """The reference as it should be; None for one that is right, and for what is none."""
    if isinstance(value, str):
        found = _WORDS.fullmatch(value)
        return _reference(found.group(1), "", steps) if found else None
    if not isinstance(value, dict) or ("$from" in value and value.keys() <= {"$from", "path"}):
        return None
    name = next((one for one in ("$from", *_STEP) if isinstance(value.get(one), str)), None)
    if name is None or not (name == "$from" or value.keys() <= {name, *_PATH}):
        return None
    path = next((str(value[one]) for one in value if one in _PATH), "")
    return _reference(str(value[name]).lstrip("#/$"), path, steps)


def _reference(dotted: str, path: str, steps: Collection[str]) -> JsonValue:
    step, *parts = dotted.split(".")
    parts = parts[1:] if parts[:1] and parts[0] in _WHOLE else parts
    whole = ".".join([*parts, *filter(None, [path])])
    return ({"$from": step, "path": whole} if whole else {"$from": step}) if step in steps else None


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


def refusal(
    wanted: Mapping[str, JsonValue],
    planner: Planner,
    kinds: Mapping[str, Kind],
    prices: Mapping[str, Price | None],
    documents: Path | None,
    carried: Sequence[Past] | None,
) -> str | None:
    """Say why a task could not be done here; None where it can.

    `wanted` is what the task asks of a worker, `prices` what each model costs that it may use, `documents` the worker's
    root, and `carried` the conversation that the task carries on, where it does.
    """
    return (
        _kinds(wanted.get("allow"), kinds)
        or _unpriced(wanted, prices)
        or _schema(wanted.get("result_schema"))
        or _offline(wanted, planner)
        or _silent(carried)
        or _folder(wanted.get("documents"), documents)
    )


def _kinds(allow: JsonValue, kinds: Mapping[str, Kind]) -> str | None:
    for kind in allow if isinstance(allow, list) else ():
        if kind not in kinds:
            there = nearest(str(kind), kinds) or f": there are {', '.join(sorted(kinds))}."
            return f"--allow names {str(kind)[:80]!r}, which this worker does not have{there}"
    return None


def _unpriced(wanted: Mapping[str, JsonValue], prices: Mapping[str, Price | None]) -> str | None:
    """Nobody could hold the limit of money that is wanted."""
    missing = next((name for name, price in prices.items() if price is None), None)
    if wanted.get("usd") is None or missing is None:
        return None
    remedy = f'give it in the settings file of the worker ([models.prices."{missing}"]), or leave out --usd'
    return f"--usd needs the price of {missing}, which is not known: {remedy}."


def _schema(schema: JsonValue) -> str | None:
    if not isinstance(schema, dict):
        return None
    try:
        JsonSchema(schema)
    except BadSchema as bad:
        return f"--result-schema cannot be used, since {bad}: change the schema."
    return None


def _offline(wanted: Mapping[str, JsonValue], planner: Planner) -> str | None:
    """What needs a model."""
    if planner.name != OfflinePlanner.name:
        return None
    options = {"--result-schema": "result_schema", "--continue": "continues"}
    needs = [option for option, name in options.items() if wanted.get(name)]
    needs += ["--strategy react"] if wanted.get("strategy") == "react" else []
    if not needs:
        return None
    remedy = "give the worker a model (a key in its environment), or leave it out"
    return f"{needs[0]} is for models, and {planner.name} plans here: {remedy}."


def _silent(carried: Sequence[Past] | None) -> str | None:
    if carried is None or carried:
        return None
    remedy = "start a worker on the store that has it, or leave out --continue"
    return f"The task to be carried on has no conversation in this worker's store: {remedy}."


def _folder(name: JsonValue, documents: Path | None) -> str | None:
    if not isinstance(name, str):
        return None
    try:
        folder(documents, name)
    except NeedsPerson as missing:
        return str(missing)
    return None
