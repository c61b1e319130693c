"""What a task records while it runs: steps, faults, plans, observations, undos and more.

Made when a plan is accepted or rejected, after each fault and each observation, and in a rollback; read by the planner
in the next turn, and in the Outcome.
"""

from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from enum import StrEnum
from operator import not_
from typing import Literal

from pydantic import AwareDatetime, BaseModel, Field, JsonValue

from workflows import ids
from workflows.faults.decision import Action
from workflows.faults.fault import Fault
from workflows.json_values import canonical
from workflows.marks import Kept, Paths, Refers
from workflows.people.approval import ApprovedCall
from workflows.plans.catalogue import CompanionSpec, Effect
from workflows.plans.proposal import Mistake, PassedOver, Step
from workflows.plans.references import Unresolved, pick

MAX_SHOWN_ARGS = 8 * 1024
"""Bytes. An Outcome shows longer arguments as they were planned: with references in place of results."""
MAX_NAMED = 4 * 1024
"""Bytes. When a long result or argument is left out, a value in it up to this size (an id, an address, an amount) is
kept if an undo or another follow-up call needs it."""


class StepStatus(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    WAITING = "waiting"
    PAUSED = "paused"
    """An operator has paused the step's activity. Only the client reports it: the workflow does not know."""
    COMPLETED = "completed"
    FAILED = "failed"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"
    UNDONE = "undone"


class StepRecord(BaseModel):
    """A step of a plan, and its state."""

    # Set when the plan is accepted
    step: Step
    revision: int
    """The number of its plan; 0 for an effect of an earlier run of the task that a reset kept or undid."""
    effect: Effect
    kind: Kept[str]
    """The kind of tool that the step calls: the planned kind, or a fallback."""
    is_tainted: bool = Field(default=False, exclude_if=not_)
    """Whether the result may contain untrusted content, which the tool returns or an argument of the call came from."""
    is_planned_ahead: bool = Field(default=False, exclude_if=not_)
    """Of a pure tool: whether its call was planned before the task read untrusted content, which so did not choose what
    is computed."""
    undoes: Kept[str | None] = None
    """The id of the step whose effect this step undoes; None for a step of a plan."""

    # Set when the step starts
    started: AwareDatetime | None = None
    args: Refers[dict[str, JsonValue] | None] = None
    """The arguments, with the results of other steps in place of references. None before the step starts, and in a copy
    from which long arguments are left out."""

    # Set by each attempt
    status: StepStatus = StepStatus.PENDING
    attempts: int = 0
    """How many attempts the step has made, with its planned tool and with fallbacks. An attempt is not counted if its
    worker stopped or went silent."""
    used: int = 0
    """How many of the `attempts` called the current `kind`; it is 0 again when the step changes to a fallback."""
    losses: int = 0
    """Attempts whose workers went silent; `attempts` does not count them."""
    silent: int = Field(default=0, exclude_if=not_)
    """How many of the `attempts`, except the last of an activity execution, ended without a report."""
    failed: Fault | None = Field(default=None, exclude=True)
    """The last counted fault of the current `kind`, since a person last answered `retry`; see `metrics.last_fault`."""
    retried: dict[str, int] = Field(default_factory=dict, exclude=True)
    """The retries of the current `kind`, by the code of the fault before each."""

    # Set by each wait
    waits: int = 0
    waited: float = 0.0
    """Seconds that the step waited because no worker had its tool."""
    slept: float = 0.0
    """Seconds that the step waited between two executions of its activity, added up."""
    repeated: Fault | None = Field(default=None, exclude=True)
    """The value of `failed` if the step has waited since then, so that its next execution is a retry; else None."""

    # Set when a person has answered, or the call was reconciled
    edited: dict[str, JsonValue] = Field(default_factory=dict, exclude_if=not_)
    """The arguments that a person changed before the call was made."""
    approval: ApprovedCall | None = Field(default=None, exclude=True)
    """What a person approved; a call that differs is refused. It does not outlast the run of the task."""
    fencing_token: int = 0
    """How often the call was found not to be applied; with it, the ledger rejects an older attempt."""

    # Set when the step ends
    ended: AwareDatetime | None = None
    place: int = 0
    """The position, from 1, in the order in which the steps of the task ended; 0 while the step has not ended."""
    result: JsonValue = None
    replayed: bool = False
    unchanged: bool = False
    """Whether the previous turn made the same call with the same result, and no effect was applied in between."""
    was_waiting: bool = False
    """Whether the step was cancelled while it waited between two activity executions, so that no call ran."""

    # Set when long values are left out, and after a reset
    left_out: int = 0
    """The bytes of the result, if the result was left out because all results together were too large; else 0."""
    named: Paths[dict[str, JsonValue]] = Field(default_factory=dict)
    """By path, short values of what was left out; calls that undo, reconcile or observe this step need them."""
    outlived: bool = False
    """Whether, in an earlier run of the task, a thread of the call still ran after its attempt had ended."""

    @property
    def call_id(self) -> str:
        """The end of the call's idempotency key: the step's id and, if a fallback is called, the fallback's kind."""
        return ids.of_call(self.step.id, self.kind if self.is_fallback else None)

    @property
    def label(self) -> str:
        """What the step does, in a few words: the title of the plan, or the arguments if a person changed them."""
        changed = {"args": self.shown_args, "title": ""}
        return self.step.model_copy(update=changed).label if self.edited else self.step.label

    @property
    def is_fallback(self) -> bool:
        return self.kind != self.step.kind

    @property
    def shown_args(self) -> dict[str, JsonValue]:
        """The arguments with results of other steps put in; the planned arguments if these are unknown or too long."""
        return self.step.args if self.args is None or self._has_long_args else self.args

    def slim(self, left_out: int, paths: Iterable[str] = ()) -> "StepRecord":
        """A copy without long arguments; if `left_out`, the bytes of the result, is not 0, also without the result.

        The short values at `paths` in what is left out stay in `named`.
        """
        if not left_out and not self._has_long_args:
            return self
        args = None if self._has_long_args else self.args
        result = {"result": None, "left_out": left_out} if left_out else {}
        return self.model_copy(update={"args": args, "named": self._short_values_at(paths), **result})

    def value_at(self, path: str, key: str = "") -> JsonValue:
        """The value at a path that begins with `args`, `result` or `key` (the idempotency key), such as `result.id`.

        Raises:
            Unresolved: there is no such value, or it was too large to be kept.
        """
        if path in self.named:
            return self.named[path]
        root = path.partition(".")[0]
        if (root == "args" and self.args is None) or (root == "result" and self.left_out):
            raise Unresolved(f"the {'arguments are' if root == 'args' else 'result is'} too large to be kept")
        return pick({"args": self.args, "result": self.result, "key": key}, path, "the call")

    def args_for(self, companion: CompanionSpec, key: str = "") -> dict[str, JsonValue]:
        """The arguments for a `companion` of this call; one without a value is left out, and its default applies."""
        args = dict[str, JsonValue]()
        for name, path in companion.args.items():
            with suppress(Unresolved):
                args[name] = self.value_at(path, key)
        return args

    def _short_values_at(self, paths: Iterable[str]) -> dict[str, JsonValue]:
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
    """A fault of a call, and the decision that followed."""

    step_id: Kept[str]
    """The id of the activity: of a step or, for a fault of Replan's own call, of a request to the planner or a read."""
    revision: int
    decision: Kept[Action]
    reconciled: Literal["applied", "not_applied", "cannot_tell"] | None = None
    """What reconciliation found out about the effect of the call; `applied` then says the same. None if there was no
    reconciliation."""
    at: AwareDatetime

    @classmethod
    def of_call(
        cls, fault: Fault, id: str, revision: int, decision: str, *, at: datetime, reconciled: str | None = None
    ) -> "FaultRecord":
        """The record of a fault of the activity `id` and of the `decision` that followed, without its `defaults`."""
        where = {"step_id": id, "revision": revision, "at": at, "defaults": {}}
        return cls.model_validate({**dict(fault), **where, "decision": decision, "reconciled": reconciled})


class UndoRecord(BaseModel, frozen=True):
    """Whether the effect of a step was undone and, if it was not, why."""

    step_id: Kept[str]
    kind: Kept[str] = ""
    """The kind of tool that undoes the effect; empty if there is no such tool."""
    done: bool = False
    reason: str = ""
    """Why the effect is not undone."""


class Observation(BaseModel, frozen=True):
    """The state of a called system, read after a fault of a step that requires a new plan."""

    step_id: Kept[str]
    kind: Kept[str]
    args: Refers[dict[str, JsonValue]]
    value: JsonValue
    at: AwareDatetime
    stale: bool = False
    """Whether `value` is only the state that the fault contained, because no tool could read the current state."""
    unread: str = ""
    """Why the kind's `observe` did not read the state again; empty if it did, or if the kind has none."""


class Revision(BaseModel, frozen=True):
    """One accepted plan."""

    number: int
    because: str = ""
    refused: Kept[tuple[str, ...]] = ()
    """Ids of the steps whose faults led to this plan."""
    kept: Kept[tuple[str, ...]] = ()
    """Ids of the steps that were completed before this plan; only the newest, up to `MAX_KEPT`."""
    looked: Kept[tuple[str, ...]] = ()
    """The kinds of the tools that read the current state before this plan was made."""
    planner: Kept[str] = ""
    turn: int = 0
    """The number of the turn in which it was proposed."""
    at: AwareDatetime | None = None
    """When it was accepted."""


class WithheldCall(BaseModel, frozen=True):
    """A rejected call that was outside the contract of a task that had read untrusted content.

    Such content may have ordered the call.
    """

    step: Kept[str]
    kind: Kept[str]
    args: Refers[JsonValue]
    """The arguments as proposed, with references; if they are large, only the beginning of their JSON."""


class Rejection(BaseModel, frozen=True):
    """A proposal that was rejected; none of its steps was run."""

    turn: int
    reasons: tuple[str, ...]
    """The first few reasons for the rejection, each cut to a few hundred characters."""
    steps: Kept[tuple[str, ...]] = Field(default=(), exclude_if=not_)
    """For each of the `reasons` the id of the step that is wrong; empty text if it is the whole proposal."""
    withheld: tuple[WithheldCall, ...] = Field(default=(), exclude_if=not_)
    """The first few calls of the proposal that untrusted content may have ordered."""

    @property
    def mistakes(self) -> tuple[Mistake, ...]:
        """The `reasons`, each with the id of its step."""
        steps = self.steps or ("",) * len(self.reasons)
        return tuple(Mistake(text=text, step=step) for text, step in zip(self.reasons, steps, strict=True))


class Compaction(BaseModel, frozen=True):
    """A summary of the oldest turns of a conversation that was too long for the model."""

    turn: int
    turns: int
    """How many turns the summary replaces."""
    planner: Kept[str]
    tokens: int
    """Tokens of the conversation before the summary."""


class PlannerWait(BaseModel, frozen=True):
    """A wait of the task for its planner, which cannot answer now."""

    until: datetime
    code: Kept[str]
    """The code of the fault of the last request."""
    reason: str


class Pause(BaseModel, frozen=True):
    """A pause by an operator, as the server describes it; the workflow does not know of it."""

    activity: str | None
    """The id of the paused activity, which for a step is the step's id; None if the whole workflow is paused."""
    kind: str = ""
    """The kind of the activity; empty if the whole workflow is paused."""
    since: datetime | None
    """None if the server does not say."""
    by: str = ""
    """The identity of who paused it, or the id of the server's rule that did; empty if the server does not say."""
    reason: str = ""
    is_running: bool = False
    """Whether an attempt that began before the pause still runs; no other attempt follows it."""
    resume: str
    """The command that resumes it."""
    deadline: datetime | None = None
    """When the schedule-to-close timeout of the activity ends: after it, the activity fails when it is resumed."""
    extend: str = ""
    """The command that moves `deadline` away, to be run before `resume`; empty while `deadline` is not near."""


class Failover(PassedOver):
    """A planner that could not be used in one turn."""

    turn: int
