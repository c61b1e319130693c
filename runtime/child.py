"""Starts and stops child processes; on Linux they end with the process that started them."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

GRACE_SECONDS = 8.0
POLL_SECONDS = 0.05

# Set in a launcher rather than in preexec_fn: the SDK's runtime has threads, and Python code between fork and exec may
# deadlock on a lock that one of them held. The kernel keeps the setting over exec, so the launcher becomes the command.
# The parent may have ended before the setting counts: then getppid() already returns another process.
_LAUNCHER = """
import ctypes, os, signal, sys
PR_SET_PDEATHSIG = 1
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
if os.getppid() != int(sys.argv[1]):
    sys.exit("the parent is gone")
os.execv(sys.argv[2], sys.argv[2:])
"""


def spawn(
    command: Sequence[str],
    log: Path,
    *,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    keep_open: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Start `command`, whose first word is an absolute path, with its output in the file `log`.

    It runs in `folder`; for None, in the current one.

    Ctrl-C does not reach the new process, which inherits the file descriptors in `keep_open`. On Linux, if this is
    called from the main thread, the kernel kills the new process when this process ends, even by a crash or a kill. On
    other systems and from other threads, only `end` stops it.
    """
    with log.open("wb") as output:
        return subprocess.Popen(  # noqa: S603 - commands are built in this room, never from a task
            [*_launcher_prefix(), *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=folder,
            pass_fds=keep_open,
            start_new_session=True,
        )


def _launcher_prefix() -> list[str]:
    # The kernel watches the thread that started the process, and only the main thread lives as long as the parent.
    if sys.platform != "linux" or threading.current_thread() is not threading.main_thread():
        return []
    return [sys.executable, "-I", "-S", "-c", _LAUNCHER, str(os.getpid())]


async def exited(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Wait at most `seconds` for the end of a process; returns whether it has ended."""
    deadline = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < deadline:  # noqa: ASYNC110 - no event tells
        await asyncio.sleep(POLL_SECONDS)
    return process.poll() is not None


async def end(process: subprocess.Popen[bytes], grace: float = GRACE_SECONDS) -> None:
    """Stop the process and its children: with SIGTERM, and after `grace` seconds with SIGKILL."""
    for number, seconds in ((signal.SIGTERM, grace), (signal.SIGKILL, GRACE_SECONDS)):
        if process.poll() is not None:
            return
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)  # `start_new_session` made it the leader of a group
        await exited(process, seconds)


def last_line(log: Path) -> str:
    """The last line with text in a log file, or `it printed nothing`."""
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else "it printed nothing"
