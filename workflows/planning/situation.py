"""The input of a request to the planner: what the planner is told about the task in one turn.

Made just before the planner is asked, and read by the planner's activity.
"""

from collections.abc import Sequence
from datetime import datetime
from operator import not_
from typing import Literal

from pydantic import BaseModel, Field, JsonValue
from temporalio import workflow

from workflows.account.progress import Progress
from workflows.account.records import FaultRecord, Observation, StepRecord
from workflows.json_values import canonical
from workflows.marks import Kept
from workflows.people.requests import Word
from workflows.planning import trust
from workflows.plans.catalogue import Catalogue
from workflows.plans.demonstration import Demonstration
from workflows.plans.proposal import Mistake, NewSteps, Step

MAX_SHOWN = 8_000
"""How many characters of one result a model is shown; the rest is cut."""

SHOWN_AT_LAST = (MAX_SHOWN, 4_000, 2_000, 1_000, 500, 200, 100)
"""The choices for `Situation.max_shown`: the first with which the request fits into the budget is taken."""
AROUND_RESULT = 200
"""Estimated bytes of the text that the prompt puts around one result."""


class Situation(BaseModel, frozen=True):
    """The input of the activities `plan`, `replan` and `compact`."""

    # Set when the planner is told of the task: in the first turn, or without a conversation in each
    text: str = ""
    """The text of the task. If the planner keeps its conversation, the text is sent only in the first turn."""
    untrusted_input: str = Field(default="", exclude_if=not_)
    """A text that the user did not write and that the task is about; sent with the text of the task."""

    # Set in a turn for which the user wrote a plan
    plan: tuple[Step, ...] | None = None
    """A plan that the user wrote, which is taken as the next proposal; None to ask the planner."""
    later_plans: tuple[tuple[Step, ...], ...] = Field(default=(), exclude_if=not_)
    """Plans that the user wrote for later turns. They are sent with the first plan, and only checked."""

    # Set in each turn
    turn: int
    """The number of this request within the task, from 1."""
    catalogue: str = Field(default="", exclude_if=not_)
    """The digest of the task's catalogue; empty in a request that is sent before the task has one."""
    now: datetime
    documents: str | None = None

    # Set from what happened since the turn before
    records: tuple[StepRecord, ...] = ()
    faults: tuple[FaultRecord, ...] = ()
    """The faults that led to replans, in the order in which they happened."""
    observations: tuple[Observation, ...] = ()
    """The states that were read, for the next plan, after steps of the newest plan were rejected."""
    words: tuple[Word, ...] = Field(default=(), exclude_if=not_)
    """What people said to the planner."""

    # Set in each turn: what a proposal may contain
    may_ask: bool = Field(default=False, exclude_if=not_)
    """Whether a person answers a question of the planner; otherwise a question ends the task."""
    rejected: tuple[Mistake, ...] = ()
    down: Kept[tuple[str, ...]] = ()
    withheld: Kept[tuple[str, ...]] = ()
    """Kinds of tools that may not be planned, because the task has read untrusted content."""
    contract: tuple[str, ...] = Field(default=(), exclude_if=not_)
    """The effects that plans may still have after untrusted content was read, one phrase for each."""
    is_tainted: bool = False
    """Whether the task, or the conversation that it continues, has read untrusted content."""
    calls_left: int = 0
    omitted: int = 0
    """How many steps that started are missing in `records`, because a long task drops its oldest steps."""
    strategy: Literal["plan", "react"] = "plan"
    calls: Literal["native", "text"] | None = Field(default=None, exclude_if=not_)
    """How the planner's model makes its calls; None for what the worker knows of the model."""

    # Set when the planner is told of the task
    demonstrations: tuple[Demonstration, ...] = Field(default=(), exclude_if=not_)
    """Examples for the planner's model; sent with the text of the task."""
    result_schema: dict[str, JsonValue] | None = None
    continues: Kept[str | None] = None

    # Set if the planner keeps its conversation
    converses: bool = False
    """Whether the planner keeps its conversation, so that it is told only what is new since its previous turn."""
    branch: int = 0

    # Set when the budget has reserved the request, which may be the last
    is_last: bool = False
    """Whether this is the final request: the budget is used up, and the planner must answer from what is known."""
    max_output: int | None = None
    """The most tokens that a model's reply may have; None for the default limit."""
    effort: Kept[str | None] = Field(default=None, exclude_if=not_)
    """How much the planner's model reasons; None for its usual effort."""
    max_lost_replies: int | None = None
    """How many replies of a model may be lost in this turn before no further request is made; None for no limit."""
    max_shown: int | None = None
    """In the request for the final answer, the most characters shown of each result; None for MAX_SHOWN."""

    # Set in each turn, and in a request to summarise
    planner: Kept[str | None] = None
    compact: int = 0
    """How many of the oldest turns the planner must summarise; 0 if it must make a proposal."""

    @property
    def earlier(self) -> tuple[StepRecord, ...]:
        """The effects of earlier runs of the task, which a reset kept or undid."""
        return tuple(record for record in self.records if not record.revision)

    @property
    def planned(self) -> tuple[StepRecord, ...]:
        """The steps that were planned by this task, or by the task whose conversation it continues."""
        return tuple(record for record in self.records if record.revision)

    @property
    def shown(self) -> int:
        """The most characters of one result that a model is shown."""
        return MAX_SHOWN if self.max_shown is None else self.max_shown

    @property
    def told_bytes(self) -> int:
        """An estimate of the bytes of this situation in a request to a model."""
        values = [
            *(record.result for record in self.records),
            *(record.args or record.step.args for record in self.earlier),
            *(value for fault in self.faults for value in (fault.reason, fault.observed, fault.words)),
            *(value for observation in self.observations for value in (observation.args, observation.value)),
        ]
        rest = self.model_copy(update={"records": (), "faults": (), "observations": ()})
        items = len(self.records) + len(self.faults) + len(self.observations)
        around = len(rest.model_dump_json(exclude_defaults=True).encode()) + AROUND_RESULT * items
        return around + sum(len(canonical(value)[: self.shown].encode()) for value in values)

    def shortened(self, room: int) -> "Situation":
        """A copy that fits into `room` bytes, with the largest `max_shown` of SHOWN_AT_LAST; with 0 if none fits."""
        shorter = (self.model_copy(update={"max_shown": shown}) for shown in SHOWN_AT_LAST)
        return next((copy for copy in shorter if copy.told_bytes <= room), self.model_copy(update={"max_shown": 0}))

    @property
    def unshown_bytes(self) -> int:
        """How many bytes of results a model is not shown, because each result is cut to MAX_SHOWN characters."""
        results = [
            *(record.result for record in self.records),
            *(observation.value for observation in self.observations),
        ]
        return sum(len(canonical(result)[MAX_SHOWN:].encode()) for result in results)


def describe_situation(
    progress: Progress,
    catalogue: Catalogue,
    rejected: Sequence[Mistake],
    *,
    written: NewSteps | None = None,
    is_last: bool = False,
) -> Situation:
    """What the planner is told in the turn that begins.

    `rejected` are the mistakes in the planner's previous proposal if it was rejected; else empty. `written` is the plan
    of the user for this turn, which is only checked; None to ask the planner. `is_last`: see `Situation.is_last`.
    """
    task, allowed = progress.task, trust.standing(progress, catalogue)
    common = Situation(
        turn=progress.turn,
        catalogue=catalogue.digest,
        plan=written.steps if written else None,
        later_plans=tuple(task.later_plans) if progress.turn == 1 else (),
        now=workflow.now(),
        documents=task.documents,
        may_ask=task.on_escalation == "wait" and not progress.is_draft,
        rejected=tuple(rejected),
        down=tuple(progress.down),
        is_tainted=progress.contract.is_tainted,
        contract=tuple(map(str, allowed.free)) if allowed else (),
        withheld=tuple(allowed.withheld) if allowed and task.on_escalation != "wait" else (),
        calls_left=progress.budget.free,
        strategy=task.strategy,
        planner=task.planner,
        effort=task.effort,
        calls=task.calls,
        is_last=is_last,
    )
    return common.model_copy(update=_news(progress) if catalogue.converses else _everything(progress))


def _everything(progress: Progress) -> dict[str, object]:
    """Fields of the Situation for a planner without a conversation: the task, its steps, faults and observations."""
    return {
        "text": progress.task.text,
        "untrusted_input": progress.task.untrusted_input,
        "demonstrations": progress.task.demonstrations,
        "records": tuple(progress.slim().records),
        "faults": tuple(fault for fault in progress.faults if fault.decision == "replan"),
        "observations": tuple(progress.observations),
        "words": tuple(progress.words),
        "omitted": len(progress.folded.ids),
    }


def _news(progress: Progress) -> dict[str, object]:
    """Fields of the Situation for a planner with a conversation: the newest plan's outcome and, once, the task."""
    found: dict[str, object] = {"converses": True, "branch": progress.branch}
    if untold := progress.words[progress.words_told :]:
        found["words"] = tuple(untold)
    records: tuple[StepRecord, ...] = ()
    if not progress.is_opened:
        task = progress.task
        found |= {
            "text": task.text,
            "untrusted_input": task.untrusted_input,
            "result_schema": task.result_schema,
            "demonstrations": task.demonstrations,
            "continues": task.continues,
        }
        if task.remains is not None:
            found |= {"faults": task.remains.faults}
            records = task.remains.records
    if progress.revision > progress.told:
        records = tuple(_brief(record) for record in progress.slim().records if record.revision > progress.told)
        found["faults"] = tuple(progress.rejecting_faults)
        # Without a replan they are the observations of an earlier replan.
        found["observations"] = tuple(progress.observations) if progress.replanning else ()
    if progress.has_untold_effects:
        records = (*(_brief(record) for record in progress.slim().records if not record.revision), *records)
    return found | ({"records": records} if records else {})


def _brief(record: StepRecord) -> StepRecord:
    """A copy with only the fields that a planner needs."""
    kept = {"step", "revision", "effect", "status", "attempts", "kind", "args", "result", "left_out", "replayed"}
    kept |= {"unchanged", "undoes", "edited", "is_tainted", "is_planned_ahead"}
    left_out = {name: field for name, field in StepRecord.model_fields.items() if name not in kept}
    unsaid = {name: field.get_default(call_default_factory=True) for name, field in left_out.items()}
    if record.args == record.step.args:  # nothing was put in the place of references
        unsaid["args"] = None
    return record.model_copy(update=unsaid)
