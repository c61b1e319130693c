"""What a planner proposes: steps, an answer, a question, or that it gives up; and what the activity of a step returns.

Made at the end of an activity of the planner or of a step; read by the workflow, which checks the proposal first.

A step starts when every step is completed that it names in `needs` or refers to in its arguments.
"""

from collections.abc import Mapping
from itertools import starmap
from operator import not_
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    JsonValue,
    SerializerFunctionWrapHandler,
    WrapSerializer,
)

from workflows.marks import Kept, Refers
from workflows.plans.contract import AllowedEffect, Origin
from workflows.plans.references import label, references
from workflows.sparse import Sparse, without_defaults
from workflows.text import shorten

BY_HAND = "by hand"
"""Stands for the planner's name where a person wrote the plan."""
MAX_STEPS = 50
MAX_BYTES = 64 * 1024
MAX_DEPTH = 20
MAX_LABEL = 80
"""The most characters of `Step.label` if it is made from the arguments."""
MAX_QUESTION, MAX_OPTIONS, MAX_OPTION = 4_000, 10, 200
"""The most characters of a question, the most options that it has, and the most characters of each."""
STEP_ID = r"^[A-Za-z][A-Za-z0-9_-]{0,63}$"
TURN_ID = r"^t\d+\.c\d+(\.b\d+)?$"
"""The form of a step's id in the strategy `react`: `t3.c0` is the first call of turn 3; `.b1` follows after a reset."""


class _Frozen(BaseModel, frozen=True, extra="forbid"):
    pass


class Step(_Frozen):
    """One unit of a plan: a call of the tool that its kind names."""

    id: Kept[str]
    """Unique in the task over all its plans, because it is part of the idempotency key."""
    kind: Kept[str]
    args: Refers[dict[str, JsonValue]] = Field(default_factory=dict)
    needs: Kept[tuple[str, ...]] = ()
    title: str = ""
    """A few words for people; if empty, the arguments are shown instead."""
    provider_call: str = ""
    """The id that the model's provider gave the tool call; empty if the step comes from a plan."""

    if TYPE_CHECKING:  # pydantic makes it; a type checker would take the fields for the only types that are accepted

        def __init__(
            self,
            *,
            id: str,
            kind: str,
            args: Mapping[str, JsonValue] = ...,
            needs: list[str] | tuple[str, ...] = ...,
            title: str = ...,
            provider_call: str = ...,
        ) -> None: ...

    @property
    def dependencies(self) -> frozenset[str]:
        """The ids of the steps that must be completed before this step: `needs` and all references."""
        return frozenset(self.needs) | frozenset(references(self.args))

    @property
    def label(self) -> str:
        """What the step does, in a few words."""
        return self.title or shorten(", ".join(starmap(_argument_label, self.args.items())), MAX_LABEL)


def _argument_label(name: str, value: JsonValue) -> str:
    """An argument in a title: its value, with its name where the value alone says nothing, as `seats 12`."""
    spaced = name.replace("_", " ")
    match value:
        case bool():
            return spaced if value else f"no {spaced}"
        case int() | float():
            return f"{spaced} {label(value)}"
    return label(value)


def _write_sparsely(step: Step, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
    return without_defaults(step, write(step))


SparseStep = Annotated[Step, WrapSerializer(_write_sparsely)]
"""A step of a plan that is kept in history, without default values."""


class _Recorded(_Frozen, Sparse):
    pass


class NewSteps(_Recorded):
    """A proposal to run these new steps; the results of completed steps stay available."""

    type: Literal["steps"] = "steps"
    steps: tuple[SparseStep, ...]
    because: str = ""
    effects: tuple[AllowedEffect, ...] = ()
    """Effects that later plans may have, too, after untrusted content was read; ignored if it was read before."""


class Answer(_Recorded):
    """A proposal to end the task with this result."""

    type: Literal["answer"] = "answer"
    result: Refers[JsonValue]
    misfit: str = Field(default="", exclude_if=not_)
    """Why the result does not fit the task's `result_schema`, if no better result can be requested; else empty."""


def _on_one_line(value: object) -> object:
    return " ".join(value.split()) if isinstance(value, str) else value


def _unique(options: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(options))


# One line each: a person types an option, or reads it in a list.
Option = Annotated[str, BeforeValidator(_on_one_line), Field(min_length=1, max_length=MAX_OPTION)]


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
    step: Kept[str] = ""
    """The id of the step that is wrong; empty if the mistake is in the whole proposal."""

    def __str__(self) -> str:
        return self.text


class PassedOver(_Frozen):
    """A planner that could not be used, so that the next planner of the list was asked."""

    planner: Kept[str]
    code: Kept[str]
    reason: str


class Proposed(_Recorded):
    """What a planning activity returns."""

    proposal: Proposal
    rejected: tuple[Mistake, ...] = ()
    """The mistakes that the activity found in the proposal; empty if it found none."""
    planner: Kept[str] = ""
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
    """The branch of the conversation with this turn; a task that goes on differently after a reset begins another."""
    context: int = 0
    """Tokens of the conversation, this turn included, and what the next reply may cost beyond its limit, as tokens of
    input; 0 if no model was asked."""
    compact: int = 0
    """How many of the oldest turns must be summarised before the model can be asked; 0 if it was asked."""
    passed_over: tuple[PassedOver, ...] = ()
    """Planners that could not be used for this turn, in the order in which they were asked."""
    earlier: tuple[JsonValue, ...] = ()
    """The faults of earlier attempts of the same activity, as far as they are known; and a `Found`, if the proposal was
    recorded by an attempt of an earlier activity execution."""
    held: float = 0.0
    """Seconds that an operator held the attempts back, as with `temporal activity pause`; 0 if nobody did."""
    origins: tuple[Origin, ...] | None = None
    """The literals without a trusted source; None if the task has read no untrusted content."""
    unchecked: str = ""
    """In the store only: why the worker that recorded it could not check it; another worker does, and clears this."""
    specs: dict[str, JsonValue] = Field(default_factory=dict)
    """The specs of the steps' kinds, and of those that belong to them, if the worker of the planner has another
    catalogue than the task (`Situation.catalogue`); else empty."""


class StepReturn(Sparse, frozen=True):
    """What a step's activity returns."""

    result: JsonValue
    attempt: int = Field(default=1, ge=1)
    replayed: bool = False
    """Whether an earlier call has applied the effect; then `result` is the recorded result of that call."""
    earlier: tuple[JsonValue, ...] = ()
    model_calls: int = 0
    tokens: int = 0
    """Tokens that models used for the step."""
    usd: float | None = None
    estimated: int = 0
    """How many of the `model_calls` have estimated tokens."""
    held: float = 0.0
    """Seconds; see `Proposed.held`."""
    lasted: float = 0.0
    """Seconds that the call took, if these were WAITED (`guards`) or more; else 0."""
