"""The store: how it and other databases are opened, and what differs between SQLite and PostgreSQL; nothing else."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from alembic.util import CommandError
from sqlalchemy import Column, DateTime, MetaData, String, Table, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.types import TypeDecorator

from activities.migrations import Newer, Stream, migrate
from activities.outage import cause, is_away
from activities.tuning import FileGone, expect_file, file_of, is_lasting, tune

metadata = MetaData()
"""The tables of the tools that keep theirs in the store; a worker makes those that are missing."""

OWN = MetaData()
"""Replan's own tables, which migrations make and change."""

IDENTITY = Table("replan_store", OWN, Column("id", String(36), primary_key=True))
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
    with opening("The store", url, "check --store, REPLAN_STORE, --state", "start a newer Replan, or another --store"):
        engine = _engine(url)
        await prepare(engine, Stream.LEDGER, Stream.STORE, tables=metadata)
    return engine


async def store_id(engine: AsyncEngine) -> str:
    """Which store this is: the same for all its workers, also when it is moved or restored."""
    async with reading(engine).begin() as tx:
        return str((await tx.execute(select(IDENTITY.c.id))).scalar_one())


async def prepare(engine: AsyncEngine, *streams: Stream, tables: MetaData | None = None) -> None:
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


@contextmanager
def opening(what: str, url: str | URL, check: str, newer: str) -> Iterator[None]:
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
    except (SQLAlchemyError, sqlite3.Error, CommandError, FileGone, OSError, ValueError) as error:
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
    """The same engine for transactions that only read: a write in one raises WroteWhileReading."""
    return engine.execution_options(replan_reads=True, postgresql_readonly=True)


class StoreAway(Exception):
    """A database cannot be reached, or is locked, before anything has happened."""


DATABASE_ERRORS = (SQLAlchemyError, sqlite3.Error, OSError, FileGone, StoreAway)
"""What the use of a database raises."""


@contextmanager
def reached() -> Iterator[None]:
    """Say StoreAway of what fails because a database is away.

    Raises:
        StoreAway: it is.
    """
    try:
        yield
    except DATABASE_ERRORS as error:
        if is_away(error):
            raise StoreAway from error
        raise


@asynccontextmanager
async def begun(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    """A transaction that commits when the block ends without an exception.

    Raises:
        StoreAway: it cannot be begun.
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
