"""All state of a task; a long task keeps only its last steps, so that the state stays small."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from operator import not_
from typing import Any

from pydantic import AwareDatetime, BaseModel, Field, JsonValue, PrivateAttr
from temporalio import workflow

from workflows.account import metrics
from workflows.account.metrics import Counts, Sample
from workflows.account.outcome import Ending, Outcome, OutcomeStep
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
from workflows.calls.turns import Turns
from workflows.json_values import canonical
from workflows.limits.budget import Budget
from workflows.people.requests import HumanAnswer, HumanRequest, Word
from workflows.plans.catalogue import Effect, ToolSpec
from workflows.plans.contract import Contract
from workflows.plans.guards import ProgressGuard, RepeatGuard

MAX_OUTCOME = 512 * 1024
"""The most bytes of all results together in an Outcome; above this, the largest results are left out."""
MAX_RESULT_IN_HISTORY = 32 * 1024
"""Bytes of a result that certainly stays in the history; a payload of 64 kB goes into external storage."""
MAX_RECORDS = 300
"""How many steps a task keeps; of older ones only the ids and the number of effects (see `Folded`)."""
MAX_FAULTS, MAX_REVISIONS = 200, 100
MAX_REPLANS = 10**12
"""More than any task can make; a search attribute cannot have a number beyond 64 bits."""
MAX_PROGRESS = 512 * 1024
"""Bytes of Progress as JSON. Above this, old steps are dropped even if there are few steps; the server accepts 2 MB."""
MAX_CONTINUED = 1024 * 1024
"""Bytes of Progress with which a task continues as new; the server accepts 2 MB."""


class Folded(BaseModel):
    """What a long task keeps of the steps, faults and plans that it dropped: the ids of the steps, and counts."""

    ids: list[str] = Field(default_factory=list)
    """Ids of the dropped steps that had started, because no id may be used twice."""
    effects: int = 0
    faults: int = 0
    revisions: int = 0


class Progress(BaseModel):
    """All state of a task: the answer of the query `progress`, and the input of continue-as-new."""

    task: Task
    task_id: str
    started_at: AwareDatetime
    ended_at: AwareDatetime | None = None
    status: TaskStatus = TaskStatus.RUNNING
    ending: Ending | None = None
    planner: str = ""
    searchable: bool = False
    page: str = Field(default="", exclude_if=not_)
    """Where people open the page, as a worker reported it; empty if no worker did."""
    store: str | None = None
    turn: int = 0
    revisions: list[Revision] = Field(default_factory=list)
    replans: int = Field(default=0, ge=0, le=MAX_REPLANS)
    fruitless: int = 0
    """How many consecutive replans, up to the newest, completed no step."""
    records: list[StepRecord] = Field(default_factory=list)
    faults: list[FaultRecord] = Field(default_factory=list)
    own_faults: list[FaultRecord] = Field(default_factory=list, exclude_if=not_)
    """See `Outcome.own_faults`."""
    counts: Counts = Field(default_factory=dict, exclude_if=not_)
    observations: list[Observation] = Field(default_factory=list)
    down: list[str] = Field(default_factory=list)
    """Kinds of tools that the task may not use any more, because their retries are used up."""
    guard: RepeatGuard = Field(default_factory=RepeatGuard)
    loops: ProgressGuard = Field(default_factory=ProgressGuard)
    contract: Contract = Field(default_factory=Contract)
    budget: Budget = Field(default_factory=Budget)
    replanning: bool = False
    """Whether the planner's next proposal is a replan, because a step of the current plan was rejected."""
    folded: Folded = Field(default_factory=Folded)
    undo_when_cancelled: bool = False
    undo: list[UndoRecord] = Field(default_factory=list)
    was_reset: bool = False
    """Whether an earlier run of the task was made by a reset."""
    origin: str | None = None
    """In an UndoWorkflow: the first run id of the task that it undoes. In every other workflow: None."""
    branch: int = 0
    """The branch of the planner's conversation that this run uses; see `Proposed.branch`."""
    told: int = 0
    """The number of the newest plan of whose outcome the planner was told; 0 if there is no such plan."""
    is_opened: bool = False
    """Whether the planner's conversation about this task has begun."""
    context: int = 0
    """Tokens of the planner's conversation; 0 if they are not known."""
    compactions: list[Compaction] = Field(default_factory=list)
    failovers: list[Failover] = Field(default_factory=list)
    rejections: list[Rejection] = Field(default_factory=list)
    is_draft: bool = Field(default=False, exclude_if=not_)
    """Whether the task only asks for a first proposal, for which a person waits; none of its steps is run."""
    requests: list[HumanRequest] = Field(default_factory=list, exclude_if=not_)
    extensions: list[HumanAnswer] = Field(default_factory=list, exclude_if=not_)
    updates: list[str] = Field(default_factory=list, exclude_if=not_)
    """Digests of the ids of the newest accepted Updates, over all runs: no Update is applied twice."""
    words: list[Word] = Field(default_factory=list, exclude_if=not_)
    """What people said to the planner."""
    words_told: int = Field(default=0, exclude_if=not_)
    """How many of the `words` a planner with a conversation was told."""
    confirmed: dict[str, str] = Field(default_factory=dict, exclude_if=not_)
    """By the id of a step, the digest (`UndoCall.digest`) of the call that undoes it, which a person has confirmed."""
    undo_when_aborted: bool = Field(default=False, exclude_if=not_)
    waiting: PlannerWait | None = Field(default=None, exclude_if=not_)
    revisions_taken: int = Field(default=0, exclude_if=not_)
    """How many of the task's hand-written `revisions` were used or passed over."""
    tools: dict[str, ToolSpec] = Field(default_factory=dict, exclude_if=not_)
    """Only where the state is read, see `with_tools`."""
    has_untold_effects: bool = False
    """Whether the planner must still be told of effects that earlier runs of the task applied."""
    _turns: Turns = PrivateAttr(default_factory=Turns)
    _in_history: set[str] = PrivateAttr(default_factory=set)
    """Ids of the steps whose plan and whose result are in the events of this run."""

    @classmethod
    def of(cls, task: Task) -> "Progress":
        """The state of a task that begins in the current workflow."""
        info = workflow.info()
        budget = Budget(limits=task.limits)
        return cls(task=task, task_id=info.workflow_id, started_at=info.workflow_start_time, budget=budget)

    @property
    def turns(self) -> Turns:
        """The calls of this workflow whose turn at their service has come."""
        return self._turns

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

    def add_plan(self, revision: Revision, records: list[StepRecord]) -> None:
        """Replace the current plan by a new plan; steps of the old plan that have not started are skipped."""
        for record in self.with_status(StepStatus.PENDING):
            record.status = StepStatus.SKIPPED
        again = {record.step.id for record in records}
        done = {record.step.id: record for record in self._untold_effects if record.status is StepStatus.COMPLETED}
        new = [_with_outcome(record, done[record.step.id]) if record.step.id in done else record for record in records]
        self.records = [record for record in self.records if record.step.id not in again] + new
        self.revisions.append(revision)

    def add_earlier(self, records: Sequence[StepRecord]) -> None:
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
            place = 1 + max((record.place for record in self.records), default=0)
            earlier = earlier.model_copy(update={"place": place})
            taken = _with_outcome(own, earlier) if own else earlier.model_copy(update={"revision": 0})
            records = [record for record in self.records if record is not own] + [taken]
            self.records = sorted(records, key=lambda record: record.revision > 0)
            self.has_untold_effects = True

    def count(self, samples: Iterable[Sample]) -> None:
        """Add samples to the account of the task and, except in a replay, to the metrics of its worker."""
        metrics.record(self.counts, samples)

    def note_in_history(self, record: StepRecord) -> None:
        """Record that the Outcome may leave out a step's plan and result, if the events of this run have both."""
        # The plan of an undo is in no event. Clients cannot read a result that is in external storage.
        is_short = len(canonical(record.result).encode()) <= MAX_RESULT_IN_HISTORY
        if record.undoes is None and not record.edited and is_short:
            self._in_history.add(record.step.id)

    def end(self, ending: Ending, now: datetime) -> None:
        """Set the ending of the task, skip the pending and waiting steps, and close the open requests."""
        for record in self.with_status(StepStatus.PENDING, StepStatus.WAITING):
            record.status = StepStatus.SKIPPED
        for request in self.open_requests:
            request.close("ended")
        self.ending, self.status, self.ended_at = ending, ending.status, now

    def slim(self, specs: Mapping[str, ToolSpec] | None = None) -> "Progress":
        """A copy without long values; short ones that the tools in `specs` need to undo, reconcile or observe stay."""
        omitted, known = self._too_large(), specs or {}
        records = [
            record.slim(omitted.get(record.step.id, 0), known[record.kind].paths if record.kind in known else ())
            for record in self.records
        ]
        return self.model_copy(update={"records": records})

    def with_tools(self, specs: Mapping[str, ToolSpec]) -> "Progress":
        """A copy with those tools of the run that name other tools, such as an undo, and with their undos, by kind."""
        named = [specs[record.kind] for record in self.records if record.kind in specs]
        tools = {spec.kind: spec for spec in named if spec.undo or spec.observe or spec.reconcile or spec.fallback}
        undos = {spec.undo.kind for spec in tools.values() if spec.undo}
        return self.model_copy(update={"tools": tools | {kind: specs[kind] for kind in undos if kind in specs}})

    def outcome(self, now: datetime) -> Outcome:
        """The Outcome of the task; while it has not ended, its duration is that until `now`."""
        ending, last = self.ending or Ending(status=self.status), {fault.step_id: fault for fault in self.faults}
        seconds = ((self.ended_at or now) - self.started_at).total_seconds()
        own = {
            "task": self.task.text,
            "by": self.task.by,
            "strategy": self.task.strategy,
            "steps": tuple(self._outcome_step(record, last.get(record.step.id)) for record in self.slim().records),
            "counts": self.counts or None,
            "limits": self.budget.limits,
            "omitted": len(self.folded.ids),
            "is_tainted": self.contract.is_tainted,
            "contract": self.contract.effects if self.contract.is_tainted else (),
            "spent": self.budget.spent.model_copy(update={"seconds": seconds}),
        }
        return Outcome.model_validate({**_shared_fields(self, Outcome), **dict(ending), **own})

    def _outcome_step(self, record: StepRecord, fault: FaultRecord | None) -> OutcomeStep:
        own: dict[str, Any] = {
            "id": record.step.id,
            "is_fallback": record.is_fallback,
            "result_omitted": record.left_out > 0,
            "result_bytes": record.left_out,
            "fault": fault,
        }
        if record.step.id in self._in_history and not record.left_out:
            kind = record.kind if record.is_fallback else ""
            own |= {"in_history": True, "kind": kind, "args": {}, "result": None}
        else:
            needs = tuple(sorted(record.step.dependencies))
            own |= {"title": record.label, "args": record.shown_args, "needs": needs}
        return OutcomeStep.model_validate({**_shared_fields(record, OutcomeStep), **own})

    def _too_large(self) -> dict[str, int]:
        """By step id, the bytes of each large result that is left out, so that the rest fits into MAX_OUTCOME."""
        sizes = sorted((len(canonical(record.result).encode()), record.step.id) for record in self.records)
        total, omitted = sum(size for size, _ in sizes), dict[str, int]()
        while total > MAX_OUTCOME:
            size, id = sizes.pop()
            total -= size
            omitted[id] = size
        return omitted


def _shared_fields(source: BaseModel, model: type[BaseModel]) -> dict[str, Any]:
    return {name: value for name, value in source if name in model.model_fields}


def _with_outcome(planned: StepRecord, earlier: StepRecord) -> StepRecord:
    return earlier.model_copy(update={"step": planned.step, "revision": planned.revision})


def fold(progress: Progress) -> None:
    """Drop the oldest steps, faults and plans of a long task; the steps of the current plan are kept."""
    folded, faults, revisions = progress.folded, len(progress.faults), len(progress.revisions)
    progress.faults = progress.faults[-MAX_FAULTS:]
    progress.revisions = progress.revisions[-MAX_REVISIONS:]
    folded.faults += faults - len(progress.faults)
    folded.revisions += revisions - len(progress.revisions)
    _fold_oldest(progress, len(progress.records) - MAX_RECORDS)
    # Half of the steps at a time, because to measure the size takes most of the time.
    while _foldable(progress) and len(progress.model_dump_json()) > MAX_PROGRESS:
        _fold_oldest(progress, max(1, len(_foldable(progress)) // 2))


def fits_continue_as_new(progress: Progress) -> bool:
    """Whether a task is small enough to continue as new; the current plan alone can be too large."""
    return len(progress.model_dump_json().encode()) <= MAX_CONTINUED


def _fold_oldest(progress: Progress, count: int) -> None:
    gone = _foldable(progress)[: max(0, count)]
    ids = {record.step.id for record in gone}
    progress.records = [record for record in progress.records if record.step.id not in ids]
    # A step that never started leaves its id free.
    progress.folded.ids += [record.step.id for record in gone if record.started is not None]
    progress.folded.effects += sum(_is_finished_effect(record) for record in gone)


def _foldable(progress: Progress) -> list[StepRecord]:
    old = [record for record in progress.records if record.revision < progress.revision]
    if progress.has_untold_effects:  # otherwise the planner could plan them again
        return [record for record in old if record.revision]
    return old


def _is_finished_effect(record: StepRecord) -> bool:
    is_known_to_stand = record.status is StepStatus.COMPLETED
    may_stand = not record.revision and record.status is StepStatus.CANCELLED  # of an earlier run
    return (is_known_to_stand or may_stand) and record.effect is not Effect.READ
