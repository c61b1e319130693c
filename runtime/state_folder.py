"""The state folder of a worker: which development server uses it, and the address of that server."""

import fcntl
import json
import os
import time
from pathlib import Path
from typing import IO

DEFAULT = Path(".replan")
VARIABLE = "REPLAN_STATE"
_LOCK, _SERVER = "temporal.lock", "server.json"
_READER_SECONDS = 0.1
"""Seconds to wait before the lock is tried again; a process that only reads the address holds it for less time."""


def default() -> Path:
    """The state folder that the environment names, else `.replan`."""
    return Path(os.environ.get(VARIABLE) or DEFAULT)


def lock(folder: Path) -> IO[bytes]:
    """Lock the databases of a state folder, and return the lock file.

    The lock lasts until the file is closed, also in child processes that inherited the file.

    Raises:
        BlockingIOError: a server uses the databases.
    """
    file = (folder / _LOCK).open("wb")
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_READER_SECONDS)
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise
    return file


def announce(folder: Path, address: str, ui_url: str) -> None:
    """Write the address of the server that uses a state folder into the folder, for `server_address`."""
    written = folder / f"{_SERVER}.new"
    written.write_text(json.dumps({"address": address, "ui_url": ui_url}) + "\n", encoding="utf-8")
    written.replace(folder / _SERVER)


def server_address(folder: Path) -> str | None:
    """The `host:port` of the development server that uses a state folder; None if no server uses it."""
    try:
        with (folder / _LOCK).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:  # a server holds the lock, so the address is its own and no older one's
        try:
            return str(json.loads((folder / _SERVER).read_text(encoding="utf-8"))["address"])
        except (OSError, ValueError, LookupError, TypeError):  # not written yet, or by another version
            return None
    except OSError:
        return None
    return None
