"""The state of a task: what its workflow decides by. Only the entries of the journal change it.

Made when a task begins; read at each decision, from the first plan to the end of the task.
"""

from collections.abc import Iterable
from datetime import datetime
from operator import not_

from pydantic import AwareDatetime, BaseModel, Field, JsonValue, PrivateAttr
from temporalio import workflow

from workflows.account.metrics import Counts
from workflows.account.outcome import Ending
from workflows.account.records import (
    Compaction,
    Failover,
    FaultRecord,
    Observation,
    PlannerWait,
    Rejection,
    Revision,
    StepRecord,
    StepStatus,
    UndoRecord,
)
from workflows.account.task import Task, TaskStatus
from workflows.calls.admission import Admissions
from workflows.json_values import canonical
from workflows.limits.budget import Spent, TaskBudget
from workflows.marks import Kept
from workflows.people.requests import HumanAnswer, HumanRequest, Word
from workflows.people.statement import Statement
from workflows.plans.catalogue import Effect
from workflows.plans.contract import Contract
from workflows.plans.repeated_calls import ProgressGuard, RepeatGuard

MAX_RESULT_IN_HISTORY = 32 * 1024
"""Bytes of a result that certainly stays in the history; a payload of 64 kB goes into external storage."""
MAX_REPLANS = 10**12
"""More than any task can make; a search attribute cannot have a number beyond 64 bits."""
MAX_UPDATES = 100
"""How many accepted Updates a task remembers over its runs; a client that sends an Update again does so soon."""


class Folded(BaseModel):
    """What a long task keeps of the steps, faults and plans that it dropped: the ids of the steps, and counts."""

    ids: list[str] = Field(default_factory=list)
    """Ids of the dropped steps that had started, because no id may be used twice."""
    effects: int = 0
    faults: int = 0
    revisions: int = 0


class EntryLists(BaseModel):
    """What single entries of the journal say, as lists. A snapshot leaves the lists out: its entries have it."""

    revisions: list[Revision] = Field(default_factory=list, exclude=True)
    faults: list[FaultRecord] = Field(default_factory=list, exclude=True)
    own_faults: list[FaultRecord] = Field(default_factory=list, exclude=True)
    """See `Outcome.own_faults`."""
    compactions: list[Compaction] = Field(default_factory=list, exclude=True)
    failovers: list[Failover] = Field(default_factory=list, exclude=True)
    rejections: list[Rejection] = Field(default_factory=list, exclude=True)
    extensions: list[HumanAnswer] = Field(default_factory=list, exclude=True)
    undo: list[UndoRecord] = Field(default_factory=list, exclude=True)


class JournalState(EntryLists):
    """What a task decides by."""

    # Set when the task begins
    task: Task
    task_id: str
    started_at: AwareDatetime
    origin: Kept[str | None] = None
    """In an UndoWorkflow: the first run id of the task that it undoes. In every other workflow: None."""
    is_draft: bool = Field(default=False, exclude_if=not_)
    """Whether the task only asks for a first proposal, for which a person waits; none of its steps is run."""

    # Set when a worker takes the task up, in each run
    planner: Kept[str] = ""
    searchable: bool = False
    page: str = Field(default="", exclude_if=not_)
    """Where people open the page, as a worker reported it; empty if no worker did."""
    store: str | None = None

    # Set by each turn of the planner
    turn: int = 0
    revisions_taken: int = Field(default=0, exclude_if=not_)
    """How many of the task's hand-written `revisions` were used or passed over."""
    is_opened: bool = False
    """Whether the planner's conversation about this task has begun."""
    branch: int = 0
    """The branch of the planner's conversation that this run uses; see `Proposed.branch`."""
    told: int = 0
    """The number of the newest plan of whose outcome the planner was told; 0 if there is no such plan."""
    context: int = 0
    """Tokens of the planner's conversation; 0 if they are not known."""
    words_told: int = Field(default=0, exclude_if=not_)
    """How many of the `words` a planner with a conversation was told."""
    has_untold_effects: bool = False
    """Whether the planner must still be told of effects that earlier runs of the task applied."""

    # Set when a plan is accepted
    records: list[StepRecord] = Field(default_factory=list)
    contract: Contract = Field(default_factory=Contract)

    # Set when no step of the plan runs any more
    replanning: bool = False
    """Whether the planner's next proposal is a replan, because a step of the current plan was rejected."""
    replans: int = Field(default=0, ge=0, le=MAX_REPLANS)
    fruitless: int = 0
    """How many consecutive replans, up to the newest, completed no step."""
    observations: list[Observation] = Field(default_factory=list)

    # Set by each call
    budget: TaskBudget = Field(default_factory=TaskBudget)
    counts: Counts = Field(default_factory=dict, exclude_if=not_)
    waiting: PlannerWait | None = Field(default=None, exclude_if=not_)
    down: Kept[list[str]] = Field(default_factory=list)
    """Kinds of tools that the task may not use any more, because their retries are used up."""
    guard: RepeatGuard = Field(default_factory=RepeatGuard)
    loops: ProgressGuard = Field(default_factory=ProgressGuard)

    # Set when a person is asked or answers
    requests: list[HumanRequest] = Field(default_factory=list, exclude_if=not_)
    updates: list[str] = Field(default_factory=list, exclude_if=not_)
    """Digests of the ids of the newest accepted Updates, over all runs: no Update is applied twice."""
    words: list[Word] = Field(default_factory=list, exclude_if=not_)
    """What people said to the planner."""
    confirmed: dict[str, str] = Field(default_factory=dict, exclude_if=not_)
    """By the id of a step, the digest (`UndoCall.digest`) of the call that undoes it, which a person has confirmed."""
    vouched: tuple[Statement, ...] = Field(default=(), exclude_if=not_)
    """What a door has signed about that person."""
    undo_when_cancelled: bool = False
    undo_when_aborted: bool = Field(default=False, exclude_if=not_)

    # Set between two runs
    folded: Kept[Folded] = Field(default_factory=Folded)
    was_reset: bool = False
    """Whether an earlier run of the task was made by a reset."""

    # Set when the task ends
    ended_at: AwareDatetime | None = None
    ending: Ending | None = None

    # Set in each run anew
    _admissions: Admissions = PrivateAttr(default_factory=Admissions)
    _in_history: set[str] = PrivateAttr(default_factory=set)
    """Ids of the steps whose plan and whose result are in the events of this run."""

    @property
    def admissions(self) -> Admissions:
        """The calls of this workflow that their services admitted."""
        return self._admissions

    @property
    def status(self) -> TaskStatus:
        if self.ending is not None:
            return self.ending.status
        return TaskStatus.WAITING if self.open_requests else TaskStatus.RUNNING

    @property
    def first_run(self) -> str:
        """The id of the first run of the task, also in an UndoWorkflow. Only code of a workflow can read it."""
        return self.origin or workflow.info().first_execution_run_id

    @property
    def key_prefix(self) -> str:
        """The beginning of the idempotency keys of the task's steps: its effect key, else the id of its first run."""
        return self.task.effect_key or self.first_run

    @property
    def place_in_queue(self) -> float:
        """When the task began, in seconds since 1970, to three decimals: calls of older tasks have their turn first."""
        return round(self.started_at.timestamp(), 3)

    @property
    def open_requests(self) -> list[HumanRequest]:
        return [request for request in self.requests if request.is_open]

    def spent_until(self, now: datetime) -> Spent:
        """What the task has spent, with the seconds from its start to its end, or to `now` if it has not ended."""
        seconds = ((self.ended_at or now) - self.started_at).total_seconds()
        return self.budget.spent.model_copy(update={"seconds": seconds})

    @property
    def not_undone(self) -> str:
        """The effects that could not be undone, and why; empty if all were undone."""
        return "; ".join(f"{record.step_id} ({record.reason.rstrip('.')})" for record in self.undo if not record.done)

    @property
    def revision(self) -> int:
        """The number of the plan in force; 0 before the first plan."""
        return self.folded.revisions + len(self.revisions)

    @property
    def rejecting_faults(self) -> list[FaultRecord]:
        """The faults of the plan in force that require a new plan."""
        return [fault for fault in self.faults if fault.decision == "replan" and fault.revision == self.revision]

    def find_record(self, step: str) -> StepRecord | None:
        """The newest record of a step; None if it has none."""
        return next((record for record in reversed(self.records) if record.step.id == step), None) if step else None

    def record_of(self, step: str) -> StepRecord:
        """The newest record of a step. Raises LookupError if it has none."""
        if (record := self.find_record(step)) is None:
            raise LookupError(f"the task has no step {step!r}")
        return record

    def request(self, id: str) -> HumanRequest:
        return next(request for request in self.requests if request.id == id)

    def with_status(self, *statuses: StepStatus) -> list[StepRecord]:
        return [record for record in self.records if record.status in statuses]

    @property
    def results(self) -> dict[str, JsonValue]:
        """The results of the completed steps, by step id; a result that was too large to keep is missing."""
        done = self.with_status(StepStatus.COMPLETED)
        return {record.step.id: record.result for record in done if not record.left_out}

    @property
    def effects(self) -> int:
        """How many effects the task has applied."""
        kept = sum(record.effect is not Effect.READ for record in self.with_status(StepStatus.COMPLETED))
        return self.folded.effects + kept

    @property
    def taken(self) -> set[str]:
        """The ids of all steps that have started; a new step must have another id."""
        # A proposal that was requested before effects of earlier runs were added may have their ids: it is the one
        # that planned them.
        free = {record.step.id for record in self._untold_effects}
        ids = {*self.folded.ids, *(record.step.id for record in self.records if record.started is not None)}
        return ids - free

    @property
    def _untold_effects(self) -> list[StepRecord]:
        stand = [record for record in self.records if not record.revision and record.status is not StepStatus.UNDONE]
        return stand if self.has_untold_effects else []

    def add_plan(self, records: Iterable[StepRecord]) -> None:
        """Replace the current plan by a new plan; steps of the old plan that have not started are skipped."""
        for record in self.with_status(StepStatus.PENDING):
            record.status = StepStatus.SKIPPED
        new = list(records)
        again = {record.step.id for record in new}
        self.records = [record for record in self.records if record.step.id not in again] + new

    def with_earlier_outcomes(self, records: Iterable[StepRecord]) -> tuple[StepRecord, ...]:
        """Planned steps; one that repeats an effect of an earlier run of the task has its outcome."""
        done = {record.step.id: record for record in self._untold_effects if record.status is StepStatus.COMPLETED}
        return tuple(_with_outcome(new, done[new.step.id]) if new.step.id in done else new for new in records)

    def add_earlier(self, records: Iterable[StepRecord]) -> None:
        """Add the effects of earlier runs of the task, after a reset that kept or undid them.

        A step of the current plan with the same id that has not started takes over the earlier outcome, unless that is
        unknown. Any other effect gets the revision 0: the planner is told of it, and no new step may have its id.
        """
        for earlier in records:
            own = next((record for record in self.records if record.step.id == earlier.step.id), None)
            if own is not None and own.revision and own.started is not None:
                # This run called the step itself: only that the effect was undone is new.
                if earlier.status is StepStatus.UNDONE and own.status is StepStatus.COMPLETED:
                    own.status = StepStatus.UNDONE
                continue
            # CANCELLED stands for an unknown outcome, which the call of the step finds out.
            if own is not None and own.revision and earlier.status is StepStatus.CANCELLED:
                continue
            earlier = earlier.model_copy(update={"place": self.next_place})
            taken = _with_outcome(own, earlier) if own else earlier.model_copy(update={"revision": 0})
            records = [record for record in self.records if record is not own] + [taken]
            self.records = sorted(records, key=lambda record: record.revision > 0)
            self.has_untold_effects = True

    @property
    def next_place(self) -> int:
        """The place of the step that ends next: an order, because times may be equal, and differ on replay."""
        return 1 + max((record.place for record in self.records), default=0)

    def note_in_history(self, record: StepRecord) -> None:
        """Record that the Outcome may leave out a step's plan and result, if the events of this run have both."""
        # The plan of an undo is in no event. Clients cannot read a result that is in external storage.
        is_short = len(canonical(record.result).encode()) <= MAX_RESULT_IN_HISTORY
        if record.undoes is None and not record.edited and is_short:
            self._in_history.add(record.step.id)


def _with_outcome(planned: StepRecord, earlier: StepRecord) -> StepRecord:
    return earlier.model_copy(update={"step": planned.step, "revision": planned.revision})
