"""SQL (SQLAlchemy, and `sqlite3` used directly): the Fault of each exception, and why a database cannot be used.

A lock is transient, a violated constraint is a rejection, an error in the SQL itself is a bug of the tool.
"""

import re
import sqlite3
from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy import exc

from activities.borders.table import Choice, Entry, Proof, Row, Table, Verdict
from activities.errors import DatabaseFileGone, DatabaseUnavailable
from workflows.faults import Code


def _row(code: Code, reason: str, proves: Proof = Proof.UNKNOWN) -> Row:
    return Row(code, reason, proves)


_LOCKED = _row(Code.BUSY, "The database is locked by another writer.")
_UNREACHABLE = _row(Code.UNREACHABLE, "The database cannot be reached.")
_CONSTRAINT = _row(
    Code.CONFLICT, "The database rejected the change, since it breaks a constraint: read the rows and choose again."
)
_VALUE = _row(Code.INVALID_INPUT, "The database cannot store such a value: change the arguments.")
_BUG = _row(Code.BUG, "The tool uses its database wrongly: fix the tool.")
_NO_TABLE = _row(
    Code.BUG,
    "The tool uses a table that does not exist: declare it as Table(..., metadata), with `from replan import metadata`,"
    " and start the worker again, which creates it; in a datasource of the tool, create it yourself.",
)
_OTHER_VERSION = _row(
    Code.WRONG_STORE,
    "Replan's own tables are missing there, or of another version than this worker: start a worker of that version on"
    " it, or start this one again, which migrates older tables.",
)
_WROTE = _row(
    Code.BUG,
    "The tool writes to a database where it may only read, as a @tool.read everywhere and a @tool.unkeyed in the store:"
    " declare it @tool.transactional.",
)
_FULL = _row(Code.QUOTA_EXHAUSTED, "The disk of the database is full: free some space.")
_CLOSED = _row(Code.FORBIDDEN, "The database may not be written by the worker: give it the permission.")
_DAMAGED = _row(Code.NEEDS_PERSON, "The database is damaged, or is none: restore it from a backup.")

# By code and not by class alone, since SQLAlchemy has no class for most errors of asyncpg.
_BY_CODE: Mapping[str, Row] = {
    "SQLITE_BUSY": _LOCKED,
    "SQLITE_LOCKED": _LOCKED,
    "SQLITE_FULL": _FULL,
    "SQLITE_READONLY": _CLOSED,
    "SQLITE_PERM": _CLOSED,
    "SQLITE_AUTH": _CLOSED,
    "SQLITE_CORRUPT": _DAMAGED,
    "SQLITE_NOTADB": _DAMAGED,
    "SQLITE_ERROR": _BUG,
    "SQLITE_MISUSE": _BUG,
    "40001": _LOCKED,  # serialization failure
    "40P01": _LOCKED,  # deadlock
    "55P03": _LOCKED,  # lock not available
    "53300": _LOCKED,  # too many connections
    "53100": _FULL,
    "25006": _CLOSED,  # the server or the database is read-only
    "42501": _CLOSED,  # insufficient privilege
    "42P01": _NO_TABLE,
    "57P": _UNREACHABLE,  # shutdown, crash, not started yet
    "08": _UNREACHABLE,  # connection exceptions
    "22": _VALUE,  # data exceptions
    "XX001": _DAMAGED,
    "XX002": _DAMAGED,  # an index
}
"""Entries by the beginning of SQLite's result code (https://sqlite.org/rescode.html) or of the SQLSTATE (PostgreSQL's
manual, appendix A).
"""

_LACKING = ("42P01", "42703", "SQLITE_ERROR")
"""Codes for a missing table or column. SQLITE_ERROR also stands for wrong SQL, but Replan's own SQL is correct."""
_OURS = re.compile(r"\breplan_(ledger|store|payloads)\b")


def _dbapi(otherwise: Row) -> Entry:
    """An entry for an exception of SQLAlchemy that wraps an exception of the driver.

    The driver's error code decides about the Fault; if it is unknown, `otherwise` makes the Fault.
    """

    def decide(error: Any) -> Verdict:
        cut = error.connection_invalidated
        return (_UNREACHABLE if cut else _by_code(error.orig, otherwise, error.statement or "")).verdict()

    return _choice(decide, otherwise)


def _direct(otherwise: Row) -> Entry:
    return _choice(lambda error: _by_code(error, otherwise).verdict(), otherwise)


def _choice(decide: Callable[[Any], Verdict], otherwise: Row) -> Entry:
    return Choice("the code of the database", {**_BY_CODE, "any other": otherwise}, decide)


def _by_code(error: BaseException | None, otherwise: Row, statement: str = "") -> Row:
    code = _code(error)
    if code in _LACKING and _OURS.search(statement):
        return _OTHER_VERSION
    if code == "SQLITE_ERROR" and str(error).startswith("no such table"):
        return _NO_TABLE
    return next((row for start, row in _BY_CODE.items() if code.startswith(start)), otherwise)


TABLE: Table = {
    "sqlalchemy.exc.SQLAlchemyError": _BUG,
    "sqlalchemy.exc.DBAPIError": _dbapi(otherwise=_BUG),
    "sqlalchemy.exc.OperationalError": _dbapi(otherwise=_UNREACHABLE),
    "sqlalchemy.exc.InterfaceError": _UNREACHABLE,
    "sqlalchemy.exc.DisconnectionError": _UNREACHABLE,
    "sqlalchemy.exc.IntegrityError": _CONSTRAINT,
    "sqlalchemy.exc.DataError": _VALUE,
    "sqlalchemy.exc.NoResultFound": _row(Code.NOT_FOUND, "There is no such row: look for it under another name."),
    "sqlalchemy.exc.MultipleResultsFound": _row(Code.CONFLICT, "Several rows match: choose one of them."),
    "activities.errors.WriteInReadTransaction": _WROTE,
    "activities.errors.DatabaseFileGone": _row(
        Code.UNREACHABLE, "The file of the database was deleted or replaced: put it back, or start the worker again."
    ),
    "activities.errors.DatabaseUnavailable": _row(
        Code.STORE_UNAVAILABLE, "The database of the call is locked or cannot be reached; nothing was done."
    ),
    "sqlalchemy.orm.exc.StaleDataError": _row(
        Code.PRECONDITION_FAILED, "The row has changed since it was read: read it again."
    ),
    "sqlalchemy.exc.TimeoutError": _row(Code.BUSY, "All connections to the database are in use."),
    "sqlalchemy.exc.EmulatedDBAPIException": _BUG,
    "sqlite3.Error": _direct(_BUG),
    "sqlite3.Warning": _BUG,
    "sqlite3.OperationalError": _direct(_UNREACHABLE),
    "sqlite3.IntegrityError": _CONSTRAINT,
    "sqlite3.DataError": _VALUE,
}

DATABASE_ERRORS = (exc.SQLAlchemyError, sqlite3.Error, OSError, DatabaseFileGone, DatabaseUnavailable)
"""The exceptions that code can get when it uses a database."""

_UNAVAILABLE = (
    "SQLITE_BUSY",
    "SQLITE_LOCKED",
    "SQLITE_CANTOPEN",
    "SQLITE_IOERR",
    "SQLITE_PROTOCOL",  # a race for the lock of the write-ahead log
    "SQLITE_READONLY_DBMOVED",
    "08",  # connection exceptions
    "57P",  # shutdown, crash, not started yet
    "53300",  # too many connections
    "55P03",  # lock not available
)
"""Beginnings of the codes, as in _BY_CODE, that say that a database cannot be reached now or is locked."""

_CAUSES: Mapping[str, str] = {
    "SQLITE_BUSY": "another process has it locked",
    "SQLITE_READONLY": "it may not be written",
    "SQLITE_FULL": "its disk is full",
    "SQLITE_CORRUPT": "it is damaged",
    "SQLITE_NOTADB": "it is no database",
    "25006": "it may not be written",
    "28": "user or password are rejected",
    "3D000": "the server has no such database",
    "42501": "this user may not make tables there",
    "53100": "its disk is full",
    "53300": "the server has no connection left",
    "55P03": "another process has it locked",
    "57P": "the server is starting or stopping",
}
"""Why a database cannot be used, by the beginning of SQLite's result code or of the SQLSTATE."""

_BY_MESSAGE: Mapping[str, str] = {
    "authentication failed": "user or password are rejected",
    'database "': "the server has no such database",
    "Connection refused": "nothing listens there",
    "failed to resolve host": "its host is not known",
    "timeout expired": "it gave no answer",
    "too many clients": "the server has no connection left",
}
"""Why a database cannot be used, by a part of libpq's message; libpq gives no code for a failed connection."""

_BY_CLASS: Mapping[type[BaseException], str] = {
    exc.ArgumentError: "it is no URL of a database",
    exc.NoSuchModuleError: "there is no such driver: write sqlite+aiosqlite:// or postgresql+psycopg://",
    exc.InvalidRequestError: "its driver is not asynchronous: write sqlite+aiosqlite:// or postgresql+psycopg://",
}
"""Why a database cannot be used, by the class of SQLAlchemy's exception about its URL."""


def is_unavailable(error: BaseException) -> bool:
    """Whether an exception says that a database cannot be reached now, or is locked: a retry may succeed."""
    if isinstance(error, DatabaseFileGone | exc.TimeoutError | ConnectionError) or getattr(
        error, "connection_invalidated", False
    ):
        return True
    code = _code(error)
    return code.startswith(_UNAVAILABLE) if code else isinstance(error, exc.OperationalError | exc.InterfaceError)


def cause(error: BaseException) -> str:
    """Why a database cannot be used, in a few words; the class of the exception if that is unknown."""
    code, message = _code(error), str(getattr(error, "orig", None) or "")
    by_code = (words for start, words in _CAUSES.items() if code.startswith(start))
    by_message = (words for part, words in _BY_MESSAGE.items() if not code and part in message)
    return next(by_code, None) or next(by_message, None) or _BY_CLASS.get(type(error)) or type(error).__name__


def _code(error: BaseException | None) -> str:
    original = getattr(error, "orig", None) or error
    return getattr(original, "sqlite_errorname", None) or getattr(original, "sqlstate", None) or ""
