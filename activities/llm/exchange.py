"""What stands in the transcript of a task: its turns so far, as they were told and answered."""

from dataclasses import dataclass

from activities.llm.reply import Stop, Usage
from activities.llm.turns import AssistantTurn, UserTurn
from workflows.plan import Proposed
from workflows.situation import Situation


@dataclass(frozen=True)
class Exchange:
    """One request to a model and its answer."""

    told: UserTurn
    """What was new; it is repeated in every later request."""
    said: AssistantTurn
    stop: Stop
    usage: Usage


@dataclass(frozen=True)
class Past:
    """One turn of a conversation that has been answered."""

    task: str
    """The first run of the task that it belongs to."""
    branch: int
    turn: int
    situation: Situation
    """What was new, as the workflow told it."""
    proposed: Proposed
    exchange: Exchange | None = None
    """None where no model was asked: a plan by hand, or a planner without a model."""
    upto: int = 0
    """For a summary: how many of the oldest turns it stands for; 0 for a turn."""

    @property
    def is_summary(self) -> bool:
        """Whether it stands for the turns before it."""
        return self.upto > 0


@dataclass(frozen=True)
class Said:
    """What a planner proposes, and the exchange with a model that it comes from."""

    proposed: Proposed
    exchange: Exchange | None = None
