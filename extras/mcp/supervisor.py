"""Runs the process of an MCP server, and ends it with all its children when the worker is gone, also after a kill -9.

python supervisor.py FD RECORD COMMAND...

FD is the reading end of a pipe that only the worker can write to. RECORD is the descriptor of a file to which a line
`PID START` is added for the server's process, which leads a session of its own; `-` for none.

It is a program of its own, started without site packages: it must stay small, and import nothing of Replan.
"""

import contextlib
import os
import select
import signal
import sys

PATIENCE = 2.0
"""Seconds that processes have to end by themselves before they are killed."""
LOOK_SECONDS = 1.0
"""Seconds between two looks for the parent: what a tool has forked keeps the worker's end of the pipe open."""


def main() -> int:
    """Run the command, and return its exit code; 127 if the command cannot be started, with the reason on stderr."""
    worker, record, command = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
    parent = os.getppid()
    woken, wake = os.pipe()
    for end in (woken, wake):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(wake)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    for descriptor in filter(str.isdecimal, sys.argv[1:3]):
        os.set_inheritable(int(descriptor), False)
    try:
        child = os.posix_spawnp(
            command[0], command, os.environ, setsid=True, setsigdef=[signal.SIGCHLD, signal.SIGTERM, signal.SIGINT]
        )
    except OSError as error:
        sys.stderr.write(f"{command[0]} cannot be started: {error.strerror}\n")
        return 127
    if record != "-":
        os.write(int(record), f"{child} {started(child)}\n".encode())
        os.close(int(record))
    for standard in (0, 1, 2):  # else the worker would not see that the server closed its own
        os.close(standard)
    ended = None
    while ended is None:
        ready, _, _ = select.select([worker, woken], [], [], LOOK_SECONDS)
        signals = os.read(woken, 64) if woken in ready else b""
        if os.getppid() != parent or worker in ready or signal.SIGTERM in signals or signal.SIGINT in signals:
            _signal(child, signal.SIGTERM)
            select.select([woken], [], [], PATIENCE)
            break
        ended = _exit_code(child)
    _signal(child, signal.SIGKILL)  # also what the server has left behind
    return (ended if ended is not None else _exit_code(child, wait=True)) or 0


def started(process: int) -> str:
    """When a process was started, in a form that differs from that of each other process with its id; empty if gone."""
    try:
        with open(f"/proc/{process}/stat", "rb") as stat:  # noqa: PTH123  # no pathlib: it takes most of our start
            return stat.read().rpartition(b")")[2].split()[19].decode()
    except OSError:
        if os.path.isdir("/proc/self"):  # noqa: PTH112
            return ""
    with os.popen(f"ps -o lstart= -p {int(process)}") as output:  # noqa: S605  # a number
        return output.read().strip().replace(" ", "_")


def _signal(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _exit_code(child: int, *, wait: bool = False) -> int | None:
    """The exit code of the process `child`, modulo 256; None if the process still runs and `wait` is false."""
    try:
        found, status = os.waitpid(child, 0 if wait else os.WNOHANG)
    except ChildProcessError:
        return 0
    return os.waitstatus_to_exitcode(status) & 0xFF if found else None


if __name__ == "__main__":
    sys.exit(main())
