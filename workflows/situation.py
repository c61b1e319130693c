"""What a planner is told: the input of the activities `plan`, `replan` and `compact`."""

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict, JsonValue

from workflows.plan import Step
from workflows.record import FaultRecord, Observation, StepRecord


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
    may_lose: int | None = None
    """Answers that may be lost in earlier attempts before no further request is made; None for as many as one likes."""
    planner: str | None = None
    """Who is asked, as `--planner` names it; None for the worker's own planner."""
    compact: int = 0
    """How many of the oldest turns are to be summarised, where nothing else is asked."""

    @property
    def earlier(self) -> tuple[StepRecord, ...]:
        """The effects of earlier runs of the task, which a reset left standing or undid."""
        return tuple(record for record in self.records if not record.revision)

    @property
    def planned(self) -> tuple[StepRecord, ...]:
        """The records of steps that this run planned, or that the task whose conversation it carries on did."""
        return tuple(record for record in self.records if record.revision)
