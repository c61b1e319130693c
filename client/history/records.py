"""The records that a task's history is read into: calls with their events, timers, resets, the end.

Made while the events of a history are read; read when the task is explained, reported, undone or reset.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import NamedTuple

from pydantic import BaseModel, JsonValue
from temporalio.exceptions import RetryState

from client.workflow_task import FailingTask
from workflows import ids
from workflows.account.journal import AnyEntry
from workflows.account.outcome import Outcome
from workflows.account.progress import Progress
from workflows.account.records import Pause, StepRecord
from workflows.account.task import UNREADABLE, Task
from workflows.faults.fault import Code, Fault, Quadrant
from workflows.people.requests import Choice, Given, Resolution
from workflows.planning.situation import Situation
from workflows.plans import own_activities
from workflows.plans.catalogue import Catalogue, ToolSpec
from workflows.plans.proposal import Proposed, StepReturn

PLANNING = (own_activities.PLAN.kind, own_activities.REPLAN.kind)
CONVERSING = (*PLANNING, own_activities.COMPACT.kind)
"""The activity types that ask the planner for a plan, or (COMPACT) for a shorter conversation."""
RESULTS: Mapping[str, type[BaseModel]] = {
    own_activities.CATALOGUE.kind: Catalogue,
    own_activities.PLAN.kind: Proposed,
    own_activities.REPLAN.kind: Proposed,
    own_activities.COMPACT.kind: Proposed,
}
"""By internal activity type, the model of its result; the activity of a tool returns a StepReturn."""
SPECS = {spec.kind: spec for spec in own_activities.SPECS}
INTERNAL_KINDS = frozenset({*CONVERSING, own_activities.CATALOGUE.kind, own_activities.INSPECT.kind})


class Event(NamedTuple):
    """An event of a workflow: the number of its run, from 1, and the event id. Events compare in the order of time."""

    run: int
    id: int


class CallEnd(StrEnum):
    COMPLETED = "completed"
    FAILED = "failed"
    """Also by a timeout."""
    CANCELLED = "cancelled"


@dataclass
class ActivityExecution:
    """One activity execution, with all its attempts; a local activity has one event, at which it ended."""

    # Set when the activity is scheduled
    id: str
    kind: str
    at: datetime
    scheduled: Event
    task: int = 0
    """The event id of the completed workflow task that scheduled the activity."""
    header: frozenset[str] = frozenset()
    """The names of the fields in its header."""
    allowed: int = 1
    """The maximum number of attempts; 0 means no limit. The policy of a local activity is in no event."""
    interval: float = 0.0
    """Seconds before the first retry, by the retry policy."""
    coefficient: float = 1.0
    maximum_interval: float = 0.0
    schedule_to_close: float = 0.0
    """Seconds; 0 for no timeout, also in the next two fields."""
    start_to_close: float = 0.0
    heartbeat: float = 0.0

    # Set when an attempt starts
    started: Event | None = None
    started_at: datetime | None = None
    attempt: int = 0
    """The number of the last attempt in the history; 0 if the history has no attempt yet."""

    # Set when the activity ends
    ended: Event | None = None
    ended_at: datetime | None = None
    closed: CallEnd | None = None
    """How the activity ended; None if it is open."""
    retry_state: RetryState | None = None
    """Why the server made no further attempt after a timeout."""
    is_local: bool = False

    @property
    def events(self) -> tuple[Event, ...]:
        return tuple(dict.fromkeys(event for event in (self.scheduled, self.started, self.ended) if event))


@dataclass(frozen=True)
class AttemptFailure:
    """Why an attempt of a call failed, as far as the history tells."""

    reason: str
    quadrant: Quadrant | None = None
    fault: Fault | None = None

    @classmethod
    def of(cls, fault: Fault) -> "AttemptFailure":
        return cls(fault.reason, fault.quadrant, fault)

    @property
    def code(self) -> Code | None:
        """The code of the fault; None if the fault cannot be read."""
        return self.fault.code if self.fault else None


@dataclass
class Call(ActivityExecution):
    """An activity execution of a task, with its decoded values."""

    args: JsonValue = None
    situation: Situation | None = None
    last: AttemptFailure | None = None
    """The failure of the attempt just before `attempt`; None if there is none."""
    earlier: tuple[Fault, ...] = ()
    """The faults of the attempts before `attempt`, as far as workers reported them."""
    held: float = 0.0
    """Seconds that an operator held the attempts back, as with `temporal activity pause`, if workers reported it."""
    result: JsonValue = None
    replayed: bool = False
    """Whether the recorded result of an earlier call with the same key was returned."""
    returned: StepReturn | None = None
    """What the activity of a tool returned; None if it failed, or is not of a tool."""
    proposed: Proposed | None = None
    failing: AttemptFailure | None = None
    """The failure of the last attempt, if the call failed."""

    @property
    def step(self) -> str:
        """The id of the step for which the call was made, also for an observation, a reconciliation or an undo."""
        return self.id.removeprefix(ids.UNDO).partition(":")[0]

    @property
    def owner(self) -> str:
        """The id of the call that was observed or reconciled; for any other call, the call's own id."""
        return ids.of_undo(self.step) if self.id.startswith(ids.UNDO) else self.step

    @property
    def outlived(self) -> bool:
        """Whether a thread of the call was still running when its attempt ended and may still apply the effect."""
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
        """Whether the call is an activity of Replan itself (planning, catalogue, inspection), not of a tool."""
        return self.kind in INTERNAL_KINDS

    @property
    def is_step(self) -> bool:
        return not (self.is_own or self.is_observation or self.is_reconcile or self.is_undo)


LONG_AGO = datetime.min.replace(tzinfo=UTC)


@dataclass
class Timer:
    started: Event
    seconds: float
    summary: str
    """Its name, without the number of its entry in the journal."""
    ended: Event | None = None
    fired: bool = False
    at: datetime = LONG_AGO
    number: int = 0
    """The number of its entry in the journal; 0 if it has none."""

    @property
    def events(self) -> tuple[Event, ...]:
        return (self.started, self.ended) if self.ended else (self.started,)

    @property
    def is_deadline(self) -> bool:
        """Whether the timer ends the task at its deadline."""
        return self.summary == ids.DEADLINE_TIMER

    def reconciles(self, call: Call) -> bool:
        """Whether the reconciliation of `call` waits on this timer; after it, no attempt can still be running."""
        return ids.is_reconcile_timer(self.summary, call.owner)

    def retries(self, call: Call) -> bool:
        """Whether `call` is scheduled again when the timer fires."""
        return ids.is_retry_timer(self.summary, call.id, call.kind)


@dataclass(frozen=True)
class AcceptedAnswer:
    """An answer of a person that the task accepted: the event, its time, and what was sent, if that can be read."""

    event: Event
    at: datetime
    choice: Choice
    given: Given | Resolution | None
    """A Resolution answers the requests of many tasks."""
    id: str = ""
    """The id of the Update, or of the Resolution."""


@dataclass(frozen=True)
class RunEnd:
    """How the last run was closed, with the Outcome if the task wrote an Outcome."""

    status: str
    """The type of the run's failure, such as `escalated`; else Temporal's status in lower case."""
    event: Event
    at: datetime
    outcome: Outcome | None = None
    reason: str = ""

    @property
    def code(self) -> str | None:
        """The code of the Outcome; None if the task wrote no Outcome."""
        return self.outcome.code if self.outcome else None


@dataclass(frozen=True)
class Pending:
    """The state of an open call as the server describes it; no event has it yet."""

    attempt: int
    last: AttemptFailure | None = None
    """The failure of the attempt before `attempt`; None if there is none."""
    running: bool = True
    """True while a worker runs the attempt; False while the attempt waits for its backoff or for a worker."""


@dataclass(frozen=True)
class Reset:
    """A reset of the task: its event in the new run, its time and its reason."""

    event: Event
    at: datetime
    reason: str


@dataclass(frozen=True)
class UnreadablePayload:
    """A payload that could not be read: its run and event, its place in the event (`what`), and the cause (`why`)."""

    run: int
    event: int
    what: str
    why: str


@dataclass
class History:
    """What one task did, read from the events of its runs in their order."""

    # Set by the first event of each run
    task_id: str
    runs: int = 1
    first_run: str = ""
    """The id of the task's first run."""
    task: Task | None = None
    effect_key: str | None = None
    """The effect key of the task; None if it has none, or if neither the task nor its state can be read here."""
    started_at: datetime | None = None
    run_ids: list[str] = field(default_factory=list)
    """The ids of the runs that this history was read from, the oldest first."""

    # Set by each event
    last: Event | None = None
    last_at: datetime = LONG_AGO
    unreadable: list[UnreadablePayload] = field(default_factory=list)
    related: set[str] = field(default_factory=set)
    """The ids of all runs that the events name: the runs before and after each reset and continue-as-new."""

    # Set by the events of activities, timers, messages and resets
    catalogue: Catalogue | None = None
    calls: list[Call] = field(default_factory=list)
    timers: list[Timer] = field(default_factory=list)
    cancels: list[Event] = field(default_factory=list)
    """The events of the requests to cancel the task."""
    undo_asked: list[Event] = field(default_factory=list)
    """The events of the Signals that ask to undo the effects when the task is cancelled."""
    answers: list[AcceptedAnswer] = field(default_factory=list)
    resets: list[Reset] = field(default_factory=list)
    earlier_effects: list[StepRecord] = field(default_factory=list)
    """Effects of runs before a reset, from the Signals with which `reset` reports these effects to the new run."""

    # Set by the events of workflow tasks
    due: datetime | None = None
    """The time when the open workflow task was scheduled; None if a worker has started it, or if none is open."""
    gaps: list[tuple[datetime, datetime]] = field(default_factory=list)
    """Periods in which a call or a workflow task was scheduled, but no worker had taken it."""
    waits_for_worker: Event | None = None
    """The event that scheduled the open workflow task; None if a worker has started it, or if none is open."""
    failing: FailingTask | None = None
    began: bool = False
    """Whether a worker has ever started a workflow task of the task."""
    decided: bool = False
    """Whether a worker has ever completed a workflow task of the task."""

    # Set by the last event
    end: RunEnd | None = None

    # Set after the last event, by what the server says
    rollback: str | None = None
    """Temporal's status, in lower case, of the rollback after the task's end; None without a rollback."""
    pending: dict[str, Pending] = field(default_factory=dict)
    paused: tuple[Pause, ...] = ()
    """What operators have paused, as the server describes it."""

    # Set after the last event, by a replay
    replayed: Outcome | None = None
    """The account of the task after the last event, from a replay; None if the task itself wrote its account, or if
    the history cannot be replayed here."""
    journal: list[AnyEntry] = field(default_factory=list)
    """The entries of all runs, if they were asked for (see `Reading`); empty if they cannot be replayed here."""
    is_untold: bool = False
    """Whether the account of the task is missing, because this version cannot replay the history or a codec is
    missing."""

    # Set when other runs and rollbacks are fetched
    earlier: list["History"] = field(default_factory=list)
    """The histories of the runs that resets replaced, one for each run, the oldest first."""
    rollbacks: list["History"] = field(default_factory=list)
    """The histories of the task's rollbacks (`undo`), each a workflow of its own; loaded only after a reset."""
    deleted: list[str] = field(default_factory=list)
    """The ids of the task's runs whose history is no longer on the server."""

    @property
    def key_prefix(self) -> str:
        """The prefix of the idempotency keys of the task's steps, like `Progress.key_prefix`.

        If the task cannot be read here, the prefix is the id of the first run, even if the task has an effect key.
        """
        return self.effect_key or self.first_run

    @property
    def outcome(self) -> Outcome | None:
        return self.end.outcome if self.end else None

    @property
    def account(self) -> Outcome:
        """The decisions, requests and counts of the task: at its end or, while the task runs, after the last event."""
        task = self.task or UNREADABLE
        bare = Progress(task=task, task_id=self.task_id, started_at=self.started_at or LONG_AGO)
        return self.replayed or self.outcome or bare.outcome(self.last_at)

    @property
    def planning(self) -> list[Call]:
        return [call for call in self.calls if call.is_planning]

    @property
    def newest_calls(self) -> list[Call]:
        return [call for call in self.calls if call.scheduled.run == self.runs]

    @property
    def is_paused(self) -> bool:
        return any(pause.activity is None for pause in self.paused)

    def pause_of(self, call: Call) -> Pause | None:
        """The pause of an open call; None if the call is not paused."""
        is_open = call.closed is None
        return next((pause for pause in self.paused if is_open and pause.activity == call.id), None)

    @property
    def compactions(self) -> list[Call]:
        return [call for call in self.calls if call.kind == own_activities.COMPACT.kind]

    def next_call(self, call: Call) -> Call | None:
        """The next execution of the same activity, as after a wait; None if there is none."""
        return next((other for other in self.calls if other.id == call.id and other.scheduled > call.scheduled), None)

    def of_step(self, id: str) -> list[Call]:
        """The calls of one step, or of one undo (`undo:STEP`), in order; a step that waited has several."""
        return [call for call in self.calls if call.id == id and not call.is_own]

    def reconciles(self, id: str) -> list[Call]:
        """The reads that try to find out whether the call `id` was applied, in order."""
        return [call for call in self.calls if call.is_reconcile and call.owner == id]

    def observations(self, id: str) -> list[Call]:
        """The observations for the step `id`, in order."""
        return [call for call in self.calls if call.is_observation and call.step == id]

    @property
    def specs(self) -> Mapping[str, ToolSpec]:
        """The specs of the task's catalogue, by kind; empty if the history does not have the catalogue."""
        return self.catalogue.specs if self.catalogue else {}

    def spec(self, kind: str) -> ToolSpec | None:
        """The ToolSpec of a kind, also of an internal one; None if the history does not have it."""
        return SPECS.get(kind) or self.specs.get(kind)
