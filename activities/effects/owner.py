"""The processes that make calls with effects: which of them certainly live, and which are certainly dead.

A call without a result belongs to an owner. Its process holds a lock on a file of its own, which the kernel frees when
the process ends, however it ends; a stopped process keeps the lock. The row of the owner names the file by device and
inode, since a lock of another file with the same name proves nothing, and its process by boot, namespace, id and start.
"""

import fcntl
import os
import secrets
import socket
import weakref
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import BigInteger, Column, Float, Integer, String, Table

from activities.storage.store import REPLAN_TABLES, Moment

OWNERS = Table(
    "replan_owners",
    REPLAN_TABLES,
    Column("id", String(32), primary_key=True),
    Column("host", String(300), nullable=False),
    Column("boot", String(64), nullable=False),
    Column("pid", Integer, nullable=False),
    Column("pid_namespace", BigInteger, nullable=False),
    Column("started", BigInteger, nullable=False),
    Column("lock_file", String(1000), nullable=False),
    Column("device", BigInteger, nullable=False),
    Column("inode", BigInteger, nullable=False),
    Column("lease", Float),
    Column("ended_at", Moment),
    Column("died_at", Moment),
)
"""A row for each owner. `lease` is a time of the database's clock, for owners that share it over a network; `ended_at`
is set by an owner that ends in order, `died_at` by another one that has proven its death."""

_STARTED = b"s"
"""What the lock file of an owner holds after one of its calls started a process, which may outlive the owner."""
_FRESH = b"-"


class Life(Enum):
    """What is known of an owner."""

    LIVES = "lives"
    """Its process certainly runs, though it may be stopped."""
    SEEN = "seen"
    """It runs on another machine, and gave a sign of life lately; it may be dead since then."""
    ENDED = "ended"
    """It ended in order: whatever it returned was handed over."""
    DEAD = "dead"
    """Its process is certainly gone, without having ended in order."""
    UNKNOWN = "unknown"
    """It runs on another machine and has not renewed its lease; it may live."""


class Owner:
    """This process as an owner, from its first call until `close`; a forked child is an owner of its own."""

    def __init__(self, folder: Path, *, is_watched: bool) -> None:
        """Lock a new file in `folder`. Without `is_watched`, nobody counts the processes that calls start."""
        self.id = secrets.token_hex(8)
        folder.mkdir(parents=True, exist_ok=True)
        self.file = folder / f"{self.id}.lock"
        self._lock = os.open(self.file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.pwrite(self._lock, _FRESH if is_watched else _STARTED, 0)
        self._close = weakref.finalize(self, os.close, self._lock)
        self._close.atexit = False  # the kernel frees it after all that may still be recorded
        after_fork(self, Owner._forget)

    @property
    def row(self) -> dict[str, Any]:
        """The values of the owner's row by column."""
        status, (started, _) = os.fstat(self._lock), _process(os.getpid())
        return {
            "id": self.id,
            "host": socket.gethostname(),
            "boot": boot_id(),
            "pid": os.getpid(),
            "pid_namespace": _pid_namespace(),
            "started": started,
            "lock_file": str(self.file.absolute()),
            "device": status.st_dev,
            "inode": status.st_ino,
        }

    def note_started_process(self) -> None:
        """Note that a call started a process, which may go on when this one is dead."""
        with suppress(OSError):
            os.pwrite(self._lock, _STARTED, 0)

    def close(self, *, is_in_order: bool) -> None:
        """Free the lock; if the owner ended in order, its file is not needed any more."""
        if self._close.detach():
            if is_in_order:
                with suppress(OSError):
                    self.file.unlink()
            os.close(self._lock)

    def _forget(self) -> None:
        """In a forked child: give the lock back to the parent alone, which would seem to live as long as the child."""
        if self._close.detach():
            os.close(self._lock)


class Evidence(NamedTuple):
    """What this process can find out about an owner."""

    life: Life
    has_started_processes: bool = False
    """Whether a process that one of its calls has started may still run."""


def evidence(row: Any, now: float, *, is_local: bool) -> Evidence:
    """What is known of the owner with this `row` of OWNERS; `now` is the time of the store's clock.

    `is_local`: the store is a file of this machine, so all its owners run, or ran, here.
    """
    if row.ended_at is not None:
        return Evidence(Life.ENDED)
    if row.died_at is not None:
        return Evidence(Life.DEAD, _has_started(row))
    if row.boot != boot_id():
        # A file of this machine is used by its own kernel only, so the kernel of the owner is gone.
        if is_local:
            return Evidence(Life.DEAD)
        return Evidence(_by_lease(row, now))
    is_dead = is_unlocked(row.lock_file, (row.device, row.inode))
    if is_dead is None:
        is_dead = _is_gone(row)
    if is_dead:
        return Evidence(Life.DEAD, _has_started(row))
    return Evidence(Life.LIVES if is_dead is False else _by_lease(row, now))


def _by_lease(row: Any, now: float) -> Life:
    return Life.SEEN if row.lease is not None and row.lease > now else Life.UNKNOWN


def is_unlocked(path: str, number: tuple[int, int] | None = None) -> bool | None:
    """Whether nobody holds the lock of an owner; None if its file cannot be asked.

    `number`: the device and the inode that the file must have.
    """
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        status = os.fstat(file)
        if number is not None and (status.st_dev, status.st_ino) != number:
            return None
        # Each owner locks a file of its own before its row is there, so who only asks is in nobody's way.
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    finally:
        os.close(file)
    return True


def _is_gone(row: Any) -> bool | None:
    """Whether the process of an owner of this boot is gone; None if it cannot be seen from here."""
    if row.pid_namespace != _pid_namespace() or not row.started:
        return None
    started, is_zombie = _process(row.pid)
    if started:
        return started != row.started or is_zombie
    try:
        os.kill(row.pid, 0)
    except ProcessLookupError:
        return True
    except OSError:  # it is somebody else's
        return None
    return None


def _has_started(row: Any) -> bool:
    try:
        return Path(row.lock_file).read_bytes()[:1] != _FRESH
    except OSError:
        return True


@cache
def boot_id() -> str:
    """The id of this boot of the machine; its name where the system gives no such id."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return f"host:{socket.gethostname()}"


def _pid_namespace() -> int:
    """The inode of the namespace of process ids: in each container, a process may have the id 1."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino  # noqa: PTH116  # the file is a link to no path
    except OSError:
        return 0


def _process(pid: int) -> tuple[int, bool]:
    """When a process began, in ticks since the boot (0 if it cannot be read), and whether it is a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return 0, False
    fields = text.rpartition(")")[2].split()  # the name of a program may hold anything
    return int(fields[19]), fields[0] in "ZX"


def after_fork(owner: Any, forget: Callable[[Any], object]) -> None:
    """Call `forget(owner)` in each forked child, as long as `owner` is there."""
    reference = weakref.ref(owner)

    def in_child() -> None:
        if (here := reference()) is not None:
            forget(here)

    os.register_at_fork(after_in_child=in_child)
