"""What is recorded of a task while it runs: its steps, faults, plans, and what was seen, undone or summarised."""

from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from enum import StrEnum
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from workflows import ids
from workflows.catalogue import Effect
from workflows.faults import Fault
from workflows.plan import PassedOver, Step, Unresolved, canonical, pick

MAX_SHOWN_ARGS = 8 * 1024
"""Bytes of a step's resolved arguments that an Outcome shows; longer ones are shown as they were planned."""

MAX_NAMED = 4 * 1024
"""Bytes of one value that is kept for a companion: an id, an address, an amount."""


class StepStatus(StrEnum):
    """How a step stands."""

    PENDING = "pending"
    RUNNING = "running"
    WAITING = "waiting"
    COMPLETED = "completed"
    FAILED = "failed"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"
    UNDONE = "undone"


class StepRecord(BaseModel):
    """A step and what became of it."""

    step: Step
    revision: int
    """The number of its plan; 0 for an effect of an earlier run of the task, which a reset left standing or undid."""
    effect: Effect
    status: StepStatus = StepStatus.PENDING
    attempts: int = 0
    """Over all schedulings and kinds; those that ended because their worker stopped or went silent do not count."""
    used: int = 0
    """Of these, the attempts of the kind in use."""
    losses: int = 0
    """Attempts that went with their workers; they are none of `attempts`."""
    waits: int = 0
    waited: float = 0.0
    """Seconds waited for the kind to appear on a worker."""
    slept: float = 0.0
    """Seconds of all finished waits between two calls."""
    place: int = 0
    """The place among the steps of the task in the order in which they ended, from 1; 0 for one that has not."""
    kind: str
    """The kind in use: the step's, or its fallback."""
    args: dict[str, JsonValue] | None = None
    """The arguments with references resolved, once the step has started."""
    started: datetime | None = None
    ended: datetime | None = None
    result: JsonValue = None
    left_out: int = 0
    """Bytes of the result where it was left out because the whole would be too large."""
    replayed: bool = False
    unchanged: bool = False
    """Whether the turn before made the same call with the same result, and nothing changed between."""
    claim: int = 0
    """How often it was found that the call had not happened although it might have."""
    was_waiting: bool = False
    """Whether it was cancelled between two calls, not in the middle of one."""
    undoes: str | None = None
    """The step whose effect it takes back."""
    outlived: bool = False
    """Whether a thread of it outlived its attempt in an earlier run of the task."""
    named: dict[str, JsonValue] = Field(default_factory=dict)
    """Values that companions of the kind (undo, reconcile, observe) name, by path, of a call or a result that is no
    longer kept."""

    @property
    def call_id(self) -> str:
        """The id of its activity, which its key ends with: a fallback is another call than the step's own."""
        return ids.of_call(self.step.id, self.kind if self.is_fallback else None)

    @property
    def is_fallback(self) -> bool:
        """Whether another kind than the step's own did it."""
        return self.kind != self.step.kind

    @property
    def shown_args(self) -> dict[str, JsonValue]:
        """The arguments with references resolved, as far as that is known and short enough to show."""
        return self.step.args if self.args is None or self._has_long_args else self.args

    def slim(self, left_out: int, paths: Iterable[str] = ()) -> "StepRecord":
        """The same without long arguments and, where it has so many bytes to leave out, without the result.

        What is at the `paths` is kept, but for values that are long themselves.
        """
        if not left_out and not self._has_long_args:
            return self
        args = None if self._has_long_args else self.args
        result = {"result": None, "left_out": left_out} if left_out else {}
        return self.model_copy(update={"args": args, "named": self._named(paths), **result})

    def value_at(self, path: str, key: str = "") -> JsonValue:
        """The value at a companion's path over `args`, `result` and `key`, the idempotency key.

        Raises:
            Unresolved: there is none, or it was too large to be kept.
        """
        if path in self.named:
            return self.named[path]
        root = path.partition(".")[0]
        if (root == "args" and self.args is None) or (root == "result" and self.left_out):
            raise Unresolved(f"the {'arguments are' if root == 'args' else 'result is'} too large to be kept")
        return pick({"args": self.args, "result": self.result, "key": key}, path, "the call")

    def _named(self, paths: Iterable[str]) -> dict[str, JsonValue]:
        found = dict(self.named)
        for path in paths:
            with suppress(Unresolved):
                value = self.value_at(path)
                if len(canonical(value).encode()) <= MAX_NAMED:
                    found[path] = value
        return found

    @property
    def _has_long_args(self) -> bool:
        return self.args is not None and len(canonical(self.args).encode()) > MAX_SHOWN_ARGS


class FaultRecord(Fault):
    """A fault, where it happened and what followed."""

    step_id: str
    revision: int
    decision: Literal["retry", "wait", "fallback", "replan", "reconcile", "escalate"]
    reconciled: Literal["applied", "not_applied", "cannot_tell"] | None = None
    """What was found out about an effect that was unknown; `effect` is then what is known now."""
    at: datetime

    @classmethod
    def of_step(
        cls, fault: Fault, record: StepRecord, decision: str, *, at: datetime, reconciled: str | None = None
    ) -> "FaultRecord":
        """The record of a fault that a step met."""
        where = {"step_id": record.step.id, "revision": record.revision, "at": at}
        return cls.model_validate({**dict(fault), **where, "decision": decision, "reconciled": reconciled})


class UndoRecord(BaseModel):
    """What became of an effect that was to be taken back."""

    model_config = ConfigDict(frozen=True)

    step_id: str
    kind: str = ""
    """The kind that undoes it; empty where there is none."""
    done: bool = False
    reason: str = ""
    """Why it was not done."""


class Observation(BaseModel):
    """What was seen of the world after a fault."""

    model_config = ConfigDict(frozen=True)

    step_id: str
    kind: str
    args: dict[str, JsonValue]
    value: JsonValue
    at: datetime
    stale: bool = False
    """Whether this is the fault's own observation, because looking again failed or the kind has no `observe`."""


class Revision(BaseModel):
    """One accepted plan."""

    model_config = ConfigDict(frozen=True)

    number: int
    because: str = ""
    refused: tuple[str, ...] = ()
    """Ids of the steps whose faults led to this plan."""
    kept: tuple[str, ...] = ()
    """Ids of the steps that were finished before."""
    looked: tuple[str, ...] = ()
    """Kinds that looked at the world again."""
    planner: str = ""
    """Who proposed it."""


class Rejection(BaseModel):
    """A proposal of which nothing was carried out."""

    model_config = ConfigDict(frozen=True)

    turn: int
    reasons: tuple[str, ...]
    """Why; the first few, and each cut."""


class Compaction(BaseModel):
    """Older turns of a conversation that were summarised, because the whole would be too long for the model."""

    model_config = ConfigDict(frozen=True)

    turn: int
    """Before which turn."""
    turns: int
    """How many of the oldest turns the summary stands for."""
    planner: str
    tokens: int
    """Of the conversation before it."""


class Failover(PassedOver):
    """A planner that could not be used at one turn."""

    turn: int
