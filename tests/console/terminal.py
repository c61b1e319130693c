"""A terminal for tests: a real pseudo-terminal with a command in it, and what its screen would show."""

import asyncio
import fcntl
import os
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from tests import preloaded

PATIENCE = 40.0
TOKEN = re.compile(r"\x1b\[(\??[\d;]*)([A-Za-z])|\r|\n|[^\x1b\r\n]")


class Shown:
    """The rows that a terminal of this size has shown so far, scrollback first; it knows what our screens use."""

    def __init__(self, columns: int, height: int) -> None:
        self.columns, self.height = columns, height
        self.rows, self.row, self.column = [""], 0, 0

    def write(self, text: str) -> None:
        for token in TOKEN.finditer(text):
            if token[0] == "\r":
                self.column = 0
            elif token[0] == "\n":
                self._down()
            elif token[2]:
                self._control(token[1], token[2])
            else:
                self._put(token[0])

    def _control(self, number: str, letter: str) -> None:
        row = self.rows[self.row]
        if letter == "A":
            self.row = max(self.row - int(number or 1), len(self.rows) - self.height, 0)
        elif letter == "K":
            self.rows[self.row] = "" if number == "2" else row[: self.column]
        elif letter == "J":
            self.rows[self.row] = row[: self.column]
            self.rows[self.row + 1 :] = [""] * (len(self.rows) - self.row - 1)

    def _put(self, letter: str) -> None:
        if self.column >= self.columns:
            self.column = 0
            self._down()
        row = self.rows[self.row].ljust(self.column)
        self.rows[self.row] = row[: self.column] + letter + row[self.column + 1 :]
        self.column += 1

    def _down(self) -> None:
        self.row += 1
        if self.row == len(self.rows):
            self.rows.append("")

    @property
    def text(self) -> list[str]:
        """All rows, without those at the end that are empty."""
        return "\n".join(row.rstrip() for row in self.rows).rstrip().split("\n")


class Terminal:
    """A command that runs in a terminal."""

    def __init__(
        self, command: list[str], environment: Mapping[str, str], cwd: Path, size: tuple[int, int] = (80, 24)
    ) -> None:
        """Start it as the leader of a session: the terminal that it opens first becomes its own."""
        self._master, self._slave = os.openpty()
        self.shown = Shown(*size)
        self.resize(*size)
        self.raw = ""
        self.process = self._begun(command, {"TERM": "xterm", **environment}, cwd)
        os.set_blocking(self._master, False)
        self._is_open = True

    def _begun(
        self, command: list[str], environment: Mapping[str, str], cwd: Path
    ) -> subprocess.Popen[bytes] | preloaded.Forked:
        settings = {**os.environ, **environment}
        if command[:2] == starter(cwd) and cwd == preloaded.ROOT and preloaded.can_run(environment):
            return preloaded.Forked(preloaded.STARTER, command[2:], settings, [self._slave])
        opened = f'exec "$@" <>{os.ttyname(self._slave)} >&0 2>&0'
        return subprocess.Popen(["sh", "-c", opened, "sh", *command], env=settings, cwd=cwd, start_new_session=True)

    def __enter__(self) -> Self:
        asyncio.get_running_loop().add_reader(self._master, self._read)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def _read(self) -> None:
        try:
            text = os.read(self._master, 65536).decode(errors="replace")
        except OSError:
            text = ""
        self.raw += text
        self.shown.write(text)

    def press(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def resize(self, columns: int, rows: int) -> None:
        self.shown.columns, self.shown.height = columns, rows
        fcntl.ioctl(self._slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    @property
    def echoes(self) -> bool:
        """Whether typed keys are shown."""
        return bool(termios.tcgetattr(self._slave)[3] & termios.ECHO)

    @property
    def is_by_line(self) -> bool:
        """Whether the terminal gives its program whole lines."""
        return bool(termios.tcgetattr(self._slave)[3] & termios.ICANON)

    def set_by_line(self) -> None:
        """Let the terminal show what is typed and give whole lines, as a shell does that takes it over."""
        settings = termios.tcgetattr(self._slave)
        settings[3] |= termios.ECHO | termios.ICANON
        termios.tcsetattr(self._slave, termios.TCSANOW, settings)

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            asyncio.get_running_loop().remove_reader(self._master)
            os.close(self._slave)
            os.close(self._master)

    async def until(self, words: str) -> None:
        async with asyncio.timeout(PATIENCE):
            while words not in self.raw:
                await asyncio.sleep(0.02)

    async def ended(self) -> int:
        """Wait for the end of the command and return its exit code."""
        async with asyncio.timeout(PATIENCE):
            while self.process.poll() is None:
                await asyncio.sleep(0.02)
        await asyncio.sleep(0.1)  # the last words are still in the terminal
        return self.process.wait()


def starter(root: Path, *words: str) -> list[str]:
    """The command line of our console."""
    return [sys.executable, str(root / "starter.py"), *words]
