"""The store: how it and other databases are opened, and what differs between SQLite and PostgreSQL; nothing else."""

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from alembic.util import CommandError
from sqlalchemy import Column, DateTime, MetaData, String, Table, event, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import URL, Connection, ExceptionContext, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.types import TypeDecorator

from activities.borders.sql import DATABASE_ERRORS, cause, is_unavailable
from activities.errors import DatabaseFileGone, DatabaseUnavailable, WriteInReadTransaction
from activities.storage.migrations import Newer, Stream, migrate

BUSY_TIMEOUT = 5.0
"""Seconds that a statement waits for somebody else's lock."""

_NOT_NOW = ("SQLITE_READONLY", "25006")
"""What SQLite and PostgreSQL say of a write in a transaction that only reads."""


class _File(NamedTuple):
    """A file as it was when it was opened: its name may come to mean another one."""

    path: str
    device: int
    number: int

    @classmethod
    def at(cls, path: str) -> "_File | None":
        """The file that has this name now."""
        try:
            status = os.stat(path)  # noqa: PTH116  # on each transaction
        except OSError:
            return None
        return cls(path, status.st_dev, status.st_ino)


def tune(engine: AsyncEngine) -> None:
    """Make the engine do so; an engine that does already is left alone."""
    sync = engine.sync_engine
    if event.contains(sync, "handle_error", _tell_read_from_read_only):
        return
    event.listen(sync, "handle_error", _tell_read_from_read_only)
    sync.hide_parameters = True  # messages go to the log
    if engine.dialect.name == "sqlite":
        event.listen(sync, "connect", _set_up_sqlite)
        event.listen(sync, "begin", _begin_sqlite)
        event.listen(sync, "invalidate", _roll_back)
    if engine.dialect.name == "postgresql":
        event.listen(sync, "connect", _set_up_postgresql)


def expect_file(engine: AsyncEngine) -> None:
    """Take from now on no other file for the one of this SQLite database, and make none in its place.

    What is written to a file that was deleted is lost with the process, and a new one knows nothing of what happened.
    Each transaction raises DatabaseFileGone until the file is back.
    """
    path = file_of(engine)
    file = _File.at(str(path.absolute())) if path else None
    if file is None:
        return

    def look(*_about: Any) -> None:
        if _File.at(file.path) != file:
            raise DatabaseFileGone(file.path)

    event.listen(engine.sync_engine, "do_connect", look)
    event.listen(engine.sync_engine, "begin", look, insert=True)


def file_of(engine: AsyncEngine) -> Path | None:
    """The file of a SQLite database that has one."""
    return _named(engine.url.database or ":memory:") if engine.dialect.name == "sqlite" else None


def is_lasting(engine: AsyncEngine) -> bool:
    """Whether the database outlives its connections."""
    return engine.dialect.name != "sqlite" or file_of(engine) is not None


def _named(database: str) -> Path | None:
    if ":memory:" in database or "mode=memory" in database:
        return None
    return Path(database.removeprefix("file:").partition("?")[0])


def _tell_read_from_read_only(context: ExceptionContext) -> None:
    """Tell a write in a transaction that only reads from a database that may not be written at all."""
    error, connection = context.original_exception, context.connection
    code = getattr(error, "sqlite_errorname", None) or getattr(error, "sqlstate", None)
    reads = connection is not None and connection.get_execution_options().get("replan_reads")
    if reads and code in _NOT_NOW:
        raise WriteInReadTransaction("a write in a transaction that only reads")


def _set_up_sqlite(connection: Any, _record: Any) -> None:
    """Write-ahead logging, full durability, foreign keys, and transactions that begin when we say."""
    connection.isolation_level = None
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
        connection.close()  # the pool forgets it, and its thread would stay
        raise


def _roll_back(connection: Any, _record: Any, _error: BaseException | None) -> None:
    """Free the lock of a connection that is given up, as after a cancel in the middle of a statement.

    SQLite closes no connection, and so ends no transaction, as long as somebody holds the statement's cursor.
    """
    if connection is not None:
        with suppress(sqlite3.Error, DBAPIError, ValueError):  # it is closed, or there is nothing to roll back
            connection.rollback()


def _begin_sqlite(connection: Connection) -> None:
    writes = connection.get_execution_options().get("replan_writes")
    reads = bool(connection.get_execution_options().get("replan_reads"))
    if connection.info.get("replan_reads", False) is not reads:  # it stays with the pooled connection
        connection.exec_driver_sql(f"PRAGMA query_only={int(reads)}")
        connection.info["replan_reads"] = reads
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _set_up_postgresql(connection: Any, _record: Any) -> None:
    """As long a wait for a lock as SQLite has, where the server or the URL sets none."""
    cursor = connection.cursor()
    milliseconds = int(BUSY_TIMEOUT * 1000)
    cursor.execute(
        f"SELECT set_config('lock_timeout', '{milliseconds}', false) WHERE current_setting('lock_timeout') = '0'"
    )
    cursor.close()
    connection.commit()


metadata = MetaData()
"""The tables of the tools that keep theirs in the store; a worker makes those that are missing."""

REPLAN_TABLES = MetaData()
"""Replan's own tables, which migrations make and change."""

IDENTITY = Table("replan_store", REPLAN_TABLES, Column("id", String(36), primary_key=True))
"""One row: which store this is, for as long as it exists, wherever it is copied to."""

CONNECT_SECONDS, POOL_SECONDS = 5, 10
"""How long a new connection to PostgreSQL, or a free one of the pool, is waited for."""


def sqlite_url(state: Path) -> str:
    """The URL of the embedded store in a state folder."""
    return f"sqlite+aiosqlite:///{state / 'store.db'}"


class StoreUnavailable(Exception):
    """A database cannot be opened; the message says which and what to check, without its password."""


async def open_store(url: str) -> AsyncEngine:
    """Open the store at `url`, bring its tables to the newest revision, and make those of the tools that are missing.

    Raises:
        StoreUnavailable: it cannot be opened, or is of a newer Replan.
    """
    with _opening("The store", url, "check --store, REPLAN_STORE, --state", "start a newer Replan, or another --store"):
        engine = _engine(url)
        await _prepare(engine, Stream.LEDGER, Stream.STORE, tables=metadata)
    return engine


async def store_id(engine: AsyncEngine) -> str:
    """Which store this is: the same for all its workers, also when it is moved or restored."""
    async with reading(engine).begin() as tx:
        return str((await tx.execute(select(IDENTITY.c.id))).scalar_one())


async def _prepare(engine: AsyncEngine, *streams: Stream, tables: MetaData | None = None) -> None:
    """Tune an engine, migrate its database, and make those of `tables` that are missing, all in one transaction."""
    tune(engine)
    if is_lasting(engine):
        await engine.dispose()  # connections that were opened before are not tuned
    if file_of(engine):
        await asyncio.to_thread(_try, engine)
    try:
        async with writing(engine).begin() as connection:  # two workers may open a new store at the same moment
            await connection.run_sync(migrate, *streams)
            if tables is not None:
                await connection.run_sync(tables.create_all)
    except BaseException:
        await engine.dispose()
        raise
    expect_file(engine)


async def adopt(engine: AsyncEngine) -> None:
    """Set a tool's database up as the store is, and bring its ledger to the newest revision.

    Raises:
        StoreUnavailable: it cannot be opened, or is of a newer Replan.
    """
    check = "check its URL in the tools file, and that the worker may create tables there"
    with _opening("The datasource", engine.url, check, "start a newer Replan"):
        await _prepare(engine, Stream.LEDGER)


class Datasources:
    """The store and the databases of the tools: all databases with a ledger."""

    def __init__(self, store: AsyncEngine, datasources: Iterable[AsyncEngine | None] = ()) -> None:
        """Take the open store and the datasource of each tool, None for a tool on the store; `open` opens them."""
        self.store = store
        self._datasources = tuple(dict.fromkeys(engine for engine in datasources if engine is not None))

    def __iter__(self) -> Iterator[AsyncEngine]:
        """Each database once, the store first, even if several engines connect to one database."""
        databases = dict[object, AsyncEngine]()
        for engine in (self.store, *self._datasources):
            databases.setdefault(_identity(engine), engine)
        return iter(databases.values())

    async def open(self, opened: AsyncExitStack) -> None:
        """Adopt the databases of the tools; `opened` closes them.

        Raises:
            StoreUnavailable: one of them cannot be opened; the message says which.
        """
        for engine in self._datasources:
            opened.push_async_callback(engine.dispose)
            await adopt(engine)


def _identity(engine: AsyncEngine) -> object:
    """Equal for engines whose URLs name the same database; a database in memory belongs to its engine alone."""
    return engine.url.set(query={}) if is_lasting(engine) else engine


@contextmanager
def _opening(what: str, url: str | URL, check: str, newer: str) -> Iterator[None]:
    """Say in one sentence that `what` cannot be opened, with `check` as the remedy, or `newer` where it is of one.

    Raises:
        StoreUnavailable: it cannot.
    """
    named = f"{what} {spoken(url)}"
    try:
        yield
    except Newer as error:
        raise StoreUnavailable(f"{named} is of a newer Replan ({error}): {newer}.") from error
    except ImportError as error:
        raise StoreUnavailable(
            f"{named} cannot be opened, since the package {error.name!r} is missing: for PostgreSQL use"
            f" postgresql+psycopg:// and install it with `pip install --editable '.[postgresql]'`; else {check}."
        ) from error
    except (SQLAlchemyError, sqlite3.Error, CommandError, DatabaseFileGone, OSError, ValueError) as error:
        raise StoreUnavailable(f"{named} cannot be opened ({cause(error)}): {check}.") from error


class Moment(TypeDecorator[datetime]):
    """A moment, kept in UTC: SQLite forgets the time zone."""

    impl = DateTime
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Any) -> datetime | None:
        """Write a moment that knows its time zone."""
        return None if value is None else value.astimezone(UTC).replace(tzinfo=None)

    def process_result_value(self, value: datetime | None, dialect: Any) -> datetime | None:
        """Read a moment in UTC."""
        return None if value is None else value.replace(tzinfo=UTC)


async def insert_new(tx: AsyncConnection, table: Table, row: Mapping[str, Any]) -> bool:
    """Insert a row, unless there is one with its key; whether it was inserted."""
    insert: Any = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}[tx.dialect.name]
    done = await tx.execute(insert(table).values(row).on_conflict_do_nothing().returning(*table.primary_key))
    return done.first() is not None


def spoken(url: str | URL) -> str:
    """A store's URL as it may be said: without its password and its query, where drivers take passwords, too."""
    try:
        return make_url(url).set(query={}).render_as_string(hide_password=True)
    except (ArgumentError, ValueError):  # a port that is no number is a ValueError
        return "whose URL cannot be read"


def writing(engine: AsyncEngine) -> AsyncEngine:
    """The same engine for transactions that will write: SQLite takes its write lock at once, so none can fail late."""
    return engine.execution_options(replan_writes=True)


def reading(engine: AsyncEngine) -> AsyncEngine:
    """The same engine for transactions that only read: a write in one raises WriteInReadTransaction."""
    return engine.execution_options(replan_reads=True, postgresql_readonly=True)


@contextmanager
def reached() -> Iterator[None]:
    """Say DatabaseUnavailable of what fails because a database is away.

    Raises:
        DatabaseUnavailable: it is.
    """
    try:
        yield
    except DATABASE_ERRORS as error:
        if is_unavailable(error):
            raise DatabaseUnavailable from error
        raise


@asynccontextmanager
async def begun(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    """A transaction that commits when the block ends without an exception.

    Raises:
        DatabaseUnavailable: it cannot be begun.
    """
    async with AsyncExitStack() as stack:
        with reached():
            connection = await stack.enter_async_context(engine.begin())
        yield connection


def _engine(url: str) -> AsyncEngine:
    """An engine that finds out before it uses a connection whether PostgreSQL has gone away and come back."""
    engine = create_async_engine(url, hide_parameters=True)
    if engine.dialect.name == "sqlite":
        return engine
    waits = {"connect_timeout": CONNECT_SECONDS} if engine.dialect.driver == "psycopg" else {}
    given = {name: value for name, value in waits.items() if name not in engine.url.query}
    return create_async_engine(
        url, hide_parameters=True, pool_pre_ping=True, pool_timeout=POOL_SECONDS, connect_args=given
    )


def _try(engine: AsyncEngine) -> None:
    """Open the file without aiosqlite, whose thread outlives a failure and then misses the loop (its issue 241)."""
    args, more = engine.dialect.create_connect_args(engine.url)
    sqlite3.connect(*list[Any](args), **more).close()
