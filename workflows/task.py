"""A task: the input of its workflow, and its states."""

from enum import StrEnum
from typing import Literal

from pydantic import BaseModel, Field, JsonValue

from workflows.budget import Limits
from workflows.plan import Step
from workflows.record import FaultRecord, StepRecord


class TaskStatus(StrEnum):
    """The state of a task; the last five are final."""

    RUNNING = "running"
    WAITING = "waiting"
    COMPLETED = "completed"
    ESCALATED = "escalated"
    OVER_BUDGET = "over_budget"
    CANCELLED = "cancelled"
    FAILED = "failed"


class Remains(BaseModel, frozen=True):
    """What the planner of an ended task was not told any more; the task that continues the conversation tells it."""

    records: tuple[StepRecord, ...] = ()
    """The steps of the ended task's last plan, if the planner gave no answer after it."""
    faults: tuple[FaultRecord, ...] = ()
    """The faults of these steps."""
    is_tainted: bool = True


class Task(BaseModel, frozen=True):
    """What a user asks for: the input of AgentWorkflow."""

    text: str = Field(min_length=1, max_length=16_000)
    plan: tuple[Step, ...] | None = None
    """A hand-written plan, which is the first proposal; None to ask the planner for it."""
    plan_only: bool = False
    """Whether the task ends when `plan` is completed; then a planner is asked only for a replan, if one is allowed."""
    documents: str | None = None
    """A folder of documents, below the worker's root."""
    strategy: Literal["plan", "react"] = "plan"
    limits: Limits = Limits()
    on_escalation: Literal["end", "undo"] = "end"
    planner: str | None = None
    allow: tuple[str, ...] = ()
    """Kinds with an effect that may be planned even after untrusted content was read."""
    result_schema: dict[str, JsonValue] | None = None
    continues: str | None = None
    """The first run of the task whose conversation this one continues."""
    remains: Remains | None = None
    """The end of the continued task, as far as its planner was not told of it; None without such a task."""

    @property
    def named(self) -> frozenset[str]:
        """The kinds that the user named, which may be planned at any time."""
        return frozenset(self.allow) | {step.kind for step in self.plan or ()}

    def is_tainted(self, is_clean: bool) -> bool:
        """Whether the task begins with untrusted content; `is_clean`: the conversation that it continues has none."""
        rest = self.remains is not None and self.remains.is_tainted
        return self.continues is not None and (rest or not is_clean)

    @property
    def wanted(self) -> dict[str, JsonValue]:
        """The input of the activity `catalogue`: what a worker must know to say whether it can run the task."""
        told = {"planner", "allow", "result_schema", "continues", "strategy", "limits"}
        asked = self.model_dump(mode="json", include=told, exclude_defaults=True)
        limits = asked.pop("limits", {})
        return {"documents": self.documents, **asked, **({"usd": limits["usd"]} if limits.get("usd") else {})}


CONTINUES_MEMO = "continues"
"""The key of the memo with the first run of the task whose conversation this task continues."""
