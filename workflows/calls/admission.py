"""The admissions of calls that wait for a service that is down or limits its callers, and the Signal that reports one.

Runs after a call was turned away, until it is admitted or its wait is over.
"""

from contextlib import suppress
from dataclasses import dataclass, field

from pydantic import BaseModel
from temporalio import workflow

from workflows.faults import retries
from workflows.marks import Kept

TURN = "turn"
"""The name of the Signal with an Admitted; pages for users call an admission the turn of a call."""


class Admitted(BaseModel, frozen=True):
    """The input of the Signal `turn`: a call is admitted, so it may be made now."""

    key: Kept[str]
    """The idempotency key of the call."""


@dataclass
class Admissions:
    """The calls of one workflow that were admitted."""

    _come: set[str] = field(default_factory=set)

    def come(self, key: str) -> None:
        """Record that the call with the idempotency key `key` was admitted."""
        self._come.add(key)

    async def wait(self, key: str, seconds: float, timer: str) -> float:
        """Wait up to `seconds` for the admission of a call; return `seconds`, or 0 if it came."""
        try:
            with suppress(TimeoutError):
                within = retries.timer(seconds)
                await workflow.wait_condition(lambda: key in self._come, timeout=within, timeout_summary=timer)
                return 0.0
            return seconds
        finally:
            self._come.discard(key)
