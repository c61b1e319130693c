"""A task: what was asked, how far it is, how it ended."""

from datetime import datetime
from enum import StrEnum
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from workflows.budget import Budget, Limits, Spent
from workflows.catalogue import Effect
from workflows.faults import Fault
from workflows.grants import Grants
from workflows.guard import RepeatGuard
from workflows.loops import LoopGuard
from workflows.plan import PassedOver, Step, canonical

MAX_OUTCOME = 512 * 1024
"""Bytes of step results that an Outcome carries; beyond it the largest are left out."""
MAX_SHOWN_ARGS = 8 * 1024
"""Bytes of a step's resolved arguments that an Outcome shows; longer ones are shown as they were planned."""


class TaskStatus(StrEnum):
    """How a task stands; the last five are final."""

    RUNNING = "running"
    WAITING = "waiting"
    COMPLETED = "completed"
    ESCALATED = "escalated"
    OVER_BUDGET = "over_budget"
    CANCELLED = "cancelled"
    FAILED = "failed"


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


class Task(BaseModel):
    """What a user asked: the workflow's input."""

    model_config = ConfigDict(frozen=True)

    text: str = Field(min_length=1, max_length=16_000)
    plan: tuple[Step, ...] | None = None
    """A hand-written plan: the first proposal, instead of the planner's."""
    plan_only: bool = False
    """Whether the task ends when that plan is done or, where no replan is allowed, refused; no planner is asked."""
    documents: str | None = None
    """The folder of documents, below the worker's root."""
    strategy: Literal["plan", "react"] = "plan"
    limits: Limits = Limits()
    on_escalation: Literal["end", "undo"] = "end"
    """What becomes of the effects of a task that nobody can help."""
    planner: str | None = None
    """Who is to plan it, as `--planner` names it; None for the worker's own planner."""
    allow: tuple[str, ...] = ()
    """Kinds that may change the world even if no plan named them before untrusted text was read."""
    result_schema: dict[str, JsonValue] | None = None
    """The JSON schema of the final answer; None for a text."""
    continues: str | None = None
    """The first run of the task whose conversation this one carries on."""
    remains: "Remains | None" = None
    """What that conversation was not told of its end."""

    @property
    def named(self) -> frozenset[str]:
        """The kinds that whoever gave the task named, and so may change the world at any time."""
        return frozenset(self.allow) | {step.kind for step in self.plan or ()}

    def is_tainted(self, is_clean: bool) -> bool:
        """Whether it begins with text that anybody may have written.

        `is_clean` is whether a worker found none in the conversation that it carries on.
        """
        rest = self.remains is not None and self.remains.is_tainted
        return self.continues is not None and (rest or not is_clean)

    @property
    def wanted(self) -> dict[str, JsonValue]:
        """What a worker is asked to say of itself for this task: whether it can take it."""
        told = {"planner", "allow", "result_schema", "continues", "strategy", "limits"}
        asked = self.model_dump(mode="json", include=told, exclude_defaults=True)
        limits = asked.pop("limits", {})
        return {"documents": self.documents, **asked, **({"usd": limits["usd"]} if limits.get("usd") else {})}


class StepRecord(BaseModel):
    """A step and what became of it."""

    step: Step
    revision: int
    effect: Effect
    status: StepStatus = StepStatus.PENDING
    attempts: int = 0
    """Over all schedulings and kinds; those that a worker's shutdown ended do not count."""
    used: int = 0
    """Of these, the attempts of the kind in use."""
    waits: int = 0
    waited: float = 0.0
    """Seconds waited for the kind to appear on a worker."""
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

    @property
    def call_id(self) -> str:
        """The id of its activity, which its key ends with: a fallback is another call than the step's own."""
        return f"{self.step.id}:{self.kind}" if self.is_fallback else self.step.id

    @property
    def is_fallback(self) -> bool:
        """Whether another kind than the step's own did it."""
        return self.kind != self.step.kind

    @property
    def shown_args(self) -> dict[str, JsonValue]:
        """The arguments with references resolved, as far as that is known and short enough to show."""
        return self.step.args if self.args is None or self._has_long_args else self.args

    def slim(self, left_out: int) -> "StepRecord":
        """The same without long arguments and, where it has so many bytes to leave out, without the result."""
        if not left_out and not self._has_long_args:
            return self
        args = None if self._has_long_args else self.args
        result = {"result": None, "left_out": left_out} if left_out else {}
        return self.model_copy(update={"args": args, **result})

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


class Remains(BaseModel):
    """What the planner of a task was not told before the task ended, for the one that carries its conversation on."""

    model_config = ConfigDict(frozen=True)

    records: tuple[StepRecord, ...] = ()
    """The steps of its last plan, where no answer came after them."""
    faults: tuple[FaultRecord, ...] = ()
    """Of these steps."""
    is_tainted: bool = True
    """Whether it read text that anybody may have written."""


Task.model_rebuild()


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


class Situation(BaseModel):
    """What a planner is told: the input of the activities `plan` and `replan`."""

    model_config = ConfigDict(frozen=True)

    text: str = ""
    """What was asked; a planner that keeps the conversation is told it in the first turn alone."""
    plan: tuple[Step, ...] | None = None
    """A hand-written plan that is to be the proposal."""
    turn: int
    """The number of this request for a proposal within the task, from 1."""
    now: datetime
    documents: str | None = None
    records: tuple[StepRecord, ...] = ()
    """Every step of the task so far, with its result."""
    faults: tuple[FaultRecord, ...] = ()
    """All faults that led to a replan, the newest last."""
    observations: tuple[Observation, ...] = ()
    """What was seen after the newest of them."""
    rejected: tuple[str, ...] = ()
    """Why the proposal before this one was refused."""
    down: tuple[str, ...] = ()
    """Kinds that may not be used any more."""
    withheld: tuple[str, ...] = ()
    """Kinds that change the world and may not be planned since text was read that anybody may have written."""
    is_tainted: bool = False
    """Whether such text was read in the task, or in the conversation that it carries on."""
    calls_left: int = 0
    omitted: int = 0
    """Finished steps of a long task that are not among `records` any more."""
    strategy: Literal["plan", "react"] = "plan"
    result_schema: dict[str, JsonValue] | None = None
    continues: str | None = None
    converses: bool = False
    """Whether this is only what is new since the planner's last turn, because it keeps the conversation."""
    branch: int = 0
    """The branch of the conversation."""
    is_last: bool = False
    """Whether the budget is used up, so that the answer must be given from what is there."""
    max_output: int | None = None
    """Tokens that the reply may have; None for as many as usual."""
    planner: str | None = None
    """Who is asked, as `--planner` names it; None for the worker's own planner."""
    compact: int = 0
    """How many of the oldest turns are to be summarised, where nothing else is asked."""


class OutcomeStep(BaseModel):
    """A step as people and programs read it."""

    model_config = ConfigDict(frozen=True)

    id: str
    title: str
    kind: str
    args: dict[str, JsonValue]
    revision: int
    needs: tuple[str, ...]
    status: StepStatus
    attempts: int
    effect: Effect
    is_fallback: bool
    replayed: bool = False
    """Whether the effect had happened in an attempt whose answer was lost, and this is its result."""
    started: datetime | None
    ended: datetime | None
    result: JsonValue
    result_omitted: bool = False
    """Whether the result was left out because the whole would be too large."""
    result_bytes: int = 0
    """Its size where it was left out."""
    fault: FaultRecord | None


class Outcome(BaseModel):
    """How a task stands or ended, in the words of the JSON document."""

    model_config = ConfigDict(frozen=True)

    task_id: str
    task: str
    status: TaskStatus
    reason: str
    code: str | None
    """Why it ended, for programs: a fault's code, a limit's name, `plan_refused`, ..."""
    result: JsonValue
    question: str | None
    planner: str
    strategy: str
    revisions: tuple[Revision, ...]
    replans: int
    steps: tuple[OutcomeStep, ...]
    faults: tuple[FaultRecord, ...]
    omitted: int = 0
    """Finished steps of a long task that are not among `steps` any more."""
    undo: tuple[UndoRecord, ...] = ()
    """What became of each effect, where they were to be taken back."""
    compactions: tuple[Compaction, ...] = ()
    failovers: tuple[Failover, ...] = ()
    is_tainted: bool = False
    """Whether it read text that anybody may have written."""
    spent: Spent
    started_at: datetime
    ended_at: datetime | None


class Ending(BaseModel):
    """Why and how the loop ends."""

    model_config = ConfigDict(frozen=True)

    status: TaskStatus
    reason: str = ""
    code: str | None = None
    result: JsonValue = None
    question: str | None = None


class Ends(Exception):
    """Leaves the loop from within a turn, with how the task ends."""

    def __init__(self, status: TaskStatus, reason: str, code: str) -> None:
        """End with `status`; `code` is the reason for programs."""
        super().__init__(reason)
        self.ending = Ending(status=status, reason=reason, code=code)


class Folded(BaseModel):
    """What is left of the steps, faults and plans that a long task no longer keeps in full."""

    ids: list[str] = Field(default_factory=list)
    """Of steps that started: an id is never used twice."""
    effects: int = 0
    """Finished steps that may have changed the world."""
    faults: int = 0
    revisions: int = 0


class Progress(BaseModel):
    """All state of a task: the answer of the query `progress`, and what a continued run starts from."""

    task: Task
    task_id: str
    started_at: datetime
    ended_at: datetime | None = None
    status: TaskStatus = TaskStatus.RUNNING
    ending: Ending | None = None
    planner: str = ""
    searchable: bool = False
    store: str | None = None
    """The store of the worker that opened the task."""
    turn: int = 0
    revisions: list[Revision] = Field(default_factory=list)
    replans: int = 0
    fruitless: int = 0
    """Replans in a row that finished no new step."""
    records: list[StepRecord] = Field(default_factory=list)
    faults: list[FaultRecord] = Field(default_factory=list)
    observations: list[Observation] = Field(default_factory=list)
    down: list[str] = Field(default_factory=list)
    guard: RepeatGuard = Field(default_factory=RepeatGuard)
    loops: LoopGuard = Field(default_factory=LoopGuard)
    grants: Grants = Field(default_factory=Grants)
    budget: Budget = Field(default_factory=Budget)
    replanning: bool = False
    """Whether the plan in force met a fault that a new plan has to answer."""
    folded: Folded = Field(default_factory=Folded)
    undo_when_cancelled: bool = False
    undo: list[UndoRecord] = Field(default_factory=list)
    was_reset: bool = False
    """Whether an earlier run of the task was made by a reset."""
    origin: str | None = None
    """The first run of the task, for whoever works on it from outside; the keys of its calls begin with it."""
    branch: int = 0
    """The branch of the conversation."""
    told: int = 0
    """The plan whose outcome the planner was told last."""
    is_opened: bool = False
    """Whether the planner was told the task."""
    context: int = 0
    """Tokens of the conversation so far."""
    compactions: list[Compaction] = Field(default_factory=list)
    failovers: list[Failover] = Field(default_factory=list)
    """The newest."""

    @property
    def not_undone(self) -> str:
        """What is left although it was to be undone, and why; empty where nothing is."""
        return "; ".join(f"{one.step_id} ({one.reason.rstrip('.')})" for one in self.undo if not one.done)

    @property
    def revision(self) -> int:
        """The number of the plan in force; 0 before the first."""
        return self.folded.revisions + len(self.revisions)

    def with_status(self, *statuses: StepStatus) -> list[StepRecord]:
        """The steps that stand so, in the order of the plan."""
        return [record for record in self.records if record.status in statuses]

    @property
    def results(self) -> dict[str, JsonValue]:
        """The results of the finished steps by id, as far as they are kept."""
        done = self.with_status(StepStatus.COMPLETED)
        return {record.step.id: record.result for record in done if not record.left_out}

    @property
    def effects(self) -> int:
        """How many finished steps may have changed the world."""
        kept = sum(record.effect is not Effect.READ for record in self.with_status(StepStatus.COMPLETED))
        return self.folded.effects + kept

    @property
    def taken(self) -> set[str]:
        """Ids of steps that ever started; those of dropped steps that never did are free again."""
        return {*self.folded.ids, *(record.step.id for record in self.records if record.started is not None)}

    def add_plan(self, revision: Revision, records: list[StepRecord]) -> None:
        """Put a new plan in force: what the old one did not start is skipped, finished steps stay."""
        for record in self.with_status(StepStatus.PENDING):
            record.status = StepStatus.SKIPPED
        again = {record.step.id for record in records}
        self.records = [record for record in self.records if record.step.id not in again] + records
        self.revisions.append(revision)

    def end(self, ending: Ending, now: datetime) -> None:
        """Close the account; nothing runs any more."""
        for record in self.with_status(StepStatus.PENDING, StepStatus.WAITING):
            record.status = StepStatus.SKIPPED
        self.ending, self.status, self.ended_at = ending, ending.status, now

    def slim(self) -> "Progress":
        """The same without long arguments and without the largest results, so that the rest fits a message."""
        omitted = self._too_large()
        records = [record.slim(omitted.get(record.step.id, 0)) for record in self.records]
        return self.model_copy(update={"records": records})

    def outcome(self, now: datetime) -> Outcome:
        """The task in the words of the JSON document, as of `now` while it runs."""
        ending = self.ending or Ending(status=self.status)
        spent = self.budget.spent.model_copy(
            update={"seconds": ((self.ended_at or now) - self.started_at).total_seconds()}
        )
        return Outcome(
            task_id=self.task_id,
            task=self.task.text,
            status=self.status,
            reason=ending.reason,
            code=ending.code,
            result=ending.result,
            question=ending.question,
            planner=self.planner,
            strategy=self.task.strategy,
            revisions=tuple(self.revisions),
            replans=self.replans,
            steps=self._steps(),
            faults=tuple(self.faults),
            omitted=len(self.folded.ids),
            undo=tuple(self.undo),
            compactions=tuple(self.compactions),
            failovers=tuple(self.failovers),
            is_tainted=self.grants.is_tainted,
            spent=spent,
            started_at=self.started_at,
            ended_at=self.ended_at,
        )

    def _steps(self) -> tuple[OutcomeStep, ...]:
        last = {fault.step_id: fault for fault in self.faults}
        return tuple(
            OutcomeStep(
                id=record.step.id,
                title=record.step.label,
                kind=record.kind,
                args=record.shown_args,
                revision=record.revision,
                needs=tuple(sorted(record.step.dependencies)),
                status=record.status,
                attempts=record.attempts,
                effect=record.effect,
                is_fallback=record.is_fallback,
                replayed=record.replayed,
                started=record.started,
                ended=record.ended,
                result=record.result,
                result_omitted=record.left_out > 0,
                result_bytes=record.left_out,
                fault=last.get(record.step.id),
            )
            for record in self.slim().records
        )

    def _too_large(self) -> dict[str, int]:
        """The size in bytes of the largest results, as many as must go so that the rest fits, by the step's id."""
        sizes = sorted((len(canonical(record.result).encode()), record.step.id) for record in self.records)
        total, omitted = sum(size for size, _ in sizes), dict[str, int]()
        while total > MAX_OUTCOME:
            size, id = sizes.pop()
            total -= size
            omitted[id] = size
        return omitted
