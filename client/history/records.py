"""The records that a task's history is read into: calls with their events, timers, resets, the end."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import NamedTuple

from pydantic import BaseModel, JsonValue
from temporalio.exceptions import RetryState

from client.workflow_task import FailingTask
from workflows import ids, routing
from workflows.catalogue import Catalogue, ToolSpec
from workflows.faults import Code, Fault, Quadrant
from workflows.outcome import Outcome
from workflows.plan import Proposed
from workflows.record import StepRecord
from workflows.situation import Situation
from workflows.task import Task

PLANNING = (routing.PLAN.kind, routing.REPLAN.kind)
CONVERSING = (*PLANNING, routing.COMPACT.kind)
"""Requests to the planner; the last one only shortens the conversation."""
RESULTS: Mapping[str, type[BaseModel]] = {
    routing.CATALOGUE.kind: Catalogue,
    routing.PLAN.kind: Proposed,
    routing.REPLAN.kind: Proposed,
    routing.COMPACT.kind: Proposed,
}
"""The models of what our own activities return; a tool's activity returns a StepReturn."""
SPECS = {spec.kind: spec for spec in routing.INTERNAL}
INTERNAL_KINDS = frozenset({*CONVERSING, routing.CATALOGUE.kind, routing.INSPECT.kind})


class Event(NamedTuple):
    """The number of the run of the task, from 1, and the id of an event in it."""

    run: int
    id: int


class CallEnd(StrEnum):
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True)
class AttemptFailure:
    """Why an attempt failed, as far as the history has it."""

    reason: str
    quadrant: Quadrant | None = None
    fault: Fault | None = None

    @classmethod
    def of(cls, fault: Fault) -> "AttemptFailure":
        return cls(fault.reason, fault.quadrant, fault)

    @property
    def code(self) -> Code | None:
        """What happened; None where it cannot be read."""
        return self.fault.code if self.fault else None


@dataclass
class Call:
    """One activity execution, with all its attempts."""

    id: str
    kind: str
    at: datetime
    scheduled: Event
    task: int = 0
    """The event of the workflow task that scheduled it."""
    args: JsonValue = None
    allowed: int = 1
    """The maximum of attempts; 0 means no limit."""
    situation: Situation | None = None
    started: Event | None = None
    started_at: datetime | None = None
    attempt: int = 0
    """The number of its last attempt, as far as the history has it."""
    last: AttemptFailure | None = None
    """What ended the attempt before the last one."""
    earlier: tuple[Fault, ...] = ()
    """The faults of the attempts before the last one, as far as workers reported them."""
    ended: Event | None = None
    ended_at: datetime | None = None
    closed: CallEnd | None = None
    result: JsonValue = None
    replayed: bool = False
    proposed: Proposed | None = None
    failing: AttemptFailure | None = None
    retry_state: RetryState | None = None

    @property
    def events(self) -> tuple[Event, ...]:
        return tuple(one for one in (self.scheduled, self.started, self.ended) if one)

    @property
    def step(self) -> str:
        """The step for which it was made."""
        return self.id.removeprefix(ids.UNDO).partition(":")[0]

    @property
    def owner(self) -> str:
        """The id of the call for which it was made: its own, unless it observed or reconciled."""
        return ids.of_undo(self.step) if self.id.startswith(ids.UNDO) else self.step

    @property
    def outlived(self) -> bool:
        """Whether a thread of it outlived its attempt, so that its effect may be applied at any time."""
        last = [self.failing.fault] if self.failing and self.failing.fault else []
        return any(fault.may_run_on for fault in (*self.earlier, *last))

    @property
    def is_observation(self) -> bool:
        return self.id.endswith(ids.OBSERVATION)

    @property
    def is_reconcile(self) -> bool:
        return self.id.endswith(ids.RECONCILIATION)

    @property
    def is_undo(self) -> bool:
        return self.id.startswith(ids.UNDO) and not self.is_reconcile

    @property
    def is_planning(self) -> bool:
        return self.kind in PLANNING

    @property
    def is_own(self) -> bool:
        """Whether it is an internal activity of the task, not of a step."""
        return self.kind in INTERNAL_KINDS

    @property
    def is_step(self) -> bool:
        return not (self.is_own or self.is_observation or self.is_reconcile or self.is_undo)


ONE_RUN = "one_run"
"""The status of a completed rollback that looked only at the last run of its task, as an older console does."""
LONG_AGO = datetime.min.replace(tzinfo=UTC)


@dataclass
class Timer:
    started: Event
    seconds: float
    summary: str
    ended: Event | None = None
    fired: bool = False

    @property
    def is_deadline(self) -> bool:
        return self.summary == ids.DEADLINE_TIMER

    def reconciles(self, call: Call) -> bool:
        """Whether it waits until no attempt of this call can still be running."""
        return ids.is_reconcile_timer(self.summary, call.owner)

    def retries(self, call: Call) -> bool:
        """Whether a call is scheduled again when it fires."""
        return ids.is_retry_timer(self.summary, call.id, call.kind)


@dataclass(frozen=True)
class End:
    """How the last run was closed: Temporal's own word, and the Outcome where one was written."""

    status: str
    event: Event
    at: datetime
    outcome: Outcome | None = None
    reason: str = ""


@dataclass(frozen=True)
class Pending:
    """The state of a call that has not ended, from the server; no event has it yet."""

    attempt: int
    last: AttemptFailure | None = None
    running: bool = True


@dataclass(frozen=True)
class Reset:
    """Where a person set the task back to, when, and why."""

    event: Event
    at: datetime
    reason: str


@dataclass(frozen=True)
class Unreadable:
    run: int
    event: int
    what: str
    why: str


@dataclass
class History:
    """The history of one task, in the order of its events."""

    task_id: str
    runs: int = 1
    first_run: str = ""
    """The id of the task's first run, with which the idempotency keys of its calls begin."""
    task: Task | None = None
    started_at: datetime | None = None
    last: Event | None = None
    last_at: datetime = LONG_AGO
    catalogue: Catalogue | None = None
    calls: list[Call] = field(default_factory=list)
    timers: list[Timer] = field(default_factory=list)
    cancels: list[Event] = field(default_factory=list)
    undo_asked: list[Event] = field(default_factory=list)
    resets: list[Reset] = field(default_factory=list)
    due: datetime | None = None
    gaps: list[tuple[datetime, datetime]] = field(default_factory=list)
    """Periods in which a call or a workflow task was scheduled, but no worker had taken it."""
    waits_for_worker: Event | None = None
    failing: FailingTask | None = None
    began: bool = False
    end: End | None = None
    rollback: str | None = None
    """The status of the rollback that began after the task's end: the server's word or ONE_RUN; None without one."""
    pending: dict[str, Pending] = field(default_factory=dict)
    unreadable: list[Unreadable] = field(default_factory=list)
    earlier_effects: list[StepRecord] = field(default_factory=list)
    """Effects of earlier runs, read from the signals by which `reset` told the new run of them."""
    run_ids: list[str] = field(default_factory=list)
    """The runs that it was read from, the oldest first."""
    related: set[str] = field(default_factory=set)
    """The ids of all runs that its events name: runs that were reset, and runs that another run continued as."""
    earlier: list["History"] = field(default_factory=list)
    """The histories of the runs that resets left behind, one for each run, the oldest first."""
    rollbacks: list["History"] = field(default_factory=list)
    """The histories of the task's rollbacks, before resets and after its ends; read only where `earlier` has runs."""
    deleted: list[str] = field(default_factory=list)
    """Runs of the task whose history is not on the server any more."""

    @property
    def outcome(self) -> Outcome | None:
        return self.end.outcome if self.end else None

    @property
    def planning(self) -> list[Call]:
        return [call for call in self.calls if call.is_planning]

    @property
    def newest_calls(self) -> list[Call]:
        return [call for call in self.calls if call.scheduled.run == self.runs]

    @property
    def compactions(self) -> list[Call]:
        return [call for call in self.calls if call.kind == routing.COMPACT.kind]

    def of_step(self, id: str) -> list[Call]:
        """The schedulings of one step, or of the call that undoes one, in order."""
        return [call for call in self.calls if call.id == id and not call.is_own]

    def reconciles(self, id: str) -> list[Call]:
        """The reads that looked for the effect of a call, in order."""
        return [call for call in self.calls if call.is_reconcile and call.owner == id]

    def observations(self, id: str) -> list[Call]:
        return [call for call in self.calls if call.is_observation and call.step == id]

    def spec(self, kind: str) -> ToolSpec | None:
        """What a kind promised this task, where that can be read."""
        return SPECS.get(kind) or (self.catalogue.specs.get(kind) if self.catalogue else None)
