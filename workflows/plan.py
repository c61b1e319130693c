"""A plan: its steps, the references between them, and the check of their ids and dependencies.

A reference `{"$from": "<step>", "path": "a.0.b"}` in a step's arguments stands for the result of another step, or for a
part of that result. The step then starts only when that other step is completed.
"""

import difflib
import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Annotated, Any, Literal, TypeGuard, get_args, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    JsonValue,
    SerializerFunctionWrapHandler,
    WrapSerializer,
    model_serializer,
    model_validator,
)

BY_HAND = "by hand"
"""Stands for the planner's name where a person wrote the plan."""
MAX_STEPS = 50
MAX_BYTES = 64 * 1024
MAX_DEPTH = 20
MAX_SHOWN = 300
"""If a reference has no target, the error message lists the keys of the result, cut to this many characters."""
MAX_QUESTION, MAX_OPTIONS, MAX_OPTION = 4_000, 10, 200
"""The most characters of a question, the most options that it has, and the most characters of each."""
MAX_EXACT = 2**53
"""A float represents every whole number below this exactly."""
STEP_ID = r"^[A-Za-z][A-Za-z0-9_-]{0,63}$"
TURN_ID = r"^t\d+\.c\d+(\.b\d+)?$"
"""The form of a step's id in the strategy `react`: `t3.c0` is the first call of turn 3; `.b1` follows after a reset."""


class Sparse(BaseModel):
    """A model that is serialised without default values, to keep history small.

    A `Literal` field with a single value is always kept, because it tells the type.
    """

    @model_serializer(mode="wrap")
    def _drop_defaults(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return without_defaults(self, write(self))


class _Frozen(BaseModel, frozen=True, extra="forbid"):
    pass


class Step(_Frozen):
    """One unit of a plan: a call of the tool that its kind names."""

    id: str
    """Unique in the task over all its plans, because it is part of the idempotency key."""
    kind: str
    args: dict[str, JsonValue] = Field(default_factory=dict)
    needs: tuple[str, ...] = ()
    title: str = ""
    """A few words for people; if empty, the arguments are shown instead."""
    provider_call: str = ""
    """The id that the model's provider gave the tool call; empty if the step comes from a plan."""

    @property
    def dependencies(self) -> frozenset[str]:
        """The ids of the steps that must be completed before this step: `needs` and all references."""
        return frozenset(self.needs) | frozenset(references(self.args))

    @property
    def label(self) -> str:
        """What the step does, in a few words."""
        return self.title or ", ".join(_brief(value) for value in self.args.values())[:80]


def _sparsely(step: Step, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
    return without_defaults(step, write(step))


SparseStep = Annotated[Step, WrapSerializer(_sparsely)]
"""A step of a plan that is kept in history, without default values."""


class _Recorded(_Frozen, Sparse):
    pass


class NewSteps(_Recorded):
    """A proposal to run these new steps; the results of completed steps stay available."""

    type: Literal["steps"] = "steps"
    steps: tuple[SparseStep, ...]
    because: str = ""


class Answer(_Recorded):
    """A proposal to end the task with this result."""

    type: Literal["answer"] = "answer"
    result: JsonValue


def _joined(value: object) -> object:
    return " ".join(value.split()) if isinstance(value, str) else value


def _unique(options: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(options))


# One line each: a person types an option, or reads it in a list.
Option = Annotated[str, BeforeValidator(_joined), Field(min_length=1, max_length=MAX_OPTION)]


class Question(_Recorded):
    """A proposal to ask the user."""

    type: Literal["question"] = "question"
    text: str
    options: Annotated[tuple[Option, ...], AfterValidator(_unique)] = Field(default=(), max_length=MAX_OPTIONS)
    """Answers to choose from; empty if there are none to suggest."""
    free_text: bool = True
    """Whether the user may answer with other words than the options."""


class GiveUp(_Recorded):
    """A proposal to end the task as failed, because no plan can reach its goal."""

    type: Literal["give_up"] = "give_up"
    reason: str


Proposal = Annotated[NewSteps | Answer | Question | GiveUp, Field(discriminator="type")]


class Mistake(_Frozen):
    """One reason why a proposal cannot be run."""

    text: str
    """The reason as a whole sentence, with the id of the step if a single step is wrong."""
    step: str = ""
    """The id of the step that is wrong; empty if the mistake is in the whole proposal."""

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: object) -> object:
        # Workers of an earlier version send a plain sentence.
        return {"text": value} if isinstance(value, str) else value

    def __str__(self) -> str:
        return self.text


class PassedOver(_Frozen):
    """A planner that could not be used, so that the next planner of the list was asked."""

    planner: str
    code: str
    reason: str


class Proposed(_Recorded):
    """What a planning activity returns."""

    proposal: Proposal
    rejected: tuple[Mistake, ...] = ()
    """The mistakes that the activity found in the proposal; empty if it found none."""
    planner: str = ""
    model_calls: int = 0
    tokens: int = 0
    usd: float | None = None
    """US dollars that the model calls cost; None if the price is unknown, or no model was asked."""
    lost: int = 0
    """Requests of earlier attempts whose replies were lost, so that their cost is unknown."""
    lost_models: tuple[str, ...] = ()
    """The models of the `lost` requests, as far as they are known."""
    estimated: int = 0
    """How many of the `model_calls` have estimated tokens, because the server did not count them."""
    branch: int = 0
    """The number of the branch of the conversation on which this turn is. A task that goes on differently after a reset
    begins a new branch."""
    context: int = 0
    """Tokens of the conversation, this turn included; 0 if no model was asked."""
    compact: int = 0
    """How many of the oldest turns must be summarised before the model can be asked, because the conversation is too
    long; 0 if the model was asked."""
    passed_over: tuple[PassedOver, ...] = ()
    """Planners that could not be used for this turn, in the order in which they were asked."""
    earlier: tuple[JsonValue, ...] = ()
    """The faults of earlier attempts of the same activity, as far as they are known."""
    held: float = 0.0
    """Seconds that an operator held the attempts back, as with `temporal activity pause`; 0 if nobody did."""


class StepReturn(Sparse, frozen=True):
    """What a step's activity returns."""

    result: JsonValue
    attempt: int = Field(default=1, ge=1)
    replayed: bool = False
    """Whether an earlier call has applied the effect; then `result` is the recorded result of that call."""
    earlier: tuple[JsonValue, ...] = ()
    """The faults of earlier attempts of the same activity, as far as they are known."""
    model_calls: int = 0
    tokens: int = 0
    """Tokens that models used for the step."""
    usd: float | None = None
    estimated: int = 0
    """How many of the `model_calls` have estimated tokens."""
    held: float = 0.0
    """Seconds that an operator held the attempts back, as with `temporal activity pause`; 0 if nobody did."""


PRUNED = "$pruned"
"""If `prune` deleted a result, an object with only this key replaces it; the value is a sentence for a person."""
PRUNED_ENCODING = b"replan/pruned"
"""The encoding of the payload that replaces a deleted payload; its data is a sentence for a person."""


class Unresolved(ValueError):
    """A reference has no target; the message says where, and what is there instead."""


def references(value: JsonValue) -> Iterator[str]:
    if _is_reference(value):
        yield str(value["$from"])
    else:
        for item in _items(value):
            yield from references(item)


def resolve(value: JsonValue, results: Mapping[str, JsonValue]) -> JsonValue:
    """Return `value` with each reference replaced by the result, or the part of a result, that it names.

    Raises:
        Unresolved: a referenced step has no result, or its result has no such path.
    """
    if _is_reference(value):
        step = str(value["$from"])
        if step not in results:
            raise Unresolved(f"step {step!r} has no result")
        return pick(results[step], str(value.get("path", "")), f"the result of {step!r}")
    if isinstance(value, dict):
        return {key: resolve(item, results) for key, item in value.items()}
    if isinstance(value, list):
        return [resolve(item, results) for item in value]
    return value


def pick(value: JsonValue, path: str, of: str) -> JsonValue:
    """Follow a dotted path (`free.0.at`) into `value`, which error messages call `of`.

    If `prune` deleted the value that the path leads into, the object that stands in its place is returned.

    Raises:
        Unresolved: there is nothing at the path.
    """
    where = "it"
    for part in filter(None, path.split(".")):
        if _is_pruned(value):
            return value  # no error: a replay must go the same way as with the result
        if isinstance(value, dict) and part in value:
            value = value[part]
        elif isinstance(value, list) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        else:
            there = f"has {sorted(value)}" if isinstance(value, dict) else f"is a {type(value).__name__}"
            there = there if len(there) <= MAX_SHOWN else there[:MAX_SHOWN] + "…"
            raise Unresolved(f"{of} has nothing at {path!r}: {where} {there}")
        where = repr(part)
    return value


def pruned(value: JsonValue) -> str | None:
    """If `value` or a part of it was deleted by `prune`, the sentence that stands in its place; else None."""
    if _is_pruned(value):
        return str(value[PRUNED])
    return next((found for item in _items(value) if (found := pruned(item))), None)


def canonical(value: JsonValue) -> str:
    """The canonical JSON text: equal for equal values."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def digest(*values: JsonValue) -> str:
    """A short digest of JSON values, the same in every process."""
    # 24 hex digits are 96 bits: short in history, and no two values collide by chance.
    return hashlib.sha256(canonical(_same_numbers(list(values))).encode()).hexdigest()[:24]


def _same_numbers(value: JsonValue) -> JsonValue:
    # 1.0 and 1 are equal, so they must have the same digest.
    if isinstance(value, dict):
        return {key: _same_numbers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_same_numbers(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < MAX_EXACT else value


def ready_steps(pending: Iterable[Step], completed: Collection[str]) -> list[Step]:
    """The `pending` steps whose dependencies are all `completed`, in the given order."""
    done = set(completed)
    # Not by `dependencies`: a long plan is searched after each of its steps, and most steps name what they need.
    return [step for step in pending if done.issuperset(step.needs) and done.issuperset(references(step.args))]


def check_graph(steps: Sequence[Step], finished: Collection[str], taken: Collection[str]) -> list[Mistake]:
    """The mistakes in the ids and dependencies of a proposal, a sentence each; empty if there are none.

    `finished` are the ids of the task's completed steps, `taken` the ids of all its steps that ever started.
    """
    ids = [step.id for step in steps]
    mistakes = [
        Mistake(text=f"step id {id!r} is used twice: give each step an id of its own", step=id)
        for id in dict.fromkeys(ids)
        if ids.count(id) > 1
    ]
    mistakes += [
        Mistake(
            text=f"step id {id!r} belongs to an earlier step of this task: choose another, e.g. {id + '-2'!r}", step=id
        )
        for id in dict.fromkeys(ids)
        if id in taken
    ]
    known = {*ids, *finished}
    for step in steps:
        for need in sorted(step.dependencies - known):
            what = (
                "failed, or whose result is not kept any more"
                if need in taken
                else f"does not exist{nearest(need, known)}"
            )
            mistakes.append(Mistake(text=f"step {step.id!r} needs {need!r}, which {what}", step=step.id))
    return mistakes or _cycle(steps)


def nearest(name: str, among: Iterable[str]) -> str:
    """The clause ": did you mean A or B?" with up to three names that are similar to `name`; empty if none is.

    Two names are similar if they are spelt alike, or if one has all words of the other: `get_price` and `price`.
    """
    words, names = set(name.split("_")), sorted(among)
    parts = [one for one in names if words <= set(one.split("_")) or words >= set(one.split("_"))]
    found = list(dict.fromkeys([*difflib.get_close_matches(name, names), *parts]))[:3]
    return f": did you mean {' or '.join(found)}?" if found else ""


def depth(value: JsonValue) -> int:
    """How deep a JSON value is nested; 0 for a number, text, bool or null."""
    return 1 + max(map(depth, _items(value)), default=0) if isinstance(value, dict | list) else 0


def _items(value: JsonValue) -> Iterable[JsonValue]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _is_reference(value: JsonValue) -> TypeGuard[dict[str, JsonValue]]:
    return isinstance(value, dict) and "$from" in value and set(value) <= {"$from", "path"}


def _is_pruned(value: JsonValue) -> TypeGuard[dict[str, JsonValue]]:
    return isinstance(value, dict) and value.keys() == {PRUNED}


def _cycle(steps: Sequence[Step]) -> list[Mistake]:
    try:
        TopologicalSorter({step.id: sorted(step.dependencies) for step in steps}).prepare()
    except CycleError as error:
        circle = " -> ".join(error.args[1])
        return [Mistake(text=f"steps need each other in a circle: {circle}: remove one of these needs")]
    return []


def _brief(value: JsonValue) -> str:
    if _is_reference(value):
        return f"<{value['$from']}>"
    return value if isinstance(value, str) else canonical(value)


def without_defaults(model: BaseModel, written: dict[str, Any]) -> dict[str, Any]:
    """What was `written` of a model, without the fields that have their default values."""
    fields = {field.alias or name: name for name, field in type(model).model_fields.items()}
    return {key: value for key, value in written.items() if _is_needed(model, fields[key])}


def _is_needed(model: BaseModel, name: str) -> bool:
    field = type(model).model_fields[name]
    tells_type = get_origin(field.annotation) is Literal and len(get_args(field.annotation)) == 1
    return field.is_required() or tells_type or getattr(model, name) != field.get_default(call_default_factory=True)
