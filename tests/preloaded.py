"""Commands of the console and of the worker, each in a process of its own that need not load its modules first.

`python starter.py` loads modules for half a second, `python worker.py` for two, and tests run a thousand commands. So
one process for each script loads them, and forks for each command: environment, arguments, streams and exit code are
those of a fresh one. What a fork cannot show, such as what a script imports, is tested with the script itself.
"""

import contextlib
import faulthandler
import importlib
import json
import os
import pkgutil
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self, TextIO

import console
from runtime.process import leave

ROOT = Path(__file__).parents[1]
STARTER, WORKER = ROOT / "starter.py", ROOT / "worker.py"
READ_AT_START = ("PYTHON", "LC_", "LANG", "TZ")
"""How the names of variables begin that count when Python starts, and so not in a fork; PYTHONPATH is taken over."""


def can_run(environment: Mapping[str, str]) -> bool:
    """Whether a fork does as well as a fresh process: not where a variable is set that Python reads at its start."""
    return not any(name.startswith(READ_AT_START) for name in environment if name != "PYTHONPATH")


def run(
    words: Sequence[str], environment: Mapping[str, str], seconds: float, script: Path = STARTER
) -> subprocess.CompletedProcess[str]:
    """Run `python SCRIPT WORDS` to its end.

    Raises:
        TimeoutExpired: it took longer than `seconds`, and was killed.
    """
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        process = Forked(script, words, environment, [output.fileno(), errors.fileno()])
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
            raise
        said, complained = (_text(stream) for stream in (output, errors))
    return subprocess.CompletedProcess([str(script), *words], code, said, complained)


class Forked:
    """`python SCRIPT WORDS` while it runs, with the methods of Popen that tests need."""

    def __init__(
        self, script: Path, words: Sequence[str], environment: Mapping[str, str], streams: Sequence[int]
    ) -> None:
        """Begin it; `streams` are its output and its errors, or else the terminal in which it leads a session."""
        self.args = [str(script), *words]
        self.returncode: int | None = None
        self.stdout: TextIO | None = None
        self._connection = _connected(script)
        request = json.dumps({"words": list(words), "environment": dict(environment)}).encode()
        socket.send_fds(self._connection, [len(request).to_bytes(8, "big")], streams)
        self._connection.sendall(request)
        self._answers = self._connection.makefile()
        self.pid = int(self._answers.readline())

    @classmethod
    def piped(cls, script: Path, words: Sequence[str], environment: Mapping[str, str], errors: int) -> Self:
        """Begin it with its output to be read from `stdout`, and its errors written to a file."""
        output, written = os.pipe()
        try:
            process = cls(script, words, environment, [written, errors])
        finally:
            os.close(written)
        process.stdout = os.fdopen(output)  # closed by __exit__
        return process

    def __enter__(self) -> Self:
        """Leave its end to the block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for its end."""
        if self.stdout is not None:
            self.stdout.close()
        self.wait()

    def communicate(self, timeout: float | None = None) -> tuple[str, None]:
        """Wait for its end, and return the rest of its output, which a pipe must hold; raises TimeoutExpired."""
        assert self.stdout is not None
        self.wait(timeout)
        return self.stdout.read(), None

    def poll(self) -> int | None:
        """Its exit code; None while it runs."""
        if self.returncode is None and select.select([self._connection], [], [], 0)[0]:
            self.wait()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end, and return its exit code; raises TimeoutExpired."""
        if self.returncode is None:
            if not select.select([self._connection], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            with self._connection, self._answers:
                self.returncode = int(self._answers.readline())
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send it a signal."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it ended just now
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)


def _text(stream: Any) -> str:
    stream.seek(0)
    return str(stream.read().decode().replace("\r\n", "\n"))


def _connected(script: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(_server(script)[0])
    return connection


@cache
def _server(script: Path) -> tuple[str, subprocess.Popen[bytes]]:
    """The process that forks for a script, and its address; it is started at the first use, and ends with us."""
    folder = tempfile.mkdtemp(prefix="replan-console-")
    address = f"{folder}/socket"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen(64)
    command = [sys.executable, "-m", "tests.preloaded", str(script), str(listener.fileno()), folder]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, pass_fds=[listener.fileno()])
    listener.close()
    return address, process


def serve(script: Path, listener: socket.socket, folder: Path) -> None:
    """Load the script's modules, and fork for each request until standard input, our parent's, is closed."""
    if script == WORKER:
        importlib.import_module("worker")
    else:
        for found in pkgutil.walk_packages(console.__path__, "console."):
            if found.name != "console.demo":
                importlib.import_module(found.name)
    signal.signal(signal.SIGCHLD, _reap)
    while True:
        ready, _, _ = select.select([listener, sys.stdin], [], [])
        if sys.stdin in ready:
            shutil.rmtree(folder)
            os._exit(0)
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            _answer(script, connection)
        connection.close()


def _reap(*_about: object) -> None:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _answer(script: Path, connection: socket.socket) -> NoReturn:
    """Run what is asked for in a child; send its id, then its exit code."""
    size, streams, _, _ = socket.recv_fds(connection, 8, 2)
    with connection.makefile("rb") as asked:
        request = json.loads(asked.read(int.from_bytes(size, "big")))
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.fork()
    if pid == 0:
        connection.close()
        _become(script, request["words"], request["environment"], streams)
    for stream in streams:
        os.close(stream)  # or a pipe would not end with the child
    connection.sendall(f"{pid}\n".encode())
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    connection.sendall(f"{code}\n".encode())
    os._exit(0)


def _become(script: Path, words: list[str], environment: dict[str, str], streams: list[int]) -> NoReturn:
    """Be `python SCRIPT WORDS`."""
    if len(streams) == 1:
        os.setsid()
        keys = os.open(os.ttyname(streams[0]), os.O_RDWR)  # the first terminal that it opens becomes its own
        streams *= 2
    else:
        keys = os.open(os.devnull, os.O_RDONLY)
    for number, given in enumerate([keys, *streams]):
        os.dup2(given, number)
    for given in {keys, *streams}:
        os.close(given)
    opened = {"stdin": open(0), "stdout": open(1, "w"), "stderr": open(2, "w", errors="backslashreplace")}  # noqa: SIM115
    for name, stream in opened.items():
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    os.environ.clear()
    os.environ.update(environment)
    if environment.get("PYTHONFAULTHANDLER"):
        faulthandler.enable(opened["stderr"])
    sys.path[1:1] = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
    sys.argv = [str(script), *words]
    code: Any = 1
    try:
        runpy.run_path(str(script), run_name="__main__")
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
    leave(code)


if __name__ == "__main__":
    serve(Path(sys.argv[1]), socket.socket(fileno=int(sys.argv[2])), Path(sys.argv[3]))
