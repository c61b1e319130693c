"""Checks a proposal without the state of its task, and checks whether a worker can run a task."""

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from pydantic import JsonValue, TypeAdapter

from activities.borders import validation
from activities.errors import NeedsPerson
from activities.offline.planner import OfflinePlanner
from activities.planning.planner import Planner, RecordedTurn
from activities.planning.published import NO_OTHERS, OtherKinds
from activities.providers.registry import takes_effort
from activities.toolbox.declare.arguments import unknown_arguments, wrong_arguments
from activities.toolbox.declare.kind import Kind
from activities.toolbox.injection import folder
from activities.toolbox.json_schema import JsonSchema
from activities.toolbox.schemas.drafts import BadSchema
from workflows.json_values import depth
from workflows.planning.situation import Situation
from workflows.plans.catalogue import Price
from workflows.plans.contract import AllowedEffect
from workflows.plans.graph import check_graph
from workflows.plans.proposal import (
    BY_HAND,
    MAX_BYTES,
    MAX_DEPTH,
    MAX_QUESTION,
    MAX_STEPS,
    STEP_ID,
    TURN_ID,
    GiveUp,
    Mistake,
    NewSteps,
    Proposal,
    Proposed,
    Question,
    Step,
)
from workflows.text import nearest

OTHER_STEP_KEYS = ("$ref", "$step", "from", "ref", "step")
"""Keys that models write instead of `$from`, because other reference syntaxes have them."""
CONTRACT = TypeAdapter[Sequence[AllowedEffect]](Sequence[AllowedEffect])
PATH_KEYS = {"path", "field", "key", "$path"}
TEMPLATE = re.compile(r"(?:\$\{|\{\{|\{|\$)\s*([A-Za-z][\w-]*(?:\.[\w-]+)*)\s*\}{0,2}")
"""A reference that a model wrote as text: `${book.id}`, `{{book.id}}`, `$book.id`."""
FILLERS = {"result", "output"}
"""Words that other reference syntaxes put between a step and its field, as in `book.result.id`."""


# In all checks, `kinds` are those of this worker. What only `others` have is no mistake, and is not checked: a caller
# that gives `others` leaves the task to one of them.


def check_proposal(proposed: Proposed, kinds: Mapping[str, Kind], others: OtherKinds = NO_OTHERS) -> Proposed:
    """The proposal with its mistakes in `rejected`; a GiveUp replaces a proposal that is too large for Temporal."""
    if proposed.rejected or proposed.compact:
        return proposed
    mistakes = find_mistakes(proposed.proposal, kinds, others)
    is_too_large = _bytes(proposed.proposal) > MAX_BYTES
    kept = GiveUp(reason=mistakes[0].text) if is_too_large else proposed.proposal
    return proposed.model_copy(update={"proposal": kept, "rejected": tuple(mistakes)})


def check_written(situation: Situation, kinds: Mapping[str, Kind], others: OtherKinds = NO_OTHERS) -> Proposed | None:
    """Return the plan that a person wrote in place of this proposal; None if there is no hand-written plan.

    `rejected` has the mistakes of this plan and of all hand-written plans that come after it in the task.
    """
    if situation.plan is None:
        return None
    proposed = check_proposal(Proposed(proposal=NewSteps(steps=situation.plan), planner=BY_HAND), kinds, others)
    known, later = {step.id for step in situation.plan}, list[Mistake]()
    for number, steps in enumerate(situation.later_plans):
        mistakes = [*find_mistakes(NewSteps(steps=steps), kinds, others), *check_graph(steps, known, ())]
        later += [Mistake(text=f"revisions.{number}: {mistake.text}", step=mistake.step) for mistake in mistakes]
        known |= {step.id for step in steps}
    return proposed.model_copy(update={"rejected": (*proposed.rejected, *later)})


def find_mistakes(proposal: Proposal, kinds: Mapping[str, Kind], others: OtherKinds = NO_OTHERS) -> list[Mistake]:
    """The mistakes of a proposal, each with a remedy; the workflow checks if the proposal fits the task's state."""
    if _bytes(proposal) > MAX_BYTES:
        text = f"the proposal has {_bytes(proposal)} bytes, more than {MAX_BYTES}: propose less at once"
        return [Mistake(text=text)]
    if isinstance(proposal, Question) and len(proposal.text) > MAX_QUESTION:
        text = f"the question has {len(proposal.text)} characters, more than {MAX_QUESTION}: ask in fewer words"
        return [Mistake(text=text)]
    if not isinstance(proposal, NewSteps):
        return []
    if len(proposal.steps) > MAX_STEPS:
        text = f"the plan has {len(proposal.steps)} steps, more than {MAX_STEPS}: propose the first of them"
        return [Mistake(text=text)]
    ids = {id for step in proposal.steps for id in (step.id, *step.needs)}
    found = ((step, _step_mistake(step, kinds, ids, others)) for step in proposal.steps)
    return [Mistake(text=text, step=step.id) for step, text in found if text]


def _bytes(proposal: Proposal) -> int:
    return len(proposal.model_dump_json().encode())


def _step_mistake(step: Step, kinds: Mapping[str, Kind], ids: Collection[str], others: OtherKinds) -> str:
    """What is wrong with a step, as a sentence; empty if nothing is wrong."""
    if not re.fullmatch(STEP_ID, step.id) and not re.fullmatch(TURN_ID, step.id):
        return f"step id {step.id[:80]!r} must be a letter, then letters, digits, - or _, 64 at most"
    if step.kind not in kinds and step.kind in others.names:
        return ""
    if step.kind not in kinds:
        alternatives = nearest(step.kind, kinds) or f": there are {', '.join(sorted(kinds))}"
        return f"step {step.id!r}: there is no kind {step.kind[:80]!r}{alternatives}"
    if depth(step.args) > MAX_DEPTH:
        return f"step {step.id!r}: its arguments are nested deeper than {MAX_DEPTH}: make them flat"
    kind, other_ids = kinds[step.kind], set(ids) - {step.id}
    misspelt = "; ".join(_misspelt_references(step.args, other_ids))
    wrong = _unknown_arguments(step, kind) or misspelt or validation.fields(wrong_arguments(kind, step.args))
    return f"step {step.id!r}: {step.kind}: {wrong}" if wrong and not others.takes(step.kind, step.args) else ""


def _unknown_arguments(step: Step, kind: Kind) -> str:
    # Validation ignores unknown names: with `limt=3` the tool would run with its default limit.
    schema = kind.args_schema
    known = {*schema.get("properties", ()), *kind.args.model_fields}
    takes = f": it takes {', '.join(schema.get('properties', ())) or 'none'}"
    unknown = unknown_arguments(kind, step.args)[: validation.MAX_NAMED]
    return "; ".join(f"has no argument {name[:40]!r}{nearest(name, known) or takes}" for name in unknown)


def _misspelt_references(value: JsonValue, steps: Collection[str], at: str = "") -> Iterator[str]:
    """Yield a correction for each value that looks like a reference to one of `steps`, but in another syntax."""
    reference = _intended(value, steps)
    if reference is not None:
        yield f"{at!r} looks like a reference: write {json.dumps(reference)}"
    elif isinstance(value, dict | list):
        for name, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _misspelt_references(item, steps, f"{at}.{name}" if at else str(name))


def _intended(value: JsonValue, steps: Collection[str]) -> JsonValue:
    """The correct form of a misspelt reference; None if the value is a correct reference, or no reference."""
    if isinstance(value, str):
        found = TEMPLATE.fullmatch(value)
        return _reference(found.group(1), "", steps) if found else None
    if not isinstance(value, dict) or ("$from" in value and value.keys() <= {"$from", "path"}):
        return None
    name = next((key for key in ("$from", *OTHER_STEP_KEYS) if isinstance(value.get(key), str)), None)
    if name is None or not (name == "$from" or value.keys() <= {name, *PATH_KEYS}):
        return None
    path = next((str(value[key]) for key in value if key in PATH_KEYS), "")
    return _reference(str(value[name]).lstrip("#/$"), path, steps)


def _reference(dotted: str, path: str, steps: Collection[str]) -> JsonValue:
    """The reference to the step and path in `dotted` (`book.result.id`) and `path`; None if `steps` lacks the step."""
    step, *parts = dotted.split(".")
    parts = parts[1:] if parts[:1] and parts[0] in FILLERS else parts
    whole = ".".join([*parts, *filter(None, [path])])
    return ({"$from": step, "path": whole} if whole else {"$from": step}) if step in steps else None


def why_task_is_refused(
    requirements: Mapping[str, JsonValue],
    planner: Planner,
    kinds: Mapping[str, Kind],
    prices: Mapping[str, Price | None],
    documents: Path | None,
    continued: Sequence[RecordedTurn] | None,
    others: OtherKinds = NO_OTHERS,
) -> str | None:
    """Why this worker cannot run a task; None if it can.

    `requirements` are what the task needs of a worker. `prices` are the prices of all models that the task may use,
    None for an unknown price. `documents` is the worker's root folder of documents. `continued` is the conversation
    that the task continues; None if the task continues no conversation.
    """
    return (
        _bad_contract(requirements.get("contract"), kinds, others)
        or _missing_price(requirements, prices)
        or _bad_schema(requirements.get("result_schema"))
        or _missing_model(requirements, planner)
        or _unsupported_effort(requirements, planner)
        or _unknown_demonstrated_kind(requirements.get("demonstrated"), kinds, others)
        or _missing_conversation(continued)
        or _bad_folder(requirements.get("documents"), documents)
    )


def _bad_contract(contract: JsonValue, kinds: Mapping[str, Kind], others: OtherKinds) -> str | None:
    for effect in CONTRACT.validate_python(contract or []):
        if effect.kind not in kinds and effect.kind in others.names:
            continue
        if effect.kind not in kinds:
            alternatives = nearest(effect.kind, kinds) or f": there are {', '.join(sorted(kinds))}."
            return f"The contract names {effect.kind[:80]!r}, which this worker does not have{alternatives}"
        known = kinds[effect.kind].args_schema.get("properties", {})
        for name, term in effect.args.items():
            if name not in known and not others.has_arguments(effect.kind, effect.args):
                takes = nearest(name, known) or f": it takes {', '.join(known) or 'none'}."
                return f"The contract names {name[:40]!r} of {effect.kind}, which has no such argument{takes}"
            source = (term.slot or "").partition(".")[0]
            if source and source not in kinds and source not in others.names:
                near = nearest(source, kinds) or "."
                return f"The contract names results of {source[:80]!r}, which this worker does not have{near}"
    return None


def _missing_price(requirements: Mapping[str, JsonValue], prices: Mapping[str, Price | None]) -> str | None:
    missing = next((name for name, price in prices.items() if price is None), None)
    if requirements.get("usd") is None or missing is None:
        return None
    remedy = f'give it in the settings file of the worker ([models.prices."{missing}"]), or leave out --usd'
    return f"--usd needs the price of {missing}, which is not known: {remedy}."


def _bad_schema(schema: JsonValue) -> str | None:
    if not isinstance(schema, dict):
        return None
    try:
        JsonSchema(schema)
    except BadSchema as bad:
        return f"--result-schema cannot be used, since {bad}: change the schema."
    return None


def _missing_model(requirements: Mapping[str, JsonValue], planner: Planner) -> str | None:
    if planner.name != OfflinePlanner.name:
        return None
    options = {
        "--result-schema": "result_schema",
        "--continue": "continues",
        "--untrusted-input": "untrusted_input",
        "--effort": "effort",
        "--calls": "calls",
        "--demonstrations": "demonstrated",
    }
    needs = [option for option, name in options.items() if requirements.get(name)]
    needs += ["--strategy react"] if requirements.get("strategy") == "react" else []
    if not needs:
        return None
    remedy = "give the worker a model (a key in its environment), or leave it out"
    return f"{needs[0]} is for models, and {planner.name} plans here: {remedy}."


def _unsupported_effort(requirements: Mapping[str, JsonValue], planner: Planner) -> str | None:
    if requirements.get("effort") is None:
        return None
    lacking = next((name for name in planner.name.split(", ") if not takes_effort(name)), None)
    remedy = "leave it out, or name a model that reasons (--planner)"
    return lacking and f"--effort is for models that reason, and {lacking} has no efforts: {remedy}."


def _unknown_demonstrated_kind(names: JsonValue, kinds: Mapping[str, Kind], others: OtherKinds) -> str | None:
    unknown = [str(name) for name in names if name not in kinds] if isinstance(names, list) else []
    missing = next((name for name in unknown if name not in others.names), "")
    if not missing:
        return None
    alternatives = nearest(missing, kinds) or f": there are {', '.join(sorted(kinds))}."
    return f"The demonstrations name {missing[:80]!r}, which this worker does not have{alternatives}"


def _missing_conversation(continued: Sequence[RecordedTurn] | None) -> str | None:
    if continued is None or continued:
        return None
    remedy = "start a worker on the store that has it, or leave out --continue"
    return f"The task to be carried on has no conversation in this worker's store: {remedy}."


def _bad_folder(name: JsonValue, documents: Path | None) -> str | None:
    if not isinstance(name, str):
        return None
    try:
        folder(documents, name)
    except NeedsPerson as missing:
        return str(missing)
    return None
