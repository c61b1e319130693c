"""The store (Replan's own database) and the databases of tools: opening them, and how SQLite and PostgreSQL differ."""

import asyncio
import os
import socket
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from contextvars import copy_context
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar
from urllib.parse import unquote

from sqlalchemy import (
    Column,
    ColumnElement,
    DateTime,
    Float,
    MetaData,
    String,
    Table,
    Text,
    create_engine,
    event,
    func,
    inspect,
    literal,
    select,
)
from sqlalchemy.engine import URL, Connection, Engine, ExceptionContext, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.types import TypeDecorator

from activities.borders.sql import DATABASE_ERRORS, cause, is_unavailable
from activities.errors import DatabaseFileGone, DatabaseUnavailable, WriteInReadTransaction
from activities.storage.migrations import Newer, Older, Stream, is_newest, migrate, reached

T = TypeVar("T")
E = TypeVar("E", Engine, AsyncEngine)

BUSY_TIMEOUT = 5.0
"""Seconds that a statement waits for a lock."""
SHORT_TIMEOUT = 0.1
"""Seconds for which the thread of the store waits for a lock; a cancel waits for the thread."""

_READ_ONLY = ("SQLITE_READONLY", "25006")
"""The codes of SQLite and PostgreSQL for a write in a transaction that may only read."""


class _File(NamedTuple):
    """The identity of a file, which shows whether another file has its path by now."""

    path: str
    device: int
    number: int

    @classmethod
    def at(cls, path: str) -> "_File | None":
        """The identity of the file at `path`; None if there is no file."""
        try:
            status = os.stat(path)  # noqa: PTH116  # on each transaction
        except OSError:
            return None
        return cls(path, status.st_dev, status.st_ino)


_CIPHER = "replan_cipher"
"""The attribute of an engine's dialect that holds the cipher; an engine shares its dialect only with its twins."""
_PLAINTEXT = "replan"
"""A text that each key of a store has encrypted once, so that a worker can detect another key with the same id."""


class Cipher(Protocol):
    """Encrypts the texts of a store; `runtime.keys.Keyring` is one."""

    @property
    def ids(self) -> Sequence[str]:
        """The ids of the cipher's keys; the first key encrypts."""

    def seal(self, text: str) -> str:
        """Encrypt a text with the first key."""

    def open(self, text: str) -> str:
        """Decrypt a text; a text that was written in clear is returned unchanged."""


class SealedText(TypeDecorator[str]):
    """A text with values of tasks: encrypted in a database that was opened with a Cipher, else in clear."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Any) -> str | None:
        cipher: Cipher | None = getattr(dialect, _CIPHER, None)
        return value if value is None or cipher is None else cipher.seal(value)

    def process_result_value(self, value: str | None, dialect: Any) -> str | None:
        cipher: Cipher | None = getattr(dialect, _CIPHER, None)
        return value if value is None or cipher is None else cipher.open(value)


def tune(sync: Engine) -> None:
    """Configure an engine for Replan; a second call changes nothing."""
    if not event.contains(sync, "handle_error", _translate_write_in_read_transaction):  # twins share it
        event.listen(sync, "handle_error", _translate_write_in_read_transaction)
    sync.hide_parameters = True  # messages go to the log
    if sync.dialect.name == "sqlite" and not event.contains(sync, "begin", _begin_sqlite):
        event.listen(sync, "connect", _set_up_sqlite)
        event.listen(sync, "begin", _begin_sqlite)
        event.listen(sync, "invalidate", _roll_back)
    if sync.dialect.name == "postgresql" and not event.contains(sync, "connect", _set_up_postgresql):
        event.listen(sync, "connect", _set_up_postgresql)


def expect_file(engine: Engine | AsyncEngine) -> None:
    """Make later transactions and connections raise DatabaseFileGone if the SQLite file was deleted or replaced.

    An engine without a file, such as one for PostgreSQL, is left as it is.
    """
    # Writes to a deleted file are lost with the process, and a new file does not have the effects that were applied.
    path = file_of(engine)
    file = _File.at(str(path.absolute())) if path else None
    if file is None:
        return

    def check(*_event: Any) -> None:
        if _File.at(file.path) != file:
            raise DatabaseFileGone(file.path)

    writer = _writer_of(engine) if isinstance(engine, AsyncEngine) else None
    own = engine.sync_engine if isinstance(engine, AsyncEngine) else engine
    for sync in (own, *([writer.engine] if writer else [])):
        event.listen(sync, "do_connect", check)
        event.listen(sync, "begin", check, insert=True)


IN_FILE = "use a file, as in sqlite+aiosqlite:///FILE.db"


def file_of(engine: Engine | AsyncEngine) -> Path | None:
    """The file of a SQLite database that is not in memory; None for PostgreSQL."""
    return _file_at(engine.url) if engine.dialect.name == "sqlite" else None


def _file_at(url: URL) -> Path:
    """The file that a URL of SQLite names; SQLite reads a name that begins with `file:` as a URL of its own."""
    database = url.database or ""
    if not database.startswith("file:"):
        return Path(database)
    return Path(unquote(database.removeprefix("file:").partition("?")[0].removeprefix("//")))


def is_in_memory(engine: Engine | AsyncEngine) -> bool:
    """Whether the database is SQLite without a file: two event loops cannot use it, and it does not outlive them."""
    database = engine.url.database or ":memory:"
    name, _, query = database.removeprefix("file:").partition("?")
    is_named = name == ":memory:" or (database.startswith("file:") and "mode=memory" in query)
    return engine.dialect.name == "sqlite" and (is_named or "memory" in engine.url.query.get("mode", ""))


def twin(engine: AsyncEngine) -> AsyncEngine:
    """An engine for the same open database with connections of its own, since a connection belongs to one event loop.

    It has the execution options of `engine`.
    """
    sync = engine.sync_engine
    made = AsyncEngine(
        Engine(sync.pool.recreate(), sync.dialect, sync.url, execution_options=sync.get_execution_options())
    )
    tune(made.sync_engine)
    if _writer_of(engine):
        _add_writer(made)
    expect_file(made)
    return made


def _translate_write_in_read_transaction(context: ExceptionContext) -> None:
    # The code alone is no proof: a database that is read-only gives the same.
    error, connection = context.original_exception, context.connection
    code = getattr(error, "sqlite_errorname", None) or getattr(error, "sqlstate", None)
    reads = connection is not None and connection.get_execution_options().get("replan_reads")
    if reads and code in _READ_ONLY:
        raise WriteInReadTransaction("a write in a transaction that only reads")


def _set_up_sqlite(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # the driver begins no transaction by itself
    cursor = connection.cursor()
    try:
        for pragma in (
            "journal_mode=WAL",
            "synchronous=FULL",
            "foreign_keys=ON",
            f"busy_timeout={int(BUSY_TIMEOUT * 1000)}",
        ):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()
    except BaseException:
        connection.close()  # the pool forgets the connection, and its thread would stay
        raise


def _roll_back(connection: Any, _record: Any, _error: BaseException | None) -> None:
    """Free the lock of an invalidated connection; for example, a cancel during a statement invalidates a connection."""
    # SQLite keeps a connection and its transaction open as long as there is a reference to a cursor of it.
    if connection is not None:
        with suppress(sqlite3.Error, DBAPIError, ValueError):  # it is closed, or there is nothing to roll back
            connection.rollback()


def _begin_sqlite(connection: Connection) -> None:
    writes = connection.get_execution_options().get("replan_writes")
    reads = bool(connection.get_execution_options().get("replan_reads"))
    if connection.info.get("replan_reads", False) is not reads:  # the pragma stays with the pooled connection
        connection.exec_driver_sql(f"PRAGMA query_only={int(reads)}")
        connection.info["replan_reads"] = reads
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _set_up_postgresql(connection: Any, _record: Any) -> None:
    """Let a new connection wait at most BUSY_TIMEOUT for a lock, unless the server or the URL sets a limit."""
    cursor = connection.cursor()
    milliseconds = int(BUSY_TIMEOUT * 1000)
    cursor.execute(
        f"SELECT set_config('lock_timeout', '{milliseconds}', false) WHERE current_setting('lock_timeout') = '0'"
    )
    cursor.close()
    connection.commit()  # a rollback would take the setting back


metadata = MetaData()
"""The tables that tools declare for the store; a worker that starts creates the missing tables."""

REPLAN_TABLES = MetaData()
"""Replan's own tables, which migrations create and change."""

IDENTITY = Table("replan_store", REPLAN_TABLES, Column("id", String(36), primary_key=True))
"""One row: the id of the store, which it keeps when it is moved or restored."""
KEYS = Table(
    "replan_keys", REPLAN_TABLES, Column("id", String(64), primary_key=True), Column("check", Text, nullable=False)
)
"""The keys that have encrypted something in this store; `check` is `_PLAINTEXT`, encrypted with the key."""
CHECKED = Table(
    "replan_checked",
    REPLAN_TABLES,
    Column("namespace", String(200), primary_key=True),
    Column("queue", String(1000), primary_key=True),
    Column("version", String(100), primary_key=True),
)
"""The versions of Replan that can continue the tasks of a queue: the workers of a version check this once."""

CONNECT_SECONDS, POOL_SECONDS = 5, 10
"""The longest waits, in seconds, for a new connection to PostgreSQL and for a free connection of the pool."""


def sqlite_url(state: Path) -> str:
    """The URL of the SQLite store in the folder `state`."""
    return URL.create("sqlite+aiosqlite", database=str(state / "store.db")).render_as_string()  # with % for a ? in it


_OF_WORKER = (
    "check --store, REPLAN_STORE, --state",
    "start a newer Replan, or another --store",
    "use another --store, or delete this one",
)
"""The remedies of `_opening` for a store that a worker cannot open."""
_DROP_LEDGER = "use another database, or drop its tables replan_ledger and replan_ledger_revision"
"""The remedy for a datasource with a ledger of a version before 0.2.0: its other tables are the tool's."""


class StoreUnavailable(Exception):
    """A database cannot be opened; the message names it without its password, and says what to check."""


async def open_store(url: str, cipher: Cipher | None = None) -> AsyncEngine:
    """Open the store at `url`, migrate Replan's tables to the newest revision, and create missing tables of tools.

    With a `cipher`, values of tasks are written encrypted.

    Raises:
        StoreUnavailable: the store cannot be opened, is of a newer Replan or of one before 0.2.0, or needs a key that
            is missing.
    """
    with _opening("The store", url, *_OF_WORKER):
        engine = _engine(url)
        if is_in_memory(engine):
            raise StoreUnavailable(f"The store {spoken(url)} is a database in memory: {IN_FILE}.")
        setattr(engine.dialect, _CIPHER, cipher)
        if file_of(engine):
            _add_writer(engine)
        await _prepare(engine, Stream.LEDGER, Stream.STORE, tables=metadata)
        try:
            await _require_keys(engine, cipher)
        except BaseException:
            await engine.dispose()
            raise
    return engine


def open_blocking(url: str, cipher: Cipher | None = None, *, may_migrate: bool = True) -> Engine:
    """Open the same store as `open_store`, for a program that need not have an event loop.

    Raises as `open_store`; without `may_migrate` also StoreUnavailable if the store would have to be migrated.
    """
    remedies = "check the URL", "use a newer Replan, or another store", "use another store, or delete this one"
    with _opening("The store", url, *remedies):
        parsed = make_url(url)
        driver = _BLOCKING.get(parsed.get_backend_name())
        if driver is None:
            raise StoreUnavailable(f"The store {spoken(url)} is neither SQLite nor PostgreSQL: use one of them.")
        engine = _blocking_engine(parsed.set(drivername=driver))
        if is_in_memory(engine):
            raise StoreUnavailable(
                f"The store {spoken(url)} is a database in memory: use a file, as in sqlite:///FILE.db."
            )
        setattr(engine.dialect, _CIPHER, cipher)
        _prepare_blocking(engine, Stream.LEDGER, Stream.STORE, may_migrate=may_migrate)
        try:
            with reading(engine).begin() as tx:
                is_new = _is_new_key(tx, cipher, engine.url)
            if is_new and cipher is not None:
                with writing(engine).begin() as tx:
                    insert_new(tx, KEYS, _check_row(cipher))
        except BaseException:
            engine.dispose()
            raise
    return engine


def adopt_blocking(engine: Engine, cipher: Cipher | None = None) -> None:
    """`adopt` for an engine that is used without an event loop; raises as `adopt`."""
    setattr(engine.dialect, _CIPHER, cipher)
    check = "check that the program may create tables there"
    with _opening("The datasource", engine.url, check, "use a newer Replan", _DROP_LEDGER):
        _prepare_blocking(engine, Stream.LEDGER)


_BLOCKING = {"sqlite": "sqlite+pysqlite", "postgresql": "postgresql+psycopg"}
"""The drivers of `open_blocking`, by the name of the database."""


def _prepare_blocking(engine: Engine, *streams: Stream, may_migrate: bool = True) -> None:
    """`_prepare` for an engine without an event loop."""
    tune(engine)
    engine.dispose()  # connections from before are not tuned
    if engine.dialect.name == "sqlite":
        _open_file(engine)
    try:
        with reading(engine).connect() as connection:
            is_ready = _is_prepared(connection, streams, None)
        if not is_ready:
            if not may_migrate:
                raise StoreUnavailable(
                    f"{spoken(engine.url)} has no effects yet, or is of an older Replan: the program that uses it"
                    " brings it up to date when it starts."
                )
            with writing(engine).begin() as tx:
                migrate(tx, *streams)
    except BaseException:
        engine.dispose()
        raise
    expect_file(engine)


async def store_id(engine: AsyncEngine) -> str:
    """The id of the store, the same for all its workers."""
    async with reading(engine).begin() as tx:
        return str((await tx.execute(select(IDENTITY.c.id))).scalar_one())


class Peeked(NamedTuple):
    """What a store says before it is opened."""

    id: str | None = None
    """The id of the store; None if it does not exist yet."""
    is_checked: bool = False
    """Whether it records that this version can continue the unfinished tasks of the queue."""
    place: str = ""
    """Where it is, with the name of this machine for a file, and without a password."""


async def peek(url: str, namespace: str, queue: str, version: str) -> Peeked:
    """What the store at `url` says of itself, and of a queue and this version.

    The store is not migrated: a worker of the version before can still open the store, and finish the queue's tasks.

    Raises:
        StoreUnavailable: the store cannot be opened, or is of a newer Replan or of one before 0.2.0.
    """
    row = (CHECKED.c.namespace == namespace, CHECKED.c.queue == queue, CHECKED.c.version == version)

    def look(connection: Connection) -> tuple[str | None, bool]:
        if reached(connection, Stream.STORE) is None:
            return None, False
        id = connection.execute(select(IDENTITY.c.id)).scalar()
        return id, connection.execute(select(CHECKED.c.queue).where(*row)).first() is not None

    with _opening("The store", url, *_OF_WORKER):
        engine = _engine(url)
        file = file_of(engine)
        place = f"{file.absolute()} on {socket.gethostname()}" if file else spoken(url)
        if file and not file.exists():
            return Peeked(place=place)
        try:
            if file:
                await asyncio.to_thread(_open_file, engine)
            async with engine.connect() as connection:
                return Peeked(*await connection.run_sync(look), place)
        finally:
            await engine.dispose()


async def note_checked(engine: AsyncEngine, namespace: str, queue: str, version: str) -> None:
    """Record that this version can continue the unfinished tasks of a queue, so that no worker checks this again."""
    row = {"namespace": namespace, "queue": queue, "version": version}
    await write(engine, lambda tx: insert_new(tx, CHECKED, row))


async def _prepare(engine: AsyncEngine, *streams: Stream, tables: MetaData | None = None) -> None:
    """Tune an engine, migrate the tables of `streams`, and create those of `tables` that are missing."""
    tune(engine.sync_engine)
    await engine.dispose()  # connections from before are not tuned
    if file_of(engine):
        await asyncio.to_thread(_open_file, engine)

    def prepare(connection: Connection) -> None:
        migrate(connection, *streams)
        if tables is not None:
            tables.create_all(connection)

    try:
        # A worker that is frozen may hold the lock for writing, and others must be able to start.
        async with reading(engine).connect() as connection:
            is_ready = await connection.run_sync(_is_prepared, streams, tables)
        if not is_ready:
            await write(engine, prepare)  # two workers may open a new store at the same moment
    except BaseException:
        await engine.dispose()
        raise
    expect_file(engine)


def _is_prepared(connection: Connection, streams: Sequence[Stream], tables: MetaData | None) -> bool:
    present = inspect(connection).get_table_names()
    return is_newest(connection, *streams) and (tables is None or {*tables.tables}.issubset(present))


async def adopt(engine: AsyncEngine, cipher: Cipher | None = None) -> None:
    """Configure a tool's database like the store, and bring the ledger in it to the newest revision.

    Raises:
        StoreUnavailable: the database cannot be opened, or its ledger is of a newer Replan or of one before 0.2.0.
    """
    check = "check its URL in the tools file, and that the worker may create tables there"
    setattr(engine.dialect, _CIPHER, cipher)
    with _opening("The datasource", engine.url, check, "start a newer Replan", _DROP_LEDGER):
        await _prepare(engine, Stream.LEDGER)


class Datasources:
    """The store and the databases of the tools: all databases with a ledger."""

    def __init__(self, store: AsyncEngine, datasources: Iterable[AsyncEngine | None] = ()) -> None:
        """`store` is open already. `datasources` has the database of each tool, None for a tool that uses the store."""
        self.store = store
        self._datasources = tuple(dict.fromkeys(engine for engine in datasources if engine is not None))

    def __iter__(self) -> Iterator[AsyncEngine]:
        """Each database once, the store first, even if several engines connect to one database."""
        databases = dict[object, AsyncEngine]()
        for engine in (self.store, *self._datasources):
            databases.setdefault(engine.url.set(query={}), engine)  # two URLs may differ only in their query
        return iter(databases.values())

    @asynccontextmanager
    async def twins(self) -> AsyncIterator["Datasources"]:
        """The same databases for another event loop; their connections are closed when the block ends."""
        made = Datasources(twin(self.store), map(twin, self._datasources))
        try:
            yield made
        finally:
            for engine in (made.store, *made._datasources):
                await engine.dispose()

    async def open(self, opened: AsyncExitStack) -> None:
        """Open the databases of the tools with `adopt`; they are closed when `opened` exits.

        Raises:
            StoreUnavailable: a database cannot be opened; the message names it.
        """
        for engine in self._datasources:
            opened.push_async_callback(engine.dispose)  # before `adopt`, which may fail
            await adopt(engine, getattr(self.store.sync_engine.dialect, _CIPHER, None))


@contextmanager
def _opening(what: str, url: str | URL, check: str, newer: str, older: str) -> Iterator[None]:
    """In the block, raise StoreUnavailable in place of each error that can occur when a database is opened.

    `what` names the database. `check` is the remedy, `newer` if a newer Replan has migrated the database, and `older`
    if a version before 0.2.0 made it.
    """
    named = f"{what} {spoken(url)}"
    try:
        yield
    except Newer as error:
        raise StoreUnavailable(f"{named} was migrated by a newer Replan ({error}): {newer}.") from error
    except Older as error:
        made = "was made by a version of Replan before 0.2.0, which was never released"
        raise StoreUnavailable(f"{named} {made}, and cannot be used ({error}): {older}.") from error
    except ImportError as error:
        raise StoreUnavailable(
            f"{named} cannot be opened, since the package {error.name!r} is missing: for PostgreSQL use"
            f" postgresql+psycopg:// and install it with `pip install --editable '.[postgresql]'`; else {check}."
        ) from error
    except DatabaseUnavailable as error:
        why = error.__cause__ or error
        holder = _holder_of(url) if is_locked(why) else None
        locked = f"process {holder} holds its lock: end that process, or continue it" if holder else check
        raise StoreUnavailable(f"{named} cannot be opened ({cause(why)}): {locked}.") from error
    except (SQLAlchemyError, sqlite3.Error, DatabaseFileGone, OSError, ValueError) as error:
        raise StoreUnavailable(f"{named} cannot be opened ({cause(error)}): {check}.") from error


async def _require_keys(engine: AsyncEngine, cipher: Cipher | None) -> None:
    """Check that the cipher has each key that has encrypted something here, and record the key that encrypts now.

    Raises StoreUnavailable if a key is missing, or the cipher has another key with its id.
    """
    async with reading(engine).begin() as tx:
        is_new = await tx.run_sync(_is_new_key, cipher, engine.url)
    # Only then, since a worker that is frozen may hold the lock for writing.
    if is_new and cipher is not None:
        row = _check_row(cipher)
        await write(engine, lambda tx: insert_new(tx, KEYS, row))


def _is_new_key(tx: Connection, cipher: Cipher | None, url: URL) -> bool:
    """Whether the cipher's first key has not encrypted anything here yet; raises as `_require_keys`."""
    rows = tx.execute(select(KEYS)).all()
    for row in rows:
        named = f"The store {spoken(url)} was written with the key {row.id!r}"
        if cipher is None or row.id not in cipher.ids:
            raise StoreUnavailable(f"{named}, which this worker lacks: give it a keyring that has the key (--keys).")
        try:
            cipher.open(row.check)
        except Exception as error:
            raise StoreUnavailable(f"{named}, and --keys has another key of this name: give the first one.") from error
    return cipher is not None and cipher.ids[0] not in {row.id for row in rows}


def _check_row(cipher: Cipher) -> dict[str, str]:
    return {"id": cipher.ids[0], "check": cipher.seal(_PLAINTEXT)}


class Moment(TypeDecorator[datetime]):
    """A point in time, stored in UTC, since SQLite stores no time zone."""

    impl = DateTime
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Any) -> datetime | None:
        return None if value is None else value.astimezone(UTC).replace(tzinfo=None)

    def process_result_value(self, value: datetime | None, dialect: Any) -> datetime | None:
        return None if value is None else value.replace(tzinfo=UTC)


def insert_new(tx: Connection, table: Table, row: Mapping[str, Any]) -> bool:
    """Insert a row unless its key exists; return whether it was inserted."""
    dialect: Any = import_module(f"sqlalchemy.dialects.{tx.dialect.name}")  # both have it, and SQLAlchemy itself not
    done = tx.execute(dialect.insert(table).values(row).on_conflict_do_nothing().returning(*table.primary_key))
    return done.first() is not None


def spoken(url: str | URL) -> str:
    """A URL for messages, without its password and its query; a phrase if the URL is invalid."""
    # Drivers take passwords in the query, too.
    try:
        return make_url(url).set(query={}).render_as_string(hide_password=True)
    except (ArgumentError, ValueError):  # a port that is no number is a ValueError
        return "whose URL cannot be read"


def clock(connection: Connection | AsyncConnection) -> ColumnElement[float]:
    """The common time of all workers, as a column `now`: that of PostgreSQL, or of the machine with the SQLite file.

    The column is in seconds since 1970 (UTC).
    """
    if connection.dialect.name == "postgresql":
        return func.extract("epoch", func.clock_timestamp()).cast(Float).label("now")
    return literal(time.time(), Float).label("now")


class _Writer:
    """Runs the short transactions of Replan in a SQLite file, each as one piece of work of one thread.

    A transaction of an `AsyncEngine` has an await between its statements. While the event loop does something else, or
    the process is frozen there, SQLite's only lock for writing is held, and no other process can write.
    """

    def __init__(self, sync: Engine) -> None:
        """`sync` is the engine of an `AsyncEngine`, whose file it opens once more."""
        url, options = sync.url.set(drivername="sqlite+pysqlite"), {"replan_writes": True}
        self.engine = create_engine(url, hide_parameters=True, execution_options=options)
        setattr(self.engine.dialect, _CIPHER, getattr(sync.dialect, _CIPHER, None))
        tune(self.engine)
        short = f"PRAGMA busy_timeout={int(SHORT_TIMEOUT * 1000)}"
        event.listen(self.engine, "connect", lambda connection, _: connection.execute(short).close())
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="store")

    async def run(self, work: Callable[[Connection], T], *, follows_effect: bool) -> T:
        """Run `work` in a transaction, and return its result; for `follows_effect` see `write`.

        If another connection holds the lock for writing, the transaction is tried again for BUSY_TIMEOUT seconds, or
        until a cancel comes, unless it `follows_effect`.
        Raises DBAPIError if the lock was not free in this time, or a statement failed.
        """
        until, cancelled = time.monotonic() + BUSY_TIMEOUT, False
        while True:
            if not follows_effect:
                await asyncio.sleep(0)  # raises a cancel that the transaction before has held back
            done, is_cancelled = await self._run_once(work)
            cancelled = cancelled or is_cancelled
            error = done.exception()
            if error is not None and is_locked(error):
                if time.monotonic() >= until:
                    holder = _holder_of(self.engine.url)
                    log = _log()
                    log.warning("store_locked", holder=holder, remedy="end the process that holds it, or continue it")
                elif follows_effect or not cancelled:
                    continue
            if cancelled:
                _cancel_later(done)
            return done.result()

    async def _run_once(self, work: Callable[[Connection], T]) -> tuple[asyncio.Future[T], bool]:
        """The ended transaction, and whether the task was cancelled meanwhile."""

        def transact() -> T:
            with self.engine.begin() as tx:
                return work(tx)

        here, cancelled = asyncio.wrap_future(self._thread.submit(copy_context().run, transact)), False
        while not here.done():
            try:
                await asyncio.wait([here])
            except asyncio.CancelledError:  # an effect that was applied is still recorded
                cancelled = True
        return here, cancelled


def _cancel_later(done: asyncio.Future[Any]) -> None:
    """Raise a cancel that was held back until a transaction ended: now if it failed, else at the next await.

    The caller must learn that the transaction was committed. `done` is the future of the transaction.
    """
    task = asyncio.current_task()
    if done.exception() is not None or task is None:
        raise asyncio.CancelledError
    task.uncancel()  # it is the same cancel, which a timeout counts
    task.cancel()


@asynccontextmanager
async def time_limit(seconds: float | None) -> AsyncIterator[asyncio.Timeout]:
    """`asyncio.timeout(seconds)` for work with transactions; its cancel never reaches code after the block.

    Before Python 3.13, a cancel that a transaction held back outlives its timeout: it would be raised at the next await
    after the block, or end a task that already has a result (https://github.com/python/cpython/issues/117407).
    """
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            yield limit
    finally:
        task = asyncio.current_task()
        if limit.expired() and task is not None and not task.cancelling():
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0)


_WRITE_LOCK = "120"
"""The byte of the file `-shm` that SQLite locks to write (https://www.sqlite.org/walformat.html, section 2.3.1)."""


def is_locked(error: BaseException) -> bool:
    """Whether a statement failed because another connection holds SQLite's lock for writing."""
    return str(getattr(getattr(error, "orig", None), "sqlite_errorname", "")).startswith("SQLITE_BUSY")


def _holder_of(url: str | URL) -> int | None:
    """The id of the process that holds the lock for writing of a SQLite file; None if that cannot be found out."""
    path = _file_at(make_url(url))
    # Not by opening the file: closing it again would free the locks of this process.
    try:
        number, locks = os.stat(f"{path}-shm").st_ino, Path("/proc/locks").read_text(encoding="utf-8")  # noqa: PTH116
    except OSError:
        return None
    rows = (line.split() for line in locks.splitlines() if "->" not in line)
    return next((int(row[4]) for row in rows if row[5].endswith(f":{number}") and row[6] == _WRITE_LOCK), None)


def _log() -> Any:
    import structlog  # which takes a tenth of the time to import the floor of effects

    return structlog.get_logger("replan.store")


def _add_writer(engine: AsyncEngine) -> None:
    # Only for the store: the engine of a tool may connect in a way that its URL does not say.
    writer = _Writer(engine.sync_engine)
    engine.sync_engine.update_execution_options(replan_writer=writer)
    event.listen(engine.sync_engine, "engine_disposed", lambda _: writer.engine.dispose())


def _writer_of(engine: AsyncEngine) -> _Writer | None:
    writer: _Writer | None = engine.sync_engine.get_execution_options().get("replan_writer")
    return writer


async def write(engine: AsyncEngine, work: Callable[[Connection], T], *, follows_effect: bool = False) -> T:
    """Run `work` in a transaction that writes, and return its result.

    In a SQLite store, `work` may run again if the file was locked, and then nothing of it was written; a cancel waits
    until the transaction ends. There, with `follows_effect`, no cancel comes before the transaction either: this is for
    the record of an effect.

    Raises:
        DatabaseUnavailable: the database cannot be reached or is locked; nothing was written.
    """
    if writer := _writer_of(engine):
        with translated_outage():
            return await writer.run(work, follows_effect=follows_effect)
    async with transaction(writing(engine)) as tx:
        return await tx.run_sync(work)


def writing(engine: E) -> E:
    """The same engine, for transactions that write: with SQLite, they lock the database when they begin."""
    # A SQLite transaction that reads first and locks later can fail at its first write.
    return engine.execution_options(replan_writes=True)


def reading(engine: E) -> E:
    """The same engine, for transactions that only read: a write raises WriteInReadTransaction."""
    return engine.execution_options(replan_reads=True, postgresql_readonly=True)


@contextmanager
def translated_outage() -> Iterator[None]:
    """Inside the block, raise DatabaseUnavailable in place of a database error that means 'unreachable' or 'locked'."""
    try:
        yield
    except DATABASE_ERRORS as error:
        if is_unavailable(error):
            raise DatabaseUnavailable from error
        raise


@asynccontextmanager
async def transaction(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    """A transaction that commits when the block ends without an exception.

    Raises:
        DatabaseUnavailable: the transaction cannot begin, since the database cannot be reached or is locked.
    """
    async with AsyncExitStack() as stack:
        with translated_outage():
            connection = await stack.enter_async_context(engine.begin())
        yield connection


def _engine(url: str) -> AsyncEngine:
    parsed = create_async_engine(url, hide_parameters=True)
    if parsed.dialect.name == "sqlite":
        return parsed
    return create_async_engine(url, **_pool_options(parsed.url))


def _blocking_engine(url: URL) -> Engine:
    """An engine without an event loop; threads wait for each other's connections only with PostgreSQL."""
    if url.get_backend_name() == "sqlite":
        return create_engine(url, hide_parameters=True)
    return create_engine(url, **_pool_options(url))


def _pool_options(url: URL) -> dict[str, Any]:
    lacks_limit = url.get_driver_name() == "psycopg" and "connect_timeout" not in url.query
    options = {"connect_timeout": CONNECT_SECONDS} if lacks_limit else {}
    # The server may have restarted since a pooled connection was used.
    return {"hide_parameters": True, "pool_pre_ping": True, "pool_timeout": POOL_SECONDS, "connect_args": options}


def _open_file(engine: Engine | AsyncEngine) -> None:
    """Open and close a SQLite file, so that a file that cannot be opened raises its error here."""
    # Not with aiosqlite, whose thread would not end after a failure (its issue 241).
    args, more = engine.dialect.create_connect_args(engine.url)
    sqlite3.connect(*list[Any](args), **more).close()
