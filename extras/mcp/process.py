"""The process of an MCP server: how it is started, and how one that its owner has left behind is ended.

It is imported before the SDK, so that a server starts while the SDK is still imported: it must stay small.
"""

import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from extras.mcp import supervisor

LOOK_SECONDS = 0.01


class ServerProcess:
    """The supervisor of a server's process, with the server's pipes."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], cwd: str | None, record: Path | None):
        """Start it. A line for the server's process is added to the file `record`. Raises OSError."""
        watched, kept = os.pipe()  # only this process has the writing end: when it is gone, the supervisor notices
        noted = -1
        try:
            noted = -1 if record is None else os.open(record, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            passed = [watched, *([noted] if record else [])]
            program = [sys.executable, "-I", "-S", supervisor.__file__, str(watched), str(noted) if record else "-"]
            self.popen = subprocess.Popen(  # noqa: S603  # the command of the user's tools file
                [*program, *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                env=dict(environment),
                cwd=cwd,
                pass_fds=passed,
                start_new_session=True,
            )
        except BaseException:
            os.close(kept)
            raise
        finally:
            os.close(watched)
            if noted >= 0:
                os.close(noted)
        self._kept = kept

    @property
    def has_ended(self) -> bool:
        """Whether the server has ended, with what was left of its session; a killed supervisor proves nothing."""
        code = self.popen.poll()
        return code is not None and code >= 0

    def let_go(self) -> None:
        """Let the supervisor end the server, which it does within a few seconds."""
        if self._kept >= 0:
            os.close(self._kept)
            self._kept = -1


def program(name: str, path: str | None) -> str:
    """Find a program: on `path`, else beside the Python that runs, where pip has put it. A path is not changed.

    Raises FileNotFoundError if it is in neither place.
    """
    if Path(name).name != name:
        return name
    if found := shutil.which(name, path=path) or shutil.which(name, path=str(Path(sys.executable).parent)):
        return found
    raise FileNotFoundError(errno.ENOENT, "it is not on PATH: install it, or write its path", name)


def end_recorded(record: Path) -> None:
    """Kill the servers that an owner which is gone has left behind, and return when none runs any more.

    The record is then empty. Processes that a server has put into a session of their own are not seen.
    """
    try:
        lines = record.read_text(encoding="ascii", errors="replace").splitlines()
    except FileNotFoundError:
        return
    leaders = {int(line.split()[0]): line.split()[1:] for line in lines if line.split()[:1] and line[0].isdecimal()}
    while found := [*_of_sessions(leaders)]:
        for process in found:
            try:
                os.kill(process, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue
        time.sleep(LOOK_SECONDS)
    record.unlink(missing_ok=True)


def _of_sessions(leaders: Mapping[int, Sequence[str]]) -> Iterator[int]:
    """Yield the processes in the sessions of these leaders, which are given with the times of their start."""
    if not leaders:
        return
    others = {leader for leader, started in leaders.items() if (now := supervisor.started(leader)) and [now] != started}
    for process in _processes():
        try:
            session = os.getsid(process)
        except OSError:
            continue
        if session in leaders and session not in others and not _is_dead(process):
            yield process


def _processes() -> Iterator[int]:
    if os.path.isdir("/proc/self"):  # noqa: PTH112
        yield from (int(name) for name in os.listdir("/proc") if name.isdecimal())  # noqa: PTH208
        return
    listed = subprocess.run(["/bin/ps", "-axo", "pid="], capture_output=True, check=False)
    yield from (int(word) for word in listed.stdout.split())


def _is_dead(process: int) -> bool:
    """Whether a process has ended, and only waits for its parent to notice."""
    try:
        stat = Path(f"/proc/{process}/stat").read_bytes()
    except OSError:
        return os.path.isdir("/proc/self")  # noqa: PTH112
    return stat.rpartition(b")")[2].split()[0] in (b"Z", b"X")
