"""How far the call of the current attempt is, as a server says during it; its heartbeats tell it to who looks."""

import math
from contextvars import ContextVar
from dataclasses import dataclass

from activities.scrubbing import text_of
from workflows.faults.fault import Working
from workflows.text import legible

MAX_WORDS = 100
"""Characters of the server's words."""


@dataclass(eq=False)
class Board:
    """Where a call says how far it is."""

    last: Working | None = None

    def say(self, done: float, total: float | None = None, words: str | None = None) -> None:
        """Say how far the call is: `done` of `total`, in any unit. The words may be anybody's; numbers that are none
        are left out."""
        if not math.isfinite(done):
            return
        shown = text_of(legible(words or "", MAX_WORDS), str, MAX_WORDS)
        is_known = total is not None and math.isfinite(total)
        self.last = Working(done=done, total=total if is_known else None, words=shown)


_BOARD: ContextVar[Board | None] = ContextVar("replan_board", default=None)


def start_board() -> Board:
    """Make the board of all later calls of the current context; each attempt runs in a context of its own."""
    board = Board()
    _BOARD.set(board)
    return board


def board() -> Board:
    """The board of the current attempt; outside of one, a board that nobody looks at."""
    return _BOARD.get() or Board()
