"""The store: engine, schema, dialect differences; nothing else."""

import asyncio
import sqlite3
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import DateTime, MetaData, Table, event
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import URL, Connection, ExceptionContext, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.types import TypeDecorator

metadata = MetaData()
"""The tables of the tools that keep theirs in the store."""

BUSY_TIMEOUT = 5.0
"""Seconds that SQLite waits for another writer before it says that it is locked."""


def sqlite_url(state: Path) -> str:
    """The URL of the embedded store in a state folder."""
    return f"sqlite+aiosqlite:///{state / 'store.db'}"


class StoreUnavailable(Exception):
    """The store cannot be opened; the message says which and what to check, without its password."""


async def open_store(url: str) -> AsyncEngine:
    """Open the store at `url` and make the tables that are missing.

    Raises:
        StoreUnavailable: it cannot be opened.
    """
    try:
        engine = create_async_engine(url, hide_parameters=True)
        if engine.dialect.name == "sqlite":
            _tune(engine)
            await asyncio.to_thread(_try, engine)
        _guard(engine)
        async with writing(engine).begin() as connection:  # two workers may open a new store at the same moment
            await connection.run_sync(metadata.create_all)
    except (SQLAlchemyError, sqlite3.Error, ImportError, OSError, ValueError) as error:
        raise StoreUnavailable(
            f"The store {spoken(url)} cannot be opened ({type(error).__name__}): check --store, REPLAN_STORE, --state."
        ) from error
    return engine


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


def _try(engine: AsyncEngine) -> None:
    """Open the file without aiosqlite, whose thread outlives a failure and then misses the loop (its issue 241)."""
    args, more = engine.dialect.create_connect_args(engine.url)
    sqlite3.connect(*list[Any](args), **more).close()


def writing(engine: AsyncEngine) -> AsyncEngine:
    """The same engine for transactions that will write: SQLite takes its write lock at once, so none can fail late."""
    return engine.execution_options(replan_writes=True)


def reading(engine: AsyncEngine) -> AsyncEngine:
    """The same engine for transactions that only read: a write in one raises WroteWhileReading."""
    return engine.execution_options(replan_reads=True, postgresql_readonly=True)


class WroteWhileReading(Exception):
    """A transaction that only reads was asked to write."""


def _guard(engine: AsyncEngine) -> None:
    """Tell a write in a transaction that only reads from a database that may not be written at all."""

    @event.listens_for(engine.sync_engine, "handle_error")
    def _failed(context: ExceptionContext) -> None:
        error, connection = context.original_exception, context.connection
        code = getattr(error, "sqlite_errorname", None) or getattr(error, "sqlstate", None)
        reads = connection is not None and connection.get_execution_options().get("replan_reads")
        if reads and code in _NOT_NOW:
            raise WroteWhileReading("a write in a transaction that only reads")


_NOT_NOW = ("SQLITE_READONLY", "25006")
"""What SQLite and PostgreSQL say of a write in a transaction that only reads."""


def _tune(engine: AsyncEngine) -> None:
    """Give SQLite write-ahead logging, full durability, foreign keys, and transactions that begin when we say."""

    @event.listens_for(engine.sync_engine, "connect")
    def _connect(connection: Any, _record: Any) -> None:
        connection.isolation_level = None
        cursor = connection.cursor()
        for pragma in (
            "journal_mode=WAL",
            "synchronous=FULL",
            "foreign_keys=ON",
            f"busy_timeout={int(BUSY_TIMEOUT * 1000)}",
        ):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    @event.listens_for(engine.sync_engine, "begin")
    def _begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get("replan_writes")
        reads = bool(connection.get_execution_options().get("replan_reads"))
        if connection.info.get("replan_reads", False) is not reads:  # it stays with the pooled connection
            connection.exec_driver_sql(f"PRAGMA query_only={int(reads)}")
            connection.info["replan_reads"] = reads
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
