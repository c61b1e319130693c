"""Makes text from outside safe to print, and writes commands that a user can copy."""

import shlex

from rich.cells import cell_len, set_cell_size

QUEUE = "replan"
"""The default task queue of workers and of new tasks."""


def printable(text: str) -> str:
    """The text with a blank for each character that is not printable, such as a character that moves the cursor."""
    return "".join(char if char.isprintable() else " " for char in text)


def one_line(text: str) -> str:
    """Untrusted text on one line, without control characters."""
    return " ".join(printable(text).split())


def cut(text: str, width: int) -> str:
    """Text in at most `width` cells of a terminal, with an ellipsis if it was cut."""
    return text if cell_len(text) <= width else set_cell_size(text, max(width - 1, 0)).rstrip() + "…"


def starter(*words: str) -> str:
    """`python starter.py WORDS`, quoted for a shell where a word, such as an id, needs it."""
    return printable(f"python starter.py {shlex.join(words)}")


def worker(queue: str) -> str:
    """`python worker.py`, with `--queue NAME` unless it is the default queue."""
    return f"python worker.py{at_queue(queue)}"


def at_queue(queue: str) -> str:
    """The end ` --queue NAME` of a command that a message tells the user to type; empty for the default queue."""
    return "" if queue == QUEUE else f" --queue {shlex.quote(queue)}"
