"""The end of a terminal, redrawn in place: only rows that changed are written, nothing is erased before it is."""

import os
import sys
import termios
from collections.abc import Callable, Sequence
from typing import Any, TextIO

from console.cells import rows

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
