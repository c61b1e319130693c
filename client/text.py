"""Makes text from outside safe to print.

Used just before such a text is printed or shown.
"""

import re
import shlex

from rich.cells import cell_len, set_cell_size

from workflows.commands import WORKER
from workflows.text import FILLERS

_SHOWS_NOTHING = re.compile(f"(?![\ufe0e\ufe0f])[{FILLERS}]")
"""Matches characters that show nothing, except the variation selectors of emoji: they would leave a blank."""
QUEUE = "replan"
"""The default task queue of workers and of new tasks."""


def printable(text: str) -> str:
    """The text with a blank for each character that moves the cursor, is not printable, or shows nothing.

    For values that a person approves, use `workflows.text.visible`: a blank would hide that a character is there.
    """
    return _SHOWS_NOTHING.sub(" ", "".join(char if char.isprintable() else " " for char in text))


def one_line(text: str) -> str:
    """Untrusted text on one line, without control characters."""
    return " ".join(printable(text).split())


def cut(text: str, width: int) -> str:
    """Text in at most `width` cells of a terminal, with an ellipsis if it was cut."""
    return text if cell_len(text) <= width else set_cell_size(text, max(width - 1, 0)).rstrip() + "…"


def worker(queue: str) -> str:
    """The command that starts a worker, with `--queue NAME` unless it is the default queue."""
    return WORKER if queue == QUEUE else f"{WORKER} --queue {shlex.quote(queue)}"
