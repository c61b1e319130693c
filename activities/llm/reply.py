"""What a model answers: its turn, what it used, and why it stopped."""

from dataclasses import dataclass
from enum import StrEnum

from activities.llm.turns import AssistantTurn


class Stop(StrEnum):
    """Why a model stopped."""

    DONE = "done"
    """It had no more to say, or met a stop sequence."""
    CALLS = "calls"
    """It waits for the results of its calls."""
    CUT = "cut"
    """The reply, or what the model can hold at once, was used up: what it was about to say is lost."""
    REFUSED = "refused"
    """It declined, or a filter kept its answer back."""


@dataclass(frozen=True)
class Usage:
    """Tokens of one reply, as the provider counts them; the four are disjoint."""

    input: int = 0
    """Read at the full price."""
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0

    @property
    def tokens(self) -> int:
        """All of them."""
        return self.input + self.output + self.cache_read + self.cache_write


@dataclass(frozen=True)
class Reply:
    """One answer."""

    turn: AssistantTurn
    usage: Usage
    stop: Stop
