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
    """What the planner was not told before a task ended, for the task that continues the conversation."""

    records: tuple[StepRecord, ...] = ()
    """The steps of its last plan, if no answer followed."""
    faults: tuple[FaultRecord, ...] = ()
    """The faults of these steps."""
    is_tainted: bool = True


class Task(BaseModel, frozen=True):
    """The input of the workflow."""

    text: str = Field(min_length=1, max_length=16_000)
    plan: tuple[Step, ...] | None = None
    plan_only: bool = False
    """Whether the task ends when `plan` is completed; then a planner is asked only for a replan, if one is allowed."""
    documents: str | None = None
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
    """What the planner was not told about the end of the task whose conversation is continued."""

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
"""The memo with the first run of the task whose conversation a task continues."""
