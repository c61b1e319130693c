"""How far the call of the current attempt is, as a server says during it; its heartbeats report it."""

import math
from contextvars import ContextVar
from dataclasses import dataclass

from activities.scrubbing import text_of
from workflows.faults.fault import Working
from workflows.text import legible

MAX_WORDS = 100
"""Characters of the server's words."""


@dataclass(eq=False)
class CallProgress:
    """How far one call is."""

    last: Working | None = None

    def report(self, done: float, total: float | None = None, words: str | None = None) -> None:
        """Note that `done` of `total` is done, in any unit. The words are untrusted.

        If `done` is infinite or no number, nothing is noted; such a `total` counts as unknown.
        """
        if not math.isfinite(done):
            return
        shown = text_of(legible(words or "", MAX_WORDS), str, MAX_WORDS)
        is_known = total is not None and math.isfinite(total)
        self.last = Working(done=done, total=total if is_known else None, words=shown)


_PROGRESS: ContextVar[CallProgress | None] = ContextVar("replan_progress", default=None)


def start_progress() -> CallProgress:
    """Make the progress of all later calls of the current context; each attempt runs in a context of its own."""
    progress = CallProgress()
    _PROGRESS.set(progress)
    return progress


def current_progress() -> CallProgress:
    """The progress of the current attempt; outside of an attempt, one that no heartbeat reports."""
    return _PROGRESS.get() or CallProgress()
