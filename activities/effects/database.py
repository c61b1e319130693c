"""The store of effects that have no task: opened on first use, and used from any thread, task or forked process."""

import asyncio
import contextlib
import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from pathlib import Path
from typing import NamedTuple, TypeVar

from sqlalchemy import URL, Connection, Engine, event, func, select
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from activities.borders.sql import DATABASE_ERRORS, cause, is_unavailable
from activities.effects.ledger import LEDGER
from activities.effects.owner import after_fork
from activities.errors import DatabaseUnavailable
from activities.storage.store import (
    IDENTITY,
    Cipher,
    StoreUnavailable,
    clock,
    file_of,
    open_blocking,
    reading,
    spoken,
    writing,
)

T = TypeVar("T")
log = logging.getLogger("replan.effects")

NETWORK_FILE_SYSTEMS = (
    "nfs",
    "cifs",
    "smb",
    "9p",
    "afs",
    "ceph",
    "lustre",
    "gpfs",
    "beegfs",
    "fuse.sshfs",
    "fuse.glusterfs",
)
"""Beginnings of the names of file systems over a network: SQLite's locks, and those of owners, do not hold there."""
THREADS = 4
"""Threads that wait for PostgreSQL; SQLite has one writer at a time, and gets one thread."""
FROZEN_SECONDS = 10
"""Seconds after which PostgreSQL ends a transaction whose process does nothing, as a stopped one."""
_DIGITS = 20


class StoreMark(NamedTuple):
    """What a file beside a SQLite store says of it, to notice that another or an older file took its place."""

    store: str
    seq: int


class Database:
    """A store in SQLite or PostgreSQL. Nothing is opened before it is used."""

    def __init__(self, url: str, cipher: Cipher | None = None, *, must_exist: bool = False) -> None:
        """`url` is that of a database, or the path of a SQLite file.

        `must_exist`: for a person who looks, no store is made, and none is migrated. Raises ValueError for a text that
        is neither.
        """
        self.url = _full(url)
        self.cipher = cipher
        self._must_exist = must_exist
        self._engine: Engine | None = None
        self._opening = threading.RLock()
        self._mark: int | None = None
        self._kept = list[object]()
        after_fork(self, Database._forget)

    @property
    def engine(self) -> Engine:
        """The engine of the opened store; opens it if necessary.

        Raises:
            StoreUnavailable: it cannot be opened, or is another store, or an older copy, than the one that was here.
        """
        with self._opening:
            if self._engine is None:
                self._engine = self._open()
            return self._engine

    @property
    def is_local(self) -> bool:
        """Whether the store is a file of this machine."""
        return self.engine.dialect.name == "sqlite"

    @property
    def file(self) -> Path | None:
        """The file of a SQLite store; None for PostgreSQL. Opens nothing."""
        url = make_url(self.url)
        is_file = url.get_backend_name() == "sqlite" and url.database
        return Path(url.database or "").resolve() if is_file else None

    @property
    def file_system(self) -> str:
        """The kind of the file system that has the file of the store; empty if it is not known."""
        return _file_system(self.file, _mounts()) if self.file else ""

    @property
    def mark(self) -> StoreMark | None:
        """What the file beside a SQLite store says of it; None without one."""
        return _read_mark(self.file) if self.file else None

    @property
    def folder(self) -> Path:
        """The folder with the locks of the owners, and for SQLite with the mark of the store."""
        file = file_of(self.engine)
        if file is not None:
            return _beside(file.resolve())
        from platformdirs import user_state_path

        return user_state_path("replan") / "owners"

    def read(self, work: Callable[[Connection], T]) -> T:
        """Run `work` in a transaction that only reads; raises StoreUnavailable."""
        with self._named(), reading(self.engine).begin() as tx:
            return work(tx)

    def look(self, work: Callable[[Connection], T]) -> T:
        """`read` where speed counts: without the guard that `work` only reads."""
        with self._named(), self.engine.begin() as tx:
            return work(tx)

    def write(self, work: Callable[[Connection], T]) -> T:
        """Run `work` in a transaction that writes; raises StoreUnavailable, and then it may have been committed."""
        with self._named(), writing(self.engine).begin() as tx:
            return work(tx)

    def rehearse(self, work: Callable[[Connection], T]) -> T:
        """Run `work` in a transaction that writes, and roll it back; raises StoreUnavailable."""
        with self._named(), writing(self.engine).connect() as connection, connection.begin() as tx:
            try:
                return work(connection)
            finally:
                tx.rollback()

    def submit(self, work: Callable[[], T]) -> "Future[T]":
        """Run `work` in a thread of the store."""
        with self._opening:
            if self._threads is None:
                size = 1 if make_url(self.url).get_backend_name() == "sqlite" else THREADS
                self._threads = ThreadPoolExecutor(size, thread_name_prefix="effects")
            return self._threads.submit(copy_context().run, work)

    _threads: ThreadPoolExecutor | None = None

    def now(self, tx: Connection) -> float:
        """The time of the store's clock in seconds: nobody can set it, and all owners of the store share it."""
        if tx.dialect.name == "sqlite":
            return steady()
        return float(tx.execute(select(clock(tx))).scalar_one())

    def note(self, seq: int) -> None:
        """Write down beside a SQLite store that it has the effect number `seq`."""
        if self._mark is not None:
            with contextlib.suppress(OSError):
                os.pwrite(self._mark, f"{seq:>{_DIGITS}}".encode(), 0)

    def close(self) -> None:
        """Close all connections."""
        with self._opening:
            threads, self._threads = self._threads, None
        if threads is not None:  # without the lock, which they take when they open the store
            threads.shutdown(wait=True)
        with self._opening:
            if self._engine is not None:
                self._engine.dispose()
                self._engine = None
            if self._mark is not None:
                os.close(self._mark)
                self._mark = None

    def _open(self) -> Engine:
        file = self.file
        marked = _read_mark(file) if file else None
        if file:
            _check_place(file, marked)
        if file and self._must_exist and not file.is_file():
            raise StoreUnavailable(f"There is no store {file}: check the path, or run the program that makes it.")
        engine = open_blocking(self.url, self.cipher, may_migrate=not self._must_exist)
        if engine.dialect.name == "postgresql":
            event.listen(engine, "connect", _limit_idle)
        if file:
            right = _check_mark(engine, file, marked)
            self._mark = None if self._must_exist else _open_mark(file, marked, right)
        return engine

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        """In the block, raise StoreUnavailable in place of an error of the database."""
        try:
            yield
        except DATABASE_ERRORS as error:
            raise unavailable("The store", self.url, error) from error

    def _forget(self) -> None:
        """In a forked child: leave the connections to the parent, and begin anew."""
        self._opening = threading.RLock()
        self._kept += [self._engine, self._threads]  # to close them would harm the parent
        if self._engine is not None:
            self._engine.dispose(close=False)
        self._engine, self._threads, self._mark = None, None, None


def unavailable(what: str, url: str | URL, error: BaseException) -> StoreUnavailable:
    """The exception in place of an `error` of a database, which is named by `what` and its URL."""
    why = error.__cause__ if isinstance(error, DatabaseUnavailable) and error.__cause__ else error
    later = "try again" if is_unavailable(error) else "check it"
    return StoreUnavailable(f"{what} {spoken(url)} cannot be used ({cause(why)}): {later}.")


def steady() -> float:
    """Seconds since the boot of this machine, also while it slept: nobody can set this clock."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


async def settled(future: "Future[T]") -> tuple[T, bool]:
    """The result of a thread, and whether the task was cancelled meanwhile: a thread does not end by a cancel."""
    here, is_cancelled = asyncio.wrap_future(future), False
    while not here.done():
        try:
            await asyncio.wait([here])
        except asyncio.CancelledError:
            is_cancelled = True
    return here.result(), is_cancelled


def _full(url: str) -> str:
    """The URL of a store that may be given as the path of a SQLite file."""
    if "://" not in url:
        return f"sqlite:///{url}"
    try:
        make_url(url)
    except (ArgumentError, ValueError):
        raise ValueError(
            f"The store {spoken(url)}: use the path of a file, sqlite:///FILE.db, or postgresql://USER@HOST/DATABASE."
        ) from None
    return url


def _limit_idle(connection: object, _record: object) -> None:
    cursor = connection.cursor()  # type: ignore[attr-defined]  # any driver's
    cursor.execute(f"SELECT set_config('idle_in_transaction_session_timeout', '{FROZEN_SECONDS}s', false)")
    cursor.close()
    connection.commit()  # type: ignore[attr-defined]


def _beside(file: Path) -> Path:
    return file.with_name(f"{file.name}.owners")


def _read_mark(file: Path) -> StoreMark | None:
    """What the file beside a store says of it; None without one."""
    try:
        seq, _, mark = (_beside(file) / "store").read_text(encoding="utf-8").partition(" {")
        return StoreMark(json.loads("{" + mark)["store"], int(seq))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _check_place(file: Path, marked: StoreMark | None) -> None:
    """Raise StoreUnavailable if the file is on a network, or was here before and is gone."""
    if kind := file_system_of(file, _mounts()):
        raise StoreUnavailable(
            f"The store {file} is on a network file system ({kind}), where locks of SQLite do not hold: use a file on a"
            " disk of this machine, or PostgreSQL."
        )
    if marked is not None and not file.exists():
        raise StoreUnavailable(
            f"The store {file} is gone, and {marked.seq} effects were recorded in it: bring it back. To begin with an"
            f" empty one, delete the folder {_beside(file)}: calls that were made before may then be made again."
        )


def _check_mark(engine: Engine, file: Path, marked: StoreMark | None) -> StoreMark:
    """Compare the store with the mark beside it, and return what the mark should be.

    Raises StoreUnavailable if it is another store, or an older copy.
    """
    with reading(engine).begin() as tx:
        id = str(tx.execute(select(IDENTITY.c.id)).scalar_one())
        newest = tx.execute(select(func.max(LEDGER.c.seq))).scalar() or 0
    accept = f"To use it all the same, delete the folder {_beside(file)}: calls since then may then be made again."
    if marked is not None and (marked.store != id or marked.seq > newest):
        engine.dispose()
    if marked is not None and marked.store != id:
        raise StoreUnavailable(f"The store {file} was replaced by another one: bring the first one back. {accept}")
    if marked is not None and marked.seq > newest:
        raise StoreUnavailable(
            f"The store {file} was replaced by an older copy: it has effects up to number {newest}, and number"
            f" {marked.seq} was recorded: bring the newer one back. {accept}"
        )
    return StoreMark(id, newest)


def _open_mark(file: Path, marked: StoreMark | None, right: StoreMark) -> int:
    """Open the mark beside a store, which is made if there is none, to be kept up to date."""
    _beside(file).mkdir(exist_ok=True)
    mark = os.open(_beside(file) / "store", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if marked is None:
        os.pwrite(mark, f"{right.seq:>{_DIGITS}} {json.dumps({'store': right.store})}".encode(), 0)
    return mark


def _mounts() -> str:
    try:
        return Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def file_system_of(file: Path, mounts: str) -> str | None:
    """The kind of the network file system that has `file`, by the table `mounts` of /proc; None if it has none."""
    found = _file_system(file, mounts)
    return found if found.startswith(NETWORK_FILE_SYSTEMS) else None


def _file_system(file: Path, mounts: str) -> str:
    best, found = "", ""
    for line in mounts.splitlines():
        fields = line.split()
        if len(fields) < 3:
            continue
        mount = fields[1].replace("\\040", " ").rstrip("/") or "/"
        if (mount == "/" or file == Path(mount) or Path(mount) in file.parents) and len(mount) >= len(best):
            best, found = mount, fields[2]
    return found
