"""How every database is used: durably, with bounded waits for locks, and never by writing where only reading is due."""

import os
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import event
from sqlalchemy.engine import Connection, ExceptionContext
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine

BUSY_TIMEOUT = 5.0
"""Seconds that a statement waits for somebody else's lock."""

_NOT_NOW = ("SQLITE_READONLY", "25006")
"""What SQLite and PostgreSQL say of a write in a transaction that only reads."""


class WroteWhileReading(Exception):
    """A transaction that only reads was asked to write."""


class FileGone(Exception):
    """The file of a SQLite database was deleted or replaced since it was opened."""


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
    Each transaction raises FileGone until the file is back.
    """
    path = file_of(engine)
    file = _File.at(str(path.absolute())) if path else None
    if file is None:
        return

    def look(*_about: Any) -> None:
        if _File.at(file.path) != file:
            raise FileGone(file.path)

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
        raise WroteWhileReading("a write in a transaction that only reads")


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
