"""Commands of Replan, each in a process of its own that need not load its modules first.

`python starter.py` loads modules for a second, `python worker.py` and `replan serve` for two to three, and tests run
thousands of them. So one process loads all of them for all processes of the tests, and forks for each command:
environment, arguments, streams and exit code are those of a fresh one. What a fork cannot show, such as what a script
imports, is tested with the script itself.
"""

import contextlib
import faulthandler
import gc
import importlib
import json
import os
import pkgutil
import runpy
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self, TextIO

from runtime.process import leave

ROOT = Path(__file__).parents[1]
STARTER, WORKER = ROOT / "starter.py", ROOT / "worker.py"
STAND_IN = str(Path(__file__).with_name("stand_in.py"))
READ_AT_START = ("PYTHON", "LC_", "LANG", "TZ")
"""How the names of variables begin that count when Python starts, and so not in a fork; TAKEN_OVER are taken over."""
TAKEN_OVER = ("PYTHONPATH", "PYTHONFAULTHANDLER")
PACKAGES, ALONE = ("console", "extras"), ("console.demo",)
"""Packages whose modules are loaded, and the modules that are not."""
PROGRAMS = ("replan", "extras.gateway.holder")
"""Modules that are programs, run as `python -m MODULE`."""
SOCKET = "socket"
FOLDER = "REPLAN_TESTS_PRELOADED"
"""The variable with the folder of the socket at which processes are asked for; processes of pytest-xdist inherit it."""


def can_run(environment: Mapping[str, str]) -> bool:
    """Whether a fork does as well as a fresh process: not where a variable is set that Python reads at its start."""
    return not any(name.startswith(READ_AT_START) for name in environment if name not in TAKEN_OVER)


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
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.connect(f"{_folder()}/{SOCKET}")
        request = json.dumps({"command": self.args, "environment": dict(environment)}).encode()
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
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it ended just now
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _text(stream: Any) -> str:
    stream.seek(0)
    return str(stream.read().decode().replace("\r\n", "\n"))


def python() -> str:
    """What stands for the interpreter where processes are not started by us: an executable that is given its arguments.

    A program of Replan is forked, in the working directory and with the streams and the environment that the executable
    has, which passes signals on and ends as the program does; a program that is killed with it is killed. Anything else
    is left to the interpreter. Programs that are forked so start their own with it. Not for limits (`ulimit`).
    """
    return f"{_folder()}/python"


@cache
def _folder() -> str:
    return os.environ.get(FOLDER) or offered()


def offered() -> str:
    """Offer processes until this process ends; returns the folder with the socket at which they are asked for.

    The process that forks them is started when the first is asked for, and ends with this one.
    """
    folder = tempfile.mkdtemp(prefix="replan-tests-")
    stand_in = Path(folder, "python")
    stand_in.write_text(f'#!/bin/sh\nexec {shlex.join([sys.executable, "-IS", STAND_IN, folder])} "$0" "$@"\n')
    stand_in.chmod(0o700)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"{folder}/{SOCKET}")
    listener.listen(64)
    threading.Thread(target=_serve_when_asked, args=(listener, folder), daemon=True).start()
    return folder


def _serve_when_asked(listener: socket.socket, folder: str) -> None:
    select.select([listener], [], [])
    command = [sys.executable, "-m", "tests.preloaded", str(listener.fileno()), folder]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, pass_fds=[listener.fileno()]) as process:
        listener.close()
        process.wait()


class Server:
    def __init__(self, listener: socket.socket, load: Callable[[], None] | None = None) -> None:
        """`load` loads modules; all that there are by default."""
        self._listener, self._load = listener, load or _load
        self._running = dict[int, socket.socket]()
        """By process, who waits for its exit code."""
        self._tied = set[int]()
        """The processes that end with who waits for them."""
        self._woken, self._waking = os.pipe()

    def serve(self) -> None:
        """Load all modules, and fork for each request until standard input, our parent's, is closed."""
        self._load()
        os.set_blocking(self._waking, False)
        signal.set_wakeup_fd(self._waking)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        while True:
            leaving = {self._running[pid]: pid for pid in self._tied}
            ready, _, _ = select.select([sys.stdin, self._woken, self._listener, *leaving], [], [])
            if sys.stdin in ready:
                return
            for connection in leaving.keys() & {*ready}:
                self._tied.remove(leaving[connection])
                os.kill(leaving[connection], signal.SIGKILL)  # it is no zombie of another: we have not waited for it
            if self._woken in ready:
                os.read(self._woken, 4096)
                self._reap()
            if self._listener in ready:
                connection, _ = self._listener.accept()
                with suppress(OSError, ValueError):  # who asked was killed meanwhile
                    self._answer(connection)

    def _reap(self) -> None:
        """Send those who wait the exit codes of the processes that have ended."""
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                self._tied.discard(ended[0])
                with self._running.pop(ended[0]) as connection, suppress(OSError):
                    connection.sendall(f"{os.waitstatus_to_exitcode(ended[1])}\n".encode())

    def _answer(self, connection: socket.socket) -> None:
        """Start what is asked for, and send its id; 0 for what is left to the interpreter."""
        size, streams, _, _ = socket.recv_fds(connection, 8, 3)
        try:
            with connection.makefile("rb") as asked:
                request = json.loads(asked.read(int.from_bytes(size, "big")))
            is_tied = request.get("is_tied", False)
            if is_tied and not _is_known(request["command"], request["environment"]):
                connection.sendall(b"0\n")
                connection.close()
                return
            pid = os.fork()
            if pid == 0:
                self._close(connection)
                _become(streams, **request)
            self._running[pid] = connection
            if is_tied:
                self._tied.add(pid)
            connection.sendall(f"{pid}\n".encode())
        finally:
            for stream in streams:
                os.close(stream)  # or a pipe would not end with the process

    def _close(self, connection: socket.socket) -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.close(self._woken)
        os.close(self._waking)
        for end in (self._listener, connection, *self._running.values()):
            end.close()


def _load() -> None:
    """Load the modules of all programs, but not what a program does when it is loaded."""
    for package in map(importlib.import_module, PACKAGES):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if found.name not in ALONE and ".tests" not in found.name:
                importlib.import_module(found.name)
    importlib.import_module("worker")
    settle("worker")


def settle(*programs: str) -> None:
    """Let programs whose modules were loaded start as if they were not, and freeze what is there."""
    for name in (*programs, *PROGRAMS):
        if not hasattr(sys.modules.get(name), "__path__"):
            sys.modules.pop(name, None)
    gc.collect()
    gc.freeze()


def _is_known(command: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Whether a command of the interpreter is a program of Replan, and a fork does as well as a fresh process."""
    words = command[1:] if command[:1] == ["-P"] else command
    is_program = words[:1] == ["-m"] and words[1] in PROGRAMS
    is_script = words[:1] in ([str(STARTER)], [str(WORKER)])
    return (is_program or is_script) and can_run(dict(environment.items() - os.environ.items()))


def _become(
    streams: list[int],
    *,
    command: list[str],
    environment: dict[str, str],
    cwd: str = "",
    executable: str = "",
    is_leader: bool = False,
    is_tied: bool = False,
) -> NoReturn:
    """Be `python COMMAND`; `is_leader`: of a session. The rest of a request is for the server."""
    if len(streams) == 1:
        os.setsid()
        keys = os.open(os.ttyname(streams[0]), os.O_RDWR)  # the first terminal that it opens becomes its own
        streams = [keys, *streams * 2]
    elif len(streams) == 2:
        streams = [os.open(os.devnull, os.O_RDONLY), *streams]
    if is_leader:
        os.setsid()
    for number, given in enumerate(streams):
        os.dup2(given, number)
    for given in {*streams}:
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
    sys.executable = executable or sys.executable
    if cwd:
        os.chdir(cwd)
    code: Any = 1
    try:
        _run(command[1:] if command[0] == "-P" else command)
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
    leave(code)


def _run(command: list[str]) -> None:
    if command[0] == "-m":
        sys.argv = command[1:]
        runpy.run_module(command[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = command
        runpy.run_path(command[0], run_name="__main__")


if __name__ == "__main__":
    Server(socket.socket(fileno=int(sys.argv[1]))).serve()
    shutil.rmtree(sys.argv[2], ignore_errors=True)
    os._exit(0)
