"""The holder of some tools in one session, as a program: `python -m extras.gateway.holder STATE NAME SECONDS HELLO`.

A bridge starts it. Bridges that start together each start one: all but the first end here, before the imports that take
a second. Those imports are made while the server of the tools starts.
"""

import asyncio
import fcntl
import gc
import json
import os
import socket
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from extras.gateway.bridge import HolderPlace, name_of, server_variables
from extras.mcp.process import ServerProcess, end_recorded, program

if TYPE_CHECKING:  # at run time only when all is imported
    from extras.gateway.wire import Hello

LOCK_SECONDS = 5.0
"""Seconds to wait for the end of a holder that does not listen any more."""
BACKLOG = 256


def main(state: str, name: str, idle: float, data: dict[str, Any]) -> int:
    """Be the holder unless there is one, until it is idle for `idle` seconds; returns the exit code."""
    place = HolderPlace(state, name)
    lock = _locked(place)
    if lock is None:
        return 0
    try:
        record = Path(place.file("servers"))
        end_recorded(record)  # before any call of the session is made, or its outcome is looked for
        listener = _listener(place)
        process = _started(data, record)
        gc.disable()  # it takes a sixth of the time of the imports
        from extras.gateway import bridged

        gc.freeze()
        gc.enable()
        asyncio.run(bridged.run(place, data, idle, listener, process))
        record.unlink(missing_ok=True)
    except Exception:  # the log is all that is left of it
        traceback.print_exc()
        return 1
    return 0


@contextmanager
def alone(state: Path, hello: "Hello") -> Iterator[Path | None]:
    """Lock the place of a gateway over HTTP until the block ends, and end what an earlier one has left behind.

    Yields the file for the processes of servers; None if another gateway has the place.
    """
    data = hello.model_dump(mode="json")
    place = HolderPlace(str(state), name_of(data, os.environ))
    Path(place.file("lock")).parent.mkdir(mode=0o700, exist_ok=True)
    lock, record = _locked(place, 0.0), Path(place.file("servers"))
    if lock is None:
        yield None
        return
    try:
        end_recorded(record)
        yield record
        record.unlink(missing_ok=True)
    finally:
        os.close(lock)


def _locked(place: HolderPlace, seconds: float = LOCK_SECONDS) -> int | None:
    """Lock the place; None if another holder listens there, or does not end within `seconds`."""
    lock = os.open(place.file("lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    until = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if os.path.exists(place.socket) or time.monotonic() > until:  # noqa: PTH110
                os.close(lock)
                return None
            time.sleep(0.02)
            continue
        os.ftruncate(lock, 0)
        os.write(lock, f"{os.getpid()}\n".encode())
        return lock


def _listener(place: HolderPlace) -> socket.socket:
    """Listen at the place, in place of a holder that was killed. Others of this machine cannot connect."""
    path, made = place.socket, f"{place.socket}.new"
    for old in (path, made):
        Path(old).unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    before = os.umask(0o177)
    try:
        listener.bind(made)
    finally:
        os.umask(before)
    listener.listen(BACKLOG)
    Path(made).rename(path)
    listener.setblocking(False)
    return listener


def _started(data: dict[str, Any], record: Path) -> ServerProcess | None:
    """Start the server of a command; None if there is none, or if it cannot be started, of which is told later."""
    if not data["command"]:
        return None
    variables = server_variables(os.environ)
    try:
        command = [program(data["command"][0], variables.get("PATH")), *data["command"][1:]]
        return ServerProcess(command, variables, data["cwd"], record)
    except OSError:
        return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], float(sys.argv[3]), json.loads(sys.argv[4])))
