"""How a task ended, in the words of the JSON document, and what leaves the loop with it."""

from datetime import datetime

from pydantic import BaseModel, ConfigDict, JsonValue

from workflows.budget import Spent
from workflows.catalogue import Effect
from workflows.record import Compaction, Failover, FaultRecord, Rejection, Revision, StepStatus, UndoRecord
from workflows.task import TaskStatus


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
    rejections: tuple[Rejection, ...] = ()
    """Proposals that could not be used."""
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


class TaskEnded(Exception):
    """Leaves the loop from within a turn, with how the task ends."""

    def __init__(self, status: TaskStatus, reason: str, code: str) -> None:
        """End with `status`; `code` is the reason for programs."""
        super().__init__(reason)
        self.ending = Ending(status=status, reason=reason, code=code)
