"""The turns of calls that wait for a service that is down or limits its callers, and the Signal that reports a turn.

Runs after a call was turned away, until its turn comes or its wait is over.
"""

from contextlib import suppress
from dataclasses import dataclass, field

from pydantic import BaseModel
from temporalio import workflow

from workflows.faults import retries
from workflows.marks import Kept

TURN = "turn"
"""The name of the Signal with a Turn."""


class Turn(BaseModel, frozen=True):
    """The input of the Signal `turn`: the turn of a call has come, so the call may be made now."""

    key: Kept[str]
    """The idempotency key of the call."""


@dataclass
class Turns:
    """The calls of one workflow whose turn has come."""

    _come: set[str] = field(default_factory=set)

    def come(self, key: str) -> None:
        """Record that the turn of the call with the idempotency key `key` has come."""
        self._come.add(key)

    async def wait(self, key: str, seconds: float, timer: str) -> float:
        """Wait up to `seconds` for the turn of a call; return `seconds`, or 0 if the turn came."""
        try:
            with suppress(TimeoutError):
                within = retries.timer(seconds)
                await workflow.wait_condition(lambda: key in self._come, timeout=within, timeout_summary=timer)
                return 0.0
            return seconds
        finally:
            self._come.discard(key)
