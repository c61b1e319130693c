"""SQL (SQLAlchemy, and `sqlite3` used directly): locks are waited for, constraints are answers, the rest is a bug."""

import sqlite3

from sqlalchemy import exc

from activities.borders.table import Table, always
from workflows.faults import Code, Fault

_LOCKED = always(Code.BUSY, "The database is locked by another writer.")
_AWAY = always(Code.UNREACHABLE, "The database cannot be reached.")
_CONSTRAINT = always(Code.CONFLICT, "The database refused it: it contradicts what is stored. Look again, choose anew.")
_VALUE = always(Code.INVALID_INPUT, "The database cannot store such a value: change the arguments.")
_BUG = always(Code.BUG, "The tool uses its database wrongly: mend the tool.")
_LOCK_STATES = {"40001", "40P01", "55P03"}
"""SQLSTATE: serialization failure, deadlock, lock not available."""


def _operational(error: exc.DBAPIError) -> Fault:
    return _dbapi(error.orig, error.connection_invalidated)


def _sqlite_operational(error: sqlite3.OperationalError) -> Fault:
    return _dbapi(error, False)


def _dbapi(error: BaseException | None, invalidated: bool) -> Fault:
    name = getattr(error, "sqlite_errorname", "") or ""
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")) or getattr(error, "sqlstate", None) in _LOCK_STATES:
        return _LOCKED(error)
    if name == "SQLITE_FULL":
        return Fault.of(Code.QUOTA_EXHAUSTED, "The disk of the database is full: make room.")
    if name in ("SQLITE_ERROR", "SQLITE_MISUSE") and not invalidated:
        return _BUG(error)
    return _AWAY(error)


TABLE: Table = {
    exc.SQLAlchemyError: _BUG,
    exc.OperationalError: _operational,
    exc.InterfaceError: _AWAY,
    exc.DisconnectionError: _AWAY,
    exc.IntegrityError: _CONSTRAINT,
    exc.DataError: _VALUE,
    exc.NoResultFound: always(Code.NOT_FOUND, "There is no such row: look for it under another name."),
    exc.MultipleResultsFound: always(Code.CONFLICT, "Several rows fit: say more exactly which one."),
    exc.TimeoutError: always(Code.BUSY, "All connections to the database are in use."),
    exc.EmulatedDBAPIException: _BUG,
    sqlite3.Error: _BUG,
    sqlite3.Warning: _BUG,
    sqlite3.OperationalError: _sqlite_operational,
    sqlite3.IntegrityError: _CONSTRAINT,
    sqlite3.DataError: _VALUE,
}
