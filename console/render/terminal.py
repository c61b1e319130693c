"""What the console does with a terminal: colours, frames drawn in place, and the keys that are typed."""

import asyncio
import codecs
import os
import re
import sys
import termios
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TextIO

from rich.cells import cell_len
from rich.color import ColorSystem
from rich.console import Console
from rich.style import Style

from client.lines import Line, wrap


def has_colours(stream: TextIO) -> bool:
    """Whether the stream is a terminal that takes colours; NO_COLOR turns them off."""
    return not os.environ.get("NO_COLOR") and Console(file=stream).color_system is not None


def painted(line: str) -> str:
    """The line with the escape sequences of its style."""
    if not (isinstance(line, Line) and line.style):
        return line
    part = Style.parse(line.style).render(line[line.start : line.end], color_system=ColorSystem.STANDARD)
    return line[: line.start] + part + line[line.end :]


def print_lines(lines: Iterable[str]) -> None:
    """Print lines: wrapped and coloured on a terminal, unchanged elsewhere."""
    if sys.stdout.isatty():
        width, colours = terminal_size(sys.stdout)[0], has_colours(sys.stdout)
        lines = [row for line in lines for row in wrap(line, width)]
        lines = [painted(row) for row in lines] if colours else lines
    for line in lines:
        print(line)
    sys.stdout.flush()


BEGIN, DONE = "\x1b[?2026h\x1b[?25l", "\x1b[?25h\x1b[?2026l"
"""The escape sequences around a frame: a synchronized update, with the cursor hidden."""
UP = "\x1b[{}A"
LINE, REST_OF_LINE, REST_OF_SCREEN = "\x1b[2K", "\x1b[K", "\x1b[J"
DEFAULT_SIZE = (80, 24)


def output_width() -> int | None:
    """The columns of the terminal to which the output goes; None if it goes elsewhere."""
    return terminal_size(sys.stdout)[0] if sys.stdout.isatty() else None


def terminal_size(stream: TextIO) -> tuple[int, int]:
    """The columns and rows of the terminal as it is now; 80 and 24 if they are not known."""
    try:
        columns, lines = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        return DEFAULT_SIZE
    return columns or DEFAULT_SIZE[0], lines or DEFAULT_SIZE[1]


class Screen:
    """Draws frames in place, below what the terminal shows already."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._colours = has_colours(stream)
        self._drawn: list[str] = []
        self._is_open = False
        """Whether the cursor is at the end of the frame's last line, and not below the frame."""
        self._size = (0, 0)

    def draw(self, lines: Sequence[str], *, is_open: bool = False) -> None:
        """Replace the frame by these lines: each narrower than the terminal, and fewer than the terminal has rows.

        `is_open` leaves the cursor at the end of the last line, where a person types.
        """
        same = terminal_size(self._stream) == self._size  # a terminal of another size shows the old rows elsewhere
        if same and list(lines) == self._drawn and is_open == self._is_open:
            return
        back, known = self._back(self._rows_above_cursor()), self._drawn if same else []
        parts = [BEGIN, back]
        for index, line in enumerate(lines):
            end = "" if is_open and index == len(lines) - 1 else "\n"
            # To write an unchanged line again would make it flicker; but the last one takes the cursor to its end.
            unchanged = bool(end) and index < len(known) and known[index] == line
            parts.append(end if unchanged else self._painted(line) + REST_OF_LINE + end)
        parts += [REST_OF_SCREEN if not same or len(lines) < len(known) else "", DONE]
        self._drawn, self._is_open, self._size = list(lines), is_open, terminal_size(self._stream)
        self._write(parts)

    def clear(self) -> None:
        """Remove the frame from the terminal."""
        rows = self._rows()
        # Row by row: tmux would keep in its scrollback what is cleared at once from the top.
        self._write([BEGIN, self._back(self._rows_above_cursor()), (LINE + "\n") * rows, self._back(rows), DONE])
        self._drawn, self._is_open = [], False

    def replace(self, lines: Iterable[str]) -> None:
        """Remove the frame, and write these lines in its place; they stay, and are no frame."""
        self.clear()
        self._write([f"{self._painted(line)}\n" for line in lines])

    def leave_frame(self) -> None:
        """Leave this frame as it is: the next frame is drawn where the cursor is."""
        self._drawn, self._is_open = [], False

    def end_line(self) -> None:
        """Move the cursor below a frame whose last line is open."""
        if self._is_open:
            self._is_open = False
            self._write(["\n"])

    def _painted(self, line: str) -> str:
        return painted(line) if self._colours else line

    def _back(self, rows: int) -> str:
        """The escape sequence that moves the cursor up by `rows` rows, to the first column."""
        return "\r" + (UP.format(rows) if rows else "")

    def _rows_above_cursor(self) -> int:
        return self._rows() - (1 if self._is_open else 0)

    def _rows(self) -> int:
        # A terminal that was made narrower has broken the lines of the last frame into more rows.
        columns, height = terminal_size(self._stream)
        return min(sum(max(1, -(-cell_len(line) // columns)) for line in self._drawn), height - 1)

    def _write(self, parts: Sequence[str]) -> None:
        self._stream.write("".join(parts))
        self._stream.flush()


LARGEST_READ = 65536
ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O.|.)?", re.DOTALL)
"""The escape sequence that a key such as an arrow sends."""
EDITING = (termios.VERASE, termios.VWERASE, termios.VKILL)
"""The indices of the editing keys in the list of control characters of a terminal's settings."""


class Keyboard:
    """Turns off the echo of keys while frames are drawn; reads the keys as lines, or leaves them for the shell."""

    def __init__(self) -> None:
        self.text = ""
        """The line that is being typed, as far as it is read."""
        self._before: list[Any] | None = None
        self._entered: Callable[[str], None] | None = None
        self._changed: Callable[[], None]
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    @property
    def is_read(self) -> bool:
        """Whether typed keys are read now, between `read` and `leave`."""
        return self._entered is not None

    def disable_echo(self) -> None:
        """Turn the echo off if stdin is a terminal; call it again when the suspended process continues."""
        if sys.stdin is None or not sys.stdin.isatty():
            return
        # The first settings are kept: at a second call the echo may be off already.
        self._before = self._before or termios.tcgetattr(sys.stdin)
        quiet = [*self._before[:6], [*self._before[6]]]
        quiet[3] &= ~termios.ECHO
        if self.is_read:  # key by key: in a frame that is drawn again, the terminal cannot show the line by itself
            quiet[3] &= ~termios.ICANON
            quiet[6][termios.VMIN], quiet[6][termios.VTIME] = 1, 0
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, quiet)

    def read(self, entered: Callable[[str], None], changed: Callable[[], None]) -> None:
        """Read the keys from now on; `entered` gets each line, and `changed` is called when `text` may have changed."""
        self._entered, self._changed, self.text = entered, changed, ""
        self.disable_echo()
        termios.tcflush(sys.stdin, termios.TCIFLUSH)
        asyncio.get_running_loop().add_reader(sys.stdin, self._read_keys)

    def leave(self) -> None:
        """Read no more keys; those that are typed from now on stay for the shell."""
        if self.is_read:
            self._stop()
            self.disable_echo()

    def restore(self) -> None:
        """Restore the first settings of the terminal; the rest of a line that was being read is dropped."""
        when = termios.TCSAFLUSH if self.is_read else termios.TCSADRAIN
        if self.is_read:
            self._stop()
        if self._before is not None:
            termios.tcsetattr(sys.stdin, when, self._before)
            self._before = None

    def _stop(self) -> None:
        asyncio.get_running_loop().remove_reader(sys.stdin)
        self._entered, self.text = None, ""

    def _read_keys(self) -> None:
        try:
            keys = os.read(sys.stdin.fileno(), LARGEST_READ)
        except OSError:
            keys = b""
        if not keys:  # the terminal is gone
            asyncio.get_running_loop().remove_reader(sys.stdin)
            return
        for key in ESCAPE.sub("", self._decoder.decode(keys)):
            if key not in "\r\n":
                self.text = self._edited(key)
            elif self._entered:
                line, self.text = self.text, ""
                self._entered(line)
        self._changed()

    def _edited(self, key: str) -> str:
        """The line after this key, with the keys of `stty` that erase a character, a word or the line."""
        assert self._before is not None  # noqa: S101  # for the type checker: keys are read
        erase, word, line = (self._before[6][index].decode("latin-1") for index in EDITING)
        if key == erase:
            return self.text[:-1]
        if key == word:
            before, blank, _ = self.text.rstrip().rpartition(" ")
            return before + blank
        if key == line:
            return ""
        return self.text + (key if key.isprintable() else " " if key == "\t" else "")
