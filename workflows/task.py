"""A task: what was asked, and how it can stand."""

from enum import StrEnum
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from workflows.budget import Limits
from workflows.plan import Step
from workflows.record import FaultRecord, StepRecord


class TaskStatus(StrEnum):
    """How a task stands; the last five are final."""

    RUNNING = "running"
    WAITING = "waiting"
    COMPLETED = "completed"
    ESCALATED = "escalated"
    OVER_BUDGET = "over_budget"
    CANCELLED = "cancelled"
    FAILED = "failed"


class Remains(BaseModel):
    """What the planner of a task was not told before the task ended, for the one that carries its conversation on."""

    model_config = ConfigDict(frozen=True)

    records: tuple[StepRecord, ...] = ()
    """The steps of its last plan, where no answer came after them."""
    faults: tuple[FaultRecord, ...] = ()
    """Of these steps."""
    is_tainted: bool = True
    """Whether it read text that anybody may have written."""


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
    remains: Remains | None = None
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


CONTINUES_MEMO = "continues"
"""The memo of a task that carries a conversation on: the first run of the task whose conversation that is."""
