"""Colour for the lines of a task: it doubles the signs and says nothing that they do not say.

Only green, red, yellow and cyan of the standard eight, and bold: they can be read on dark and on light grounds.
"""

import os
import re
from collections.abc import Sequence
from typing import TextIO

from rich.color import ColorSystem
from rich.console import Console
from rich.style import Style

from console.cells import wrapped
from workflows.details import SIGNS
from workflows.record import StepStatus

_OF_STATUS = {
    StepStatus.COMPLETED: "green",
    StepStatus.FAILED: "red",
    StepStatus.RUNNING: "cyan",
    StepStatus.WAITING: "yellow",
    StepStatus.CANCELLED: "yellow",
    StepStatus.UNDONE: "yellow",
}
COLOURS = {SIGNS[status]: colour for status, colour in _OF_STATUS.items()} | {"!": "yellow", "≡": "yellow"}
_SIGNED = re.compile(rf"(  )([{''.join(COLOURS)}])( .*)")
_BOLD = re.compile(r"((?:Plan|Turn) \d+)(.*)")
_OF_TURN = {">": "cyan", "←": "cyan", "<": "green", "→": "green", "✗": "red", "≡": "yellow", "·": "yellow"}
_SPOKEN = re.compile(rf"(  )([{''.join(_OF_TURN)}] [^\n]*)(.*)", re.DOTALL)
_TURN = re.compile(r"((?:Turn|Summary|Carried)[^\n]*?)(  .*)?", re.DOTALL)
_ENDED = re.compile(r"(\w+(?: budget)?)( (?:in|for) .*)", re.DOTALL)


class Paint:
    """Paints lines where the terminal takes colours, and leaves them alone elsewhere."""

    def __init__(self, on: bool) -> None:
        """Paint if `on`."""
        self.on = on

    @classmethod
    def of(cls, stream: TextIO) -> "Paint":
        """As the stream can take it; NO_COLOR turns it off."""
        return cls(not os.environ.get("NO_COLOR") and Console(file=stream).color_system is not None)

    def body(self, line: str) -> str:
        """A heading, a plan's line, a step's row, or what stands below it."""
        if found := _SIGNED.fullmatch(line):
            return found[1] + self._styled(found[2], COLOURS[found[2]]) + found[3]
        if found := _BOLD.fullmatch(line):
            return self._styled(found[1], "bold") + found[2]
        return line

    def turn(self, line: str) -> str:
        """A line of a conversation, which may be wrapped: who speaks has a colour, what they say has none."""
        if found := _SPOKEN.fullmatch(line):
            return found[1] + self._styled(found[2], _OF_TURN[found[2][0]]) + found[3]
        if found := _TURN.fullmatch(line):
            return self._styled(found[1], "bold") + (found[2] or "")
        return line

    def headline(self, line: str) -> str:
        """The line that says how a task stands or ended."""
        found = _ENDED.fullmatch(line)
        if found is None:
            return line
        colour = {"Completed": "green", "Running": "cyan", "Waiting": "yellow", "Cancelled": "yellow"}
        return self._styled(found[1], f"bold {colour.get(found[1], 'red')}") + found[2]

    def whole(self, body: Sequence[str], closing: Sequence[str], width: int) -> list[str]:
        """A task as it stays on a terminal: its tree and its last lines, wrapped; of these only the first is ours."""
        rows = [row for line in body for row in wrapped(line, width).split("\n")]
        first, *rest = (wrapped(line, width) for line in closing)
        return [*map(self.body, rows), self.headline(first), *rest]

    def _styled(self, text: str, style: str) -> str:
        return Style.parse(style).render(text, color_system=ColorSystem.STANDARD) if self.on else text
