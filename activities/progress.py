"""The progress of the current attempt's call, as a server reports it; heartbeats carry the newest report."""

import math
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass

from activities.scrubbing import text_of
from workflows.faults.fault import ProgressReport
from workflows.text import legible

MAX_WORDS = 100
"""The most characters of a server's message that are kept."""


@dataclass(eq=False)
class CallProgress:
    """The progress of one call."""

    last: ProgressReport | None = None
    """The newest report; None before the first."""
    heard: Callable[[ProgressReport], None] | None = None
    """What is called with each report."""

    def report(self, done: float, total: float | None = None, words: str | None = None) -> None:
        """Record that `done` of `total` is done, in any unit; `words` is the server's message, which is untrusted.

        If `done` is infinite or NaN, nothing is recorded; an infinite or NaN `total` counts as unknown, like None.
        """
        if not math.isfinite(done):
            return
        shown = text_of(legible(words or "", MAX_WORDS), str, MAX_WORDS)
        is_known = total is not None and math.isfinite(total)
        self.last = ProgressReport(done=done, total=total if is_known else None, words=shown)
        if self.heard is not None:
            self.heard(self.last)


_PROGRESS: ContextVar[CallProgress | None] = ContextVar("replan_progress", default=None)


def start_progress() -> CallProgress:
    """Create the CallProgress that `current_progress` returns in this context; each attempt has its own context."""
    progress = CallProgress()
    _PROGRESS.set(progress)
    return progress


def current_progress() -> CallProgress:
    """The progress of the current attempt; outside of an attempt, a new CallProgress that no heartbeat reports."""
    return _PROGRESS.get() or CallProgress()
