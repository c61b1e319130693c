"""The daemon of a state folder, as a program: `python -m server.gateway.daemon FOLDER [SECONDS]`.

Agents' processes start the daemon, which outlives them. Agents that start together each start a daemon: all daemons but
the first end here, before the imports that take seconds.
"""

import asyncio
import fcntl
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

LOCK = "gateway.lock"
"""The lock file in a state folder; it contains the id of the process that holds the lock."""
IDLE_SECONDS = 3600.0
"""Seconds without an agent and without an open call after which the daemon ends."""


@contextmanager
def locked(state: Path) -> Iterator[bool]:
    """Try to lock a state folder until the block ends; yields False if another process holds the lock.

    The lock file then contains the id of this process.
    """
    with (state / LOCK).open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n".encode())
        lock.flush()
        yield True


def main(state: Path, idle: float) -> int:
    """Run the daemon unless one runs already, until it is idle for `idle` seconds; returns the exit code."""
    with locked(state) as is_ours:
        if not is_ours:
            return 0
        try:
            from server.gateway import hosting

            asyncio.run(hosting.run(state, idle))
        except Exception:  # the log is all that is left of it
            traceback.print_exc()
            return 1
    return 0


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        sys.exit(main(Path(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else IDLE_SECONDS))
