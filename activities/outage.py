"""Why a database cannot be used: what SQLite and PostgreSQL say, and which of it time can cure."""

from collections.abc import Mapping

from sqlalchemy.exc import ArgumentError, InterfaceError, InvalidRequestError, NoSuchModuleError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from activities.tuning import FileGone

_AWAY = (
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
"""Beginnings of SQLite's result codes (https://sqlite.org/rescode.html) and of SQLSTATEs (PostgreSQL's appendix A)."""

_CAUSES: Mapping[str, str] = {
    "SQLITE_BUSY": "another process has it locked",
    "SQLITE_READONLY": "it may not be written",
    "SQLITE_FULL": "its disk is full",
    "SQLITE_CORRUPT": "it is damaged",
    "SQLITE_NOTADB": "it is no database",
    "25006": "it may not be written",
    "28": "user or password are refused",
    "3D000": "the server has no such database",
    "42501": "this user may not make tables there",
    "53100": "its disk is full",
    "53300": "the server has no connection left",
    "55P03": "another process has it locked",
    "57P": "the server is starting or stopping",
}
"""In words, by the same beginnings."""

_SAID: Mapping[str, str] = {
    "authentication failed": "user or password are refused",
    'database "': "the server has no such database",
    "Connection refused": "nothing listens there",
    "failed to resolve host": "its host is not known",
    "timeout expired": "it gave no answer",
    "too many clients": "the server has no connection left",
}
"""In words, by a part of what libpq says of a connection that it did not get: there is no code for that."""

_MEANT: Mapping[type[BaseException], str] = {
    ArgumentError: "it is no URL of a database",
    NoSuchModuleError: "there is no such driver: write sqlite+aiosqlite:// or postgresql+psycopg://",
    InvalidRequestError: "its driver is not asynchronous: write sqlite+aiosqlite:// or postgresql+psycopg://",
}
"""In words, what SQLAlchemy says of a URL by the class alone."""


def is_away(error: BaseException) -> bool:
    """Whether an exception says that a database cannot be reached now, or is locked: time can cure it."""
    if isinstance(error, FileGone | PoolTimeout | ConnectionError) or getattr(error, "connection_invalidated", False):
        return True
    code = _code(error)
    return code.startswith(_AWAY) if code else isinstance(error, OperationalError | InterfaceError)


def cause(error: BaseException) -> str:
    """Why a database cannot be used, in a few words of ours; where we have none, the class of the exception."""
    code, said = _code(error), str(getattr(error, "orig", None) or "")
    known = (words for start, words in _CAUSES.items() if code.startswith(start))
    heard = (words for part, words in _SAID.items() if not code and part in said)
    return next(known, None) or next(heard, None) or _MEANT.get(type(error)) or type(error).__name__


def _code(error: BaseException) -> str:
    original = getattr(error, "orig", None) or error
    return getattr(original, "sqlite_errorname", None) or getattr(original, "sqlstate", None) or ""
