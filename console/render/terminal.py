"""The terminal: its width, colours, frames and keys."""

import os
import re
import sys
import termios
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TextIO

from rich.cells import cell_len, chop_cells
from rich.color import ColorSystem
from rich.console import Console
from rich.style import Style

from workflows.details import SIGNS
from workflows.record import StepStatus

_LABEL = re.compile(r"\w+ \d+  ")
"""`Plan 2  because ...`: the rest hangs behind the label."""


def pad(text: str, width: int) -> str:
    """Text with blanks behind it up to `width` cells; wide letters count twice."""
    return text + " " * (width - cell_len(text))


def wrapped(line: str, width: int) -> str:
    """A line cut into rows of `width` cells between words, the later ones below the beginning of the first.

    An address is never cut; text in wide letters, which knows no blanks, is.
    """
    if cell_len(line) <= width:
        return line
    indent = _indent(line, width)
    rows = [""]
    for word in _words(line, width - len(indent)):
        if rows[-1].strip() and cell_len(rows[-1] + word) > width:
            rows.append(indent + word.lstrip())
        else:
            rows[-1] += word
    return "\n".join(row.rstrip() for row in rows)


def rows(line: str, width: int) -> int:
    """How many rows a terminal of this width needs for a line."""
    return max(1, -(-cell_len(line) // width))


def _indent(line: str, width: int) -> str:
    label = _LABEL.match(line)
    return " " * (label.end() if label and label.end() <= width * 2 // 3 else len(line) - len(line.lstrip()))


def _words(line: str, room: int) -> Iterator[str]:
    for blanks, word in re.findall(r"(\s*)(\S+)", line):
        if cell_len(word) > max(room, len(word)):
            first, *rest = chop_cells(word, max(room, 2))
            yield blanks + first
            yield from rest
        else:
            yield blanks + word


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


BEGIN, DONE = "\x1b[?2026h\x1b[?25l", "\x1b[?25h\x1b[?2026l"
"""Around a frame: terminals that know it show the frame at once; the cursor is hidden only within."""
UP = "\x1b[{}A"
LINE, REST_OF_LINE, REST_OF_SCREEN = "\x1b[2K", "\x1b[K", "\x1b[J"
USUAL = (80, 24)


def size(stream: TextIO) -> tuple[int, int]:
    """Columns and rows of the terminal, as it is now; the usual ones where it does not say."""
    try:
        columns, lines = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        return USUAL
    return columns or USUAL[0], lines or USUAL[1]


class Screen:
    """Draws frames below what the terminal shows already."""

    def __init__(self, stream: TextIO) -> None:
        """Draw on the terminal `stream`."""
        self._stream = stream
        self._drawn: list[str] = []
        self._size = (0, 0)

    def draw(self, lines: Sequence[str], paint: Callable[[str], str]) -> None:
        """Replace the frame by these lines, each narrower than the terminal and fewer than its rows."""
        same = size(self._stream) == self._size
        if same and list(lines) == self._drawn:
            return
        back, known = self._back(), self._drawn if same else []
        parts = [BEGIN, back]
        for index, line in enumerate(lines):
            unchanged = index < len(known) and known[index] == line
            parts.append("\n" if unchanged else paint(line) + REST_OF_LINE + "\n")
        parts += [REST_OF_SCREEN if not same or len(lines) < len(known) else "", DONE]
        self._drawn, self._size = list(lines), size(self._stream)
        self._write(parts)

    def clear(self) -> None:
        """Take the frame away, row by row: tmux keeps what is cleared at once from the top in its scrollback."""
        self._write([BEGIN, self._back(), (LINE + "\n") * self._taken(), self._back(), DONE])
        self._drawn = []

    def forget(self) -> None:
        """Leave the frame where it is and draw the next one below: the shell has written in between."""
        self._drawn = []

    def _back(self) -> str:
        """To the frame's first row."""
        return "\r" + UP.format(self._taken()) if self._taken() else ""

    def _taken(self) -> int:
        """The rows of the frame; a terminal that was made narrower has broken its lines into more."""
        columns, height = size(self._stream)
        return min(sum(rows(line, columns) for line in self._drawn), height - 1)

    def _write(self, parts: Sequence[str]) -> None:
        self._stream.write("".join(parts))
        self._stream.flush()


class Keys:
    """Keeps typed keys from being shown in the middle of a frame; they go to the shell afterwards, as always."""

    def __init__(self) -> None:
        """Nothing is changed yet."""
        self._before: list[Any] | None = None

    def hide(self) -> None:
        """Turn the echo off, where a person types; once more after the shell has had the terminal."""
        if sys.stdin is None or not sys.stdin.isatty():
            return
        self._before = self._before or termios.tcgetattr(sys.stdin)
        quiet = termios.tcgetattr(sys.stdin)
        quiet[3] &= ~termios.ECHO
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, quiet)

    def show(self) -> None:
        """Turn it on again."""
        if self._before is not None:
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._before)
            self._before = None
