"""The Outcome of a task, and the exception that ends it.

Made whenever a client asks how a task stands, and when the task ends.
"""

from collections.abc import Sequence
from datetime import datetime
from operator import not_
from typing import Any

from pydantic import BaseModel, Field, JsonValue, SerializerFunctionWrapHandler, model_serializer

from workflows.account.records import (
    Compaction,
    Failover,
    FaultRecord,
    Pause,
    PlannerWait,
    Rejection,
    Revision,
    StepStatus,
    UndoRecord,
)
from workflows.account.task import TaskStatus
from workflows.limits.budget import Limits, Spent
from workflows.marks import Kept, Refers
from workflows.people.requests import HumanAnswer, HumanRequest
from workflows.plans.catalogue import Effect
from workflows.plans.contract import AllowedEffect
from workflows.plans.proposal import Mistake, Question
from workflows.sparse import without_defaults


class OutcomeStep(BaseModel, frozen=True):
    """A step of a task, as an Outcome reports it.

    With `in_history`, it is written without default values: the history is then half as large.
    """

    # Set when the plan is accepted
    id: Kept[str]
    title: str = ""
    kind: Kept[str] = ""
    args: Refers[dict[str, JsonValue]] = Field(default_factory=dict)
    revision: int = 1
    needs: Kept[tuple[str, ...]] = ()

    # Set by each attempt, and when a fallback takes over
    status: StepStatus
    attempts: int = 1
    effect: Effect = Effect.READ
    is_fallback: bool = False
    silent: int = Field(default=0, exclude_if=not_)
    """How many attempts, except the last of an activity execution, ended without a report."""

    # Set when the plan is accepted, for content that the task may read
    is_tainted: bool = Field(default=False, exclude_if=not_)
    """Whether the result may contain untrusted content."""

    # Set when the step starts and ends
    replayed: bool = False
    """Whether an earlier attempt has applied the effect; then `result` is the recorded result of that attempt."""
    started: datetime | None = None
    ended: datetime | None = None
    result: JsonValue = None

    # Set when the Outcome is written
    result_omitted: bool = False
    result_bytes: int = 0
    """Bytes of the result, if the result was left out; else 0."""
    fault: FaultRecord | None = None
    in_history: bool = Field(default=False, exclude_if=not_)
    """Whether the Outcome leaves out the title, the planned kind, the arguments, the needs and the result, because the
    events of the same run have them; `client.history` puts them in."""

    @model_serializer(mode="wrap")
    def _write(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        written: dict[str, Any] = write(self)
        return without_defaults(self, written) if self.in_history else written


class Outcome(BaseModel, frozen=True):
    """How a task stands or ended: the document that `--json` prints."""

    # Set when the task begins
    task_id: str
    task: str
    by: str = Field(default="", exclude_if=not_)
    """Who started it, as that person or program claims; empty if nobody said so."""

    # Set when the task ends
    status: TaskStatus
    reason: str
    code: Kept[str | None]
    """Why the task ended, as a word for programs: a fault's code, a limit's name, `plan_refused`, ..."""
    result: JsonValue
    result_misfit: str = Field(default="", exclude_if=not_)
    """Why the result does not fit the task's `result_schema`; empty if it does, or if there is none."""
    question: str | None
    question_options: tuple[str, ...] = Field(default=(), exclude_if=not_)
    """The answers that the question suggests."""

    # Set by each turn and each plan
    planner: Kept[str]
    strategy: Kept[str]
    revisions: tuple[Revision, ...]
    replans: int
    steps: tuple[OutcomeStep, ...]

    # Set by each call, and when a person extends the limits
    faults: tuple[FaultRecord, ...]
    own_faults: tuple[FaultRecord, ...] = Field(default=(), exclude_if=not_)
    """The faults of Replan's own calls: requests to the planner, observations, and reads that reconcile."""
    counts: dict[str, dict[str, int]] | None = Field(default=None, exclude_if=lambda counts: counts is None)
    """What the task did, as `workflows.account.metrics.Counts`; None if its workflow could not tell."""
    limits: Limits | None = Field(default=None, exclude_if=not_)
    """The limits of the task, with what people added to them; None if its workflow could not tell."""

    # Set when a long task drops its oldest steps
    omitted: int = 0
    """How many started steps are missing in `steps`, because a long task drops its oldest steps."""

    # Set by a rollback
    undo: tuple[UndoRecord, ...] = ()

    # Set by each turn of the planner
    compactions: tuple[Compaction, ...] = ()
    failovers: tuple[Failover, ...] = ()
    rejections: tuple[Rejection, ...] = ()
    reasons: tuple[Mistake, ...] = Field(default=(), exclude_if=not_)
    """If the task ended because a proposal was rejected, all reasons for the rejection; else empty."""

    # Set while the task waits
    waiting: PlannerWait | None = Field(default=None, exclude_if=not_)
    """While a task waits for its planner: until when, and why."""
    paused: tuple[Pause, ...] = Field(default=(), exclude_if=not_)
    """What operators have paused, as the server says; the workflow leaves it empty."""

    # Set when a person is asked or answers
    requests: tuple[HumanRequest, ...] = ()
    """What the task has asked of people, the oldest first, with their answers."""
    extensions: tuple[HumanAnswer, ...] = Field(default=(), exclude_if=not_)
    """What people added to the limits of the task."""

    # Set when the task has read untrusted content
    is_tainted: bool = False
    """Whether the task has read untrusted content."""
    contract: tuple[AllowedEffect, ...] = Field(default=(), exclude_if=not_)
    """The effects that the task may have after untrusted content, with the steps that were planned with each."""

    # Set from the start of the task to its end
    spent: Spent
    started_at: datetime
    ended_at: datetime | None


class Ending(BaseModel, frozen=True):
    """How a task ends, and why."""

    status: TaskStatus
    reason: str = ""
    code: Kept[str | None] = None
    result: JsonValue = None
    result_misfit: str = Field(default="", exclude_if=not_)
    question: str | None = None
    question_options: tuple[str, ...] = Field(default=(), exclude_if=not_)
    reasons: tuple[Mistake, ...] = Field(default=(), exclude_if=not_)

    def with_answer(self, result: JsonValue, misfit: str) -> "Ending":
        """This ending with a result; `misfit` is why the result does not fit the task's `result_schema`, else empty."""
        more = f" The result does not fit the result schema: {misfit}" if misfit else ""
        return self.model_copy(
            update={"result": result, "result_misfit": misfit, "reason": f"{self.reason}{more}".strip()}
        )


REFUSED = "task_refused"
"""The code of a task that ended before any call: a worker cannot read it, or lacks what the task needs."""


def refusal(reason: str) -> Ending:
    """The ending of a task that fails before any call, with the code REFUSED."""
    return Ending(status=TaskStatus.FAILED, reason=reason, code=REFUSED)


def ending_of_unasked_question(question: Question) -> Ending:
    """The ending of a task that does not wait for people, and whose planner asks a question."""
    options = f" Options: {', '.join(question.options)}." if question.options else ""
    return Ending(
        status=TaskStatus.ESCALATED,
        reason=f"The planner asks: {question.text}{options}",
        code="question",
        question=question.text,
        question_options=question.options,
    )


class TaskEnded(Exception):
    """Raised anywhere in the loop of a task, to end the task with `ending`."""

    def __init__(self, status: TaskStatus, reason: str, code: str, reasons: Sequence[Mistake] = ()) -> None:
        """`code`: the reason as a word for programs. `reasons`: why a proposal was rejected, if that ends the task."""
        super().__init__(reason)
        self.ending = Ending(status=status, reason=reason, code=code, reasons=tuple(reasons))
