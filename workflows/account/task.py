"""A task: the input of its workflow, and its states.

Made when a user starts a task; read by its workflow at the start of each run, and whenever the planner is asked.
"""

from enum import StrEnum
from operator import not_
from typing import Literal

from pydantic import BaseModel, Field, JsonValue, ValidationInfo, field_validator

from workflows.account.records import FaultRecord, StepRecord
from workflows.faults import retries
from workflows.limits.budget import MAX_TASK_TEXT, Limits
from workflows.marks import Kept
from workflows.people.requests import MAX_NAME
from workflows.people.statement import Statement
from workflows.plans.contract import AllowedEffect
from workflows.plans.demonstration import MAX_DEMONSTRATION_BYTES, MAX_DEMONSTRATIONS, Demonstration
from workflows.plans.proposal import Answer, NewSteps, Proposal, SparseStep, Step

MAX_INPUT = 64_000
"""The most characters of an untrusted input."""
EFFECT_KEY = r"^[A-Za-z0-9._:/-]*[A-Za-z0-9._:-]$"
"""What an effect key may look like. It does not end with a slash: in idempotency keys, a slash and the call follow."""
MAX_EFFECT_KEY = 200
"""The most characters of an effect key."""
MAX_ALLOWED = 100
"""The most effects of a contract that the user writes."""
REPLANS = {"plan": 2, "react": 20}
"""By strategy, how many replans a task may make if its limits have no number of replans."""
LONGEST_READABLE = 252_000_000_000.0
"""Seconds. A task with a longer `answer_within` is refused: no version of Replan could ask a person for so long."""
USUAL_WAIT = retries.ANSWER_WITHIN.total_seconds()


class TaskStatus(StrEnum):
    """The state of a task. RUNNING, WAITING and PAUSED can still change; all other states are final."""

    RUNNING = "running"
    WAITING = "waiting"
    PAUSED = "paused"
    """An operator has paused the workflow. Only the client reports it: the workflow does not know."""
    COMPLETED = "completed"
    ESCALATED = "escalated"
    OVER_BUDGET = "over_budget"
    CANCELLED = "cancelled"
    FAILED = "failed"


MIN_REPLY, MAX_REPLY = 1_000, 128_000
"""The least and the most tokens of a reply that a task may ask for; no model writes more."""
Effort = Literal["low", "medium", "high"]
"""The efforts that every model with reasoning efforts has."""


class Remains(BaseModel, frozen=True):
    """The steps and faults of an ended task that its planner has not seen.

    A new task that continues the conversation tells its planner of them.
    """

    records: tuple[StepRecord, ...] = ()
    """Steps whose outcome the planner has not seen: those of the newest plan, and those that were undone."""
    faults: tuple[FaultRecord, ...] = ()
    is_tainted: bool = True


class Task(BaseModel, frozen=True):
    """What a user asks for: the input of AgentWorkflow."""

    # Read before the planner is asked
    text: str = Field(min_length=1, max_length=MAX_TASK_TEXT)
    plan: tuple[SparseStep, ...] | None = None
    """A plan that the user wrote. It takes the place of the planner's first proposal; None to ask the planner."""
    revisions: tuple[Proposal, ...] = Field(default=(), exclude_if=not_)
    """What the user wrote for later turns. After a rejection the next entry that is no Answer is taken, and after a
    completed plan the next Answer; entries between are passed over. Without such an entry the planner is asked. An
    Answer may refer to results, as arguments do; if a reference has no target in the end, the planner is asked."""
    plan_only: bool = False
    """Whether the task ends as soon as `plan` is completed. The planner is then asked only for a replan, if `limits`
    allow a replan."""
    documents: str | None = None
    """The folder of documents that the task's tools may search: a path below the worker's root folder of documents."""
    strategy: Literal["plan", "react"] = "plan"

    # Read while a plan is executed
    limits: Limits = Field(default=Limits(), validate_default=True)
    """Without `replans`, their number follows from `strategy` and `revisions`. Where replans are given, or revisions
    written, only that number limits them, unless `fruitless` is given, too."""
    on_escalation: Literal["wait", "end", "undo"] = "end"
    """What happens when the task needs a person: it waits for an answer, ends, or ends and is undone."""
    approve: Literal["declared", "effects", "all"] = Field(default="declared", exclude_if=lambda on: on == "declared")
    """Which calls a person must approve besides those whose tools declare it: none, those that have an effect, all."""
    answer_within: float = Field(
        default=USUAL_WAIT, gt=0, le=LONGEST_READABLE, exclude_if=lambda seconds: seconds == USUAL_WAIT
    )
    """Seconds that a request to a person is open, at most `retries.LONGEST_TIMER`."""
    by: str = Field(default="", max_length=MAX_NAME, exclude_if=not_)
    """Who started it, as that person or program claims; people who are asked about it read this."""
    started: Statement | None = Field(default=None, exclude_if=lambda stated: stated is None)
    """What a door has signed about who started it; None if no door knows who that is."""

    # Read when the planner's model is asked
    planner: Kept[str | None] = None
    effort: Effort | None = Field(default=None, exclude_if=not_)
    """How much the planner's model reasons; None for the worker's setting, else the model's usual effort."""
    reply_tokens: int | None = Field(default=None, ge=MIN_REPLY, le=MAX_REPLY, exclude_if=not_)
    """The most tokens of a reply of the planner's model, reasoning included; None for `Catalogue.longest_reply` or, if
    that is 0, `MAX_OUTPUT` (`limits.spending`)."""

    # Read when a proposal is checked
    contract: tuple[AllowedEffect, ...] = Field(default=(), max_length=MAX_ALLOWED, exclude_if=not_)
    """Effects that the task may have even after it has read untrusted content, besides those of its plans before. A
    call that is planned before uses up such an effect, too, if the effect allows the call."""

    # Read when the planner is told of the task
    untrusted_input: str = Field(default="", max_length=MAX_INPUT, exclude_if=not_)
    """Untrusted content that the task is about, such as a mail; the planner is shown it from the start."""
    calls: Literal["native", "text"] | None = Field(default=None, exclude_if=not_)
    """How models make their calls, the planner's and that of steps that reason: by the API, or as text, for a server
    without tool calls; None for what the worker knows of the server."""
    demonstrations: tuple[Demonstration, ...] = Field(default=(), max_length=MAX_DEMONSTRATIONS, exclude_if=not_)
    """Examples for the planner's model, with `strategy` `react`; together at most `MAX_DEMONSTRATION_BYTES`."""
    result_schema: dict[str, JsonValue] | None = None

    # Read in the first turn
    continues: Kept[str | None] = None
    """The first run id of an earlier task, if this task continues its conversation with the planner; else None."""
    remains: Remains | None = None
    """The steps and faults of the continued task that its planner has not seen; None if no task is continued."""

    # Read before each call
    effect_key: Kept[str | None] = Field(default=None, pattern=EFFECT_KEY, max_length=MAX_EFFECT_KEY, exclude_if=not_)
    """The beginning of the idempotency keys of the task's steps, in place of the id of its first run. Steps with the
    same id, of all tasks with the same effect key, are then one call: the ledger, or the service, returns its first
    result, also when Temporal has deleted the first task. No codec encrypts the effect key."""

    @field_validator("limits")
    @classmethod
    def _fill_in_replans(cls, limits: Limits, info: ValidationInfo) -> Limits:
        if not {"strategy", "revisions"} <= info.data.keys():  # one of them cannot be read
            return limits
        named = limits.model_fields_set
        written = sum(not isinstance(revision, Answer) for revision in info.data["revisions"])
        is_only_limit = bool(written) or "replans" in named
        usual: dict[str, int | None] = {"replans": max(REPLANS[info.data["strategy"]], written)}
        usual["fruitless"] = None if is_only_limit else limits.fruitless
        return limits.model_copy(update={name: limit for name, limit in usual.items() if name not in named})

    @field_validator("demonstrations")
    @classmethod
    def _bound(cls, demonstrations: tuple[Demonstration, ...]) -> tuple[Demonstration, ...]:
        size = sum(len(demonstration.model_dump_json().encode()) for demonstration in demonstrations)
        if size > MAX_DEMONSTRATION_BYTES:
            raise ValueError(f"the demonstrations have {size} bytes, more than {MAX_DEMONSTRATION_BYTES}")
        return demonstrations

    @property
    def starter(self) -> str | None:
        """Who started it, as a door has signed; None if no door knew."""
        return self.started.person if self.started else None

    @property
    def later_plans(self) -> list[tuple[Step, ...]]:
        """For each of the `revisions` the steps of its plan; empty if it is no plan."""
        return [revision.steps if isinstance(revision, NewSteps) else () for revision in self.revisions]

    @property
    def is_call(self) -> bool:
        """Whether the task is the call of one tool by a person: nobody planned it, and it is not re-planned."""
        return self.plan_only and self.plan is not None and len(self.plan) == 1 and not self.limits.replans

    def is_tainted(self, is_clean: bool) -> bool:
        """Whether the task begins with untrusted content: in its input, or in the conversation that it continues.

        `is_clean`: the worker knows the conversation, and the conversation has no untrusted content.
        """
        rest = self.remains is not None and self.remains.is_tainted
        return bool(self.untrusted_input) or (self.continues is not None and (rest or not is_clean))

    @property
    def requirements(self) -> dict[str, JsonValue]:
        """The input of the activity `catalogue`: what a worker must know to say whether it can run the task."""
        fields = {"planner", "contract", "result_schema", "continues", "strategy", "limits", "effort", "calls"}
        requirements = self.model_dump(mode="json", include=fields, exclude_defaults=True)
        limits = requirements.pop("limits", {})
        if self.untrusted_input:
            requirements["untrusted_input"] = True
        if self.demonstrations:
            kinds = {move.kind for demonstration in self.demonstrations for move in demonstration.moves}
            requirements["demonstrated"] = [*sorted(kinds)]
        return {"documents": self.documents, **requirements, **({"usd": limits["usd"]} if limits.get("usd") else {})}


UNREADABLE = Task(text="(cannot be read)")
"""Stands for a task that cannot be read."""
CONTINUES_MEMO = "continues"
"""The key of a workflow memo, which holds the first run id of the task whose conversation this task continues."""
