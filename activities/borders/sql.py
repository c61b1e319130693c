"""SQL: the verdict on each exception of SQLAlchemy and of the drivers, and why a database cannot be used.

Data decide, not classes: the SQLSTATE of PostgreSQL, the errno of MySQL, the result code of SQLite, the code of
Oracle. SQLAlchemy wraps the driver's exception as `orig`, which decides there, too. Most codes prove that the statement
changed nothing: a database undoes a statement that fails, and a transaction whose commit fails. They prove nothing of a
statement that may have committed a part of itself, such as CALL.
"""

import re
import sqlite3
import ssl
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from pydantic import JsonValue
from sqlalchemy import exc

from activities.borders import entry_of, judge
from activities.borders.service_api import refused, unknown, unsent
from activities.borders.table import (
    Cases,
    Proof,
    Row,
    Table,
    Verdict,
    attribute,
    class_names,
    frames,
    named,
    of_module,
    parents,
    qualified,
)
from activities.errors import DatabaseFileGone, DatabaseUnavailable, WriteInReadTransaction
from workflows.faults.fault import Code

MAX_NAME = 256
"""Characters of a constraint's, table's or column's name; PostgreSQL's have at most 63 bytes."""

MAX_MESSAGE = 2000
"""Characters of libpq's message that are searched: the time for a pattern grows with their square."""

_UNREACHED = unsent(Code.UNREACHABLE, "The database cannot be reached, or is starting or stopping; nothing was sent.")
_LOST = unknown(Code.UNREACHABLE, "The connection to the database was lost.")
_INPUT_OUTPUT = unknown(Code.UNREACHABLE, "The file of the database cannot be read or written.")
_GONE = unsent(
    Code.UNREACHABLE, "The file of the database was deleted or replaced: put it back, or start the worker again."
)
_TIMEOUT = refused(
    Code.TIMEOUT, "The database stopped the statement or its transaction, which took too long or was cancelled."
)
_STOPPED = replace(_TIMEOUT, proves=Proof.UNKNOWN)
_NO_MEMORY = refused(Code.OVERLOADED, "The database has too little memory, or too many threads.")
_LOCKED = refused(Code.BUSY, "The database is locked by another writer.")
_IN_USE = unsent(Code.BUSY, "All connections to the database are in use.")
_NEVER_CONNECTED = unsent(
    Code.UNREACHABLE,
    "The tool's pool cannot connect to the database: check its address, its user and its password; nothing was sent.",
)
_STALE = refused(Code.BUSY, "The tables were changed while the statement ran: it has to run again.")
_LIMIT = refused(Code.RATE_LIMITED, "The database allows this user no more requests for now.")
_LOGIN = unsent(
    Code.UNAUTHORIZED, "The database rejects the user or the password: correct the address that the tool connects to."
)
_DENIED = refused(Code.FORBIDDEN, "The database does not let its user do that: give the user the permission.")
_CLOSED = refused(Code.FORBIDDEN, "The database may not be written by the worker: give it the permission.")
_TLS = unsent(
    Code.NEEDS_PERSON,
    "The worker and the database do not agree on TLS: correct the certificate, or the options of the connection.",
)
_NO_DATABASE = refused(Code.NEEDS_PERSON, "The server has no such database: create it, or correct the tool's address.")
_BLOCKED = unsent(Code.NEEDS_PERSON, "The database does not take connections from the worker's machine: unblock it.")
_DAMAGED = unknown(Code.NEEDS_PERSON, "The database is damaged, or is none: restore it from a backup.")
_FULL = refused(Code.QUOTA_EXHAUSTED, "The disk of the database is full: free some space.")
_CONFIGURED = refused(Code.QUOTA_EXHAUSTED, "A limit in the database's configuration is reached: raise it.")
_CONSTRAINT = refused(
    Code.CONFLICT, "The database rejected the change, since it breaks a constraint: read the rows and choose again."
)
_SEVERAL = refused(Code.CONFLICT, "Several rows match: choose one of them.")
_NO_ROW = refused(Code.NOT_FOUND, "There is no such row: look for it under another name.")
_RAISED = refused(Code.REFUSED, "A trigger or a function of the database rejected the change.")
_NOT_READ = unknown(Code.UNEXPECTED_RESULT, "The statement was carried out, and a value of its result cannot be read.")
_VALUE = refused(Code.INVALID_INPUT, "The database cannot store such a value: change the arguments.")
_TOO_LARGE = refused(Code.INVALID_INPUT, "A value is too large for the database: make it smaller.")
_NO_TABLE = refused(
    Code.BUG,
    "The tool uses a table that does not exist: declare it as Table(..., metadata), with `from replan import metadata`,"
    " and start the worker again, which creates it; in a datasource of the tool, create it yourself.",
)
_WRONG_SQL = refused(Code.BUG, "The database rejects the SQL of the tool: fix the tool.")
_ABORTED = refused(
    Code.BUG,
    "The tool went on after a statement of the transaction had failed: let the first exception end the transaction.",
)
_INTERNAL = unknown(Code.BUG, "The database failed with an internal error: look into its log.")
_POOL = unsent(Code.BUG, "The tool's pool of connections is closed, or not yet open: keep it open while tools run.")
_BUG = unknown(Code.BUG, "The tool uses its database wrongly: fix the tool.")
_OTHER_VERSION = refused(
    Code.WRONG_STORE,
    "Replan's own tables are missing there, or of another version than this worker: start a worker of that version on"
    " it, or start this one again, which migrates older tables.",
)


_SQLSTATE = named(
    (_UNREACHED, "08001 08004 57P03"),
    # 40003: completion unknown. 08P01: poolers answer so when they have no server. 57: the server is stopped or dies.
    # An administrator may end the session while it waits, after the commit, for a standby: so the effect is unknown.
    (_LOST, "08 40003 57 HV00N"),
    (unknown(Code.SERVER_ERROR, "The machine of the database failed to read or write a file."), "58"),
    # The server ends an idle transaction or session (25P03, 25P04, 57P05), and rolls back what was not committed.
    (_TIMEOUT, "57014 25P03 25P04 57P05"),
    (_NO_MEMORY, "53"),
    (_LOCKED, "40 55P03 55006"),  # rolled back: deadlock, serialization failure; lock not available; object in use
    (_IN_USE, "53300"),
    (_STALE, "72"),
    (_LOGIN, "28"),  # a user can be rejected only before the first statement
    (_DENIED, "42501"),
    (_CLOSED, "25006"),
    (_NO_DATABASE, "3D 57P04"),
    (_DAMAGED, "XX001 XX002"),
    (_FULL, "53100"),
    (_CONFIGURED, "53400"),
    (_CONSTRAINT, "23 40002 44"),
    (_SEVERAL, "P0003"),
    (_NO_ROW, "P0002"),
    (_RAISED, "P0001"),  # RAISE of PL/pgSQL
    (_VALUE, "22"),
    (_TOO_LARGE, "54"),
    (_NO_TABLE, "42P01"),
    (_ABORTED, "25P02"),
    (_INTERNAL, "XX F0 HV"),
    (_WRONG_SQL, "01 02 03 09 0A 0B 0F 0L 0P 0Z 10 20 21 24 25 26 27 2B 2D 2F 34 38 39 3B 3F 42 54011 54023 55 P0"),
    (_WRONG_SQL, "58P01 58P02"),  # COPY from or to a file of the server, an extension that is not installed
)
"""Rows by SQLSTATE (PostgreSQL's manual, appendix A) or by the beginning of it: the longest beginning wins."""

_ERRNO = named(
    (_UNREACHED, "2001 2002 2003 2004 2005 2012"),
    # 0: PyMySQL's own connection is closed. 1053: the server shuts down. 2006 comes after a part was sent, too.
    (_LOST, "0 1053 1152 1158 1159 1160 1161 1184 1927 2006 2013 2027 2055 3169 4031"),
    (_TIMEOUT, "3024"),  # of a SELECT
    # A statement over a table without transactions, or a procedure, may have changed some rows.
    (_STOPPED, "1317 1969"),
    (_NO_MEMORY, "1037 1038 1041 1135 1206"),
    # 1213 rolls back the transaction, 1205 only its last statement: that of the exception, which ends the transaction.
    (_LOCKED, "1020 1205 1213 1613 1614 3058 3101 3572"),
    (_IN_USE, "1040 1203"),
    (_STALE, "1412 1615"),
    (_LIMIT, "1226"),
    (_LOGIN, "1045 1130 1251 1698 1820 1862 2049 2059 2061 3118"),
    (_DENIED, "1044 1142 1143 1227 1370"),
    (_CLOSED, "1290 1792 1836"),
    (_TLS, "2026"),
    (_NO_DATABASE, "1049"),
    (_BLOCKED, "1129"),
    (_DAMAGED, "1034 1035 1194 1195 1712"),
    (_FULL, "1021 1114"),
    (_CONSTRAINT, "1022 1048 1062 1169 1216 1217 1451 1452 1557 1586 1761 1762 3819 4025"),
    (_RAISED, "1644"),  # SIGNAL
    (_VALUE, "1264 1265 1292 1300 1365 1366 1367 1406 1411 1690 3140"),
    (_TOO_LARGE, "1118 1153 1301 2020"),
    (_NO_TABLE, "1146"),
    (_WRONG_SQL, "1046 1047 1050 1051 1052 1054 1060 1061 1064 1091 1109 1136 1149 1210 1222 1235 1305 1318 1364 2014"),
)
"""Rows by the errno of MySQL and MariaDB (https://dev.mysql.com/doc/mysql-errors/en/, https://mariadb.com/kb/en/)."""

_SQLITE = named(
    (refused(Code.UNREACHABLE, "The file of the database cannot be opened."), "SQLITE_CANTOPEN"),
    (_INPUT_OUTPUT, "SQLITE_IOERR"),  # unknown, since a commit that failed so may have reached the disk
    (_GONE, "SQLITE_READONLY_DBMOVED"),
    (_TIMEOUT, "SQLITE_INTERRUPT"),
    (_NO_MEMORY, "SQLITE_NOMEM"),
    (_LOCKED, "SQLITE_BUSY SQLITE_LOCKED SQLITE_PROTOCOL"),  # the last is a race for the lock of the write-ahead log
    (_STALE, "SQLITE_SCHEMA"),
    (_CLOSED, "SQLITE_READONLY SQLITE_PERM SQLITE_AUTH"),
    (_DAMAGED, "SQLITE_CORRUPT SQLITE_NOTADB"),
    (_FULL, "SQLITE_FULL"),
    (_CONSTRAINT, "SQLITE_CONSTRAINT"),
    (_VALUE, "SQLITE_MISMATCH"),
    (_TOO_LARGE, "SQLITE_TOOBIG"),
    (_WRONG_SQL, "SQLITE_ERROR SQLITE_RANGE"),
    (_BUG, "SQLITE_MISUSE"),
)
"""Rows by the beginning of SQLite's result code (https://sqlite.org/rescode.html): the longest beginning wins."""

_ORACLE: Mapping[str, Row] = named(
    (_UNREACHED, "ORA-01033 ORA-12170 ORA-12541 ORA-12543 DPY-6005"),
    (_LOST, "ORA-00028 ORA-01012 ORA-01092 ORA-03113 ORA-03114 ORA-03135 ORA-12537 ORA-12547 DPY-4011 DPY-1001"),
    (_LOST, "ORA-01034 ORA-01089"),
    (_STOPPED, "ORA-01013 ORA-03136 DPY-4024"),
    (_NO_MEMORY, "ORA-04031 ORA-04030"),
    (_LOCKED, "ORA-00054 ORA-00060 ORA-08177 ORA-30006"),
    (_IN_USE, "ORA-00018 ORA-00020 ORA-12516 ORA-12519 ORA-12520 DPY-4005"),
    (_STALE, "ORA-04068 ORA-08176"),
    (_LIMIT, "ORA-02391"),
    (_LOGIN, "ORA-01005 ORA-01017 ORA-28000 ORA-28001 ORA-01045 DPY-4001"),
    (_DENIED, "ORA-01031"),
    (_CLOSED, "ORA-16000"),
    (_TLS, "ORA-28860 ORA-29024 DPY-6006"),
    (_NO_DATABASE, "ORA-12505 ORA-12514 DPY-6001 DPY-6003"),
    (_DAMAGED, "ORA-01578"),
    (_FULL, "ORA-01653 ORA-01654 ORA-01536"),
    (_CONSTRAINT, "ORA-00001 ORA-01400 ORA-01407 ORA-02290 ORA-02291 ORA-02292"),
    (_SEVERAL, "ORA-01422"),
    (_NO_ROW, "ORA-01403"),
    (_VALUE, "ORA-01438 ORA-01722 ORA-01830 ORA-01858 ORA-01861 ORA-12899"),
    (_NO_TABLE, "ORA-00942"),
    (_WRONG_SQL, "ORA-00900 ORA-00904 ORA-00905 ORA-00907 ORA-00911 ORA-00923 ORA-00933 ORA-00936 ORA-00955"),
    (_INTERNAL, "ORA-00600 ORA-07445"),
)
"""Rows by the code of Oracle (https://docs.oracle.com/error-help/db/), and by that of its driver."""

_POSTGRESQL: Mapping[str, Row] = {**_SQLSTATE, "TLS": _TLS}
_TABLES: Mapping[str, Row] = {**_POSTGRESQL, **_SQLITE, **_ORACLE}

_LIBPQ: Mapping[str, str] = {
    r"authentication failed|no password supplied|no pg_hba\.conf entry": "28",
    r"role \".*\" (does not exist|is not permitted)": "28",
    r"database \".*\" does not exist|no such database": "3D000",
    r"too many clients|too many connections|connection slots|no more connections": "53300",
    r"certificate verify failed|root certificate|client certificate|does not support SSL": "TLS",
}
"""Keys of _POSTGRESQL by a pattern of libpq's message, since libpq gives no code for a failed connection."""
_CONNECTING = re.compile(
    "connection (failed|is bad): |connection to server |could not (connect|translate host name) "
    "|failed to resolve host |no host found "
)
"""How messages of psycopg, psycopg2 and libpq begin when no connection could be made."""

_BY_OWN_MESSAGE: Mapping[str, Mapping[str, Row]] = {
    # Once a connection is lost, psycopg2 calls its cursors closed.
    "psycopg2": {
        "connection already closed": _LOST,
        "cursor already closed": _LOST,
        "connection pool exhausted": _IN_USE,
    },
    "asyncpg": {"connection is closed": _LOST, "cannot perform operation: connection is closed": _LOST},
    "pymysql": {"Already closed": _LOST},
}
"""Rows by package and by the message, of a driver's own errors that have no class and no code of their own."""

_LACKING = ("42P01", "42703", "SQLITE_ERROR")
"""Codes for a missing table or column. SQLITE_ERROR also stands for wrong SQL, but Replan's own SQL is correct."""
_OURS = re.compile(r"\breplan_(ledger|store|payloads)\b")


def _driver(rows: Mapping[str, Row], otherwise: Row) -> Cases:
    """The entry for a driver's exception: its code decides, or `otherwise` if no table has the code."""

    def decide(error: Any) -> Verdict:
        return _unless_in_part((_row(error) or otherwise).verdict(observed=_names(error)), error)

    return Cases("the code of the database", rows, decide, otherwise)


def _wrapper(otherwise: Row) -> Cases:
    """The entry for an exception of SQLAlchemy: the wrapped exception decides, or `otherwise` if no table has it."""

    def decide(error: Any) -> Verdict:
        inner, statement = _innermost(error), attribute(error, "statement")
        if _code(inner) in _LACKING and isinstance(statement, str) and _OURS.search(statement):
            return _OTHER_VERSION.verdict()
        is_endless = _innermost(inner) is not inner  # a chain that leads back to itself
        if inner is error or is_endless or not entry_of(class_names(type(inner))):
            verdict = (_row(inner) or otherwise).verdict(observed=_names(inner))
        else:
            verdict = judge(inner)
        is_lost = attribute(error, "connection_invalidated") is True and verdict.fault.code is Code.BUG
        return _LOST.verdict() if is_lost else _unless_in_part(verdict, error)

    rows = {**_TABLES, **{f"errno {number}": row for number, row in _ERRNO.items()}}
    return Cases("the exception that it wraps", rows, decide, otherwise)


_IN_PART = re.compile(
    r"^(?:\W|SQL\b|Composed\b)*(?:(?:call|exec|execute|declare)\b"
    r"|begin\s+(?!(?:deferred|immediate|exclusive|concurrent|work|tran|transaction|isolation|read)\b)\w)"
    r"|(?<=[\s;])commit\b|\bor\s+fail\b|;\s*call\b",
    re.IGNORECASE,
)
"""What a statement contains that may keep a part of its changes when it fails: a procedure or a block, which may
commit; several statements, of which one commits; or SQLite's `OR FAIL`, which keeps the rows before the failed one."""


def _unless_in_part(verdict: Verdict, error: Any) -> Verdict:
    """`verdict`, changed to prove nothing if the failed statement may have kept a part of its changes."""
    is_open = verdict.proves is Proof.REFUSED and any(map(_IN_PART.search, _statements(error)))
    return replace(verdict, proves=Proof.UNKNOWN) if is_open else verdict


def _statements(error: Any) -> Iterator[str]:
    """Yield the failed statement, as SQLAlchemy or psycopg2 keep it, and as the functions of drivers received it."""
    found = (
        attribute(error, "statement"),
        attribute(error, "cursor", "query"),
        *(frame.f_locals.get("query") for _, frame in frames(error, "psycopg", "asyncpg", "pymysql")),
        *(frame.f_locals.get("statement") for _, frame in frames(error, "oracledb")),
    )
    for query in found:
        if query is not None:
            yield query if isinstance(query, str) else query.decode() if isinstance(query, bytes) else repr(query)


def _of_psycopg(error: Any) -> Verdict:
    """The verdict on psycopg's DataError, from the server or psycopg itself, before or after the statement was sent."""
    functions = [frame.f_code.co_name for _, frame in frames(error, "psycopg", "psycopg_c", "psycopg_binary")]
    if _code(error):
        return _driver(_POSTGRESQL, _VALUE)(error)
    if any(re.search("fetch|load|iter", name) for name in functions):
        return _NOT_READ.verdict()
    # `executemany` has sent the rows before.
    return (_VALUE if functions[-1:] == ["execute"] else replace(_VALUE, proves=Proof.UNKNOWN)).verdict()


def _of_pool(error: Any) -> Verdict | None:
    """The verdict on a pool that gave no connection, if all its attempts to connect have failed; else None."""
    for _, frame in frames(error, "psycopg_pool"):
        pool: Any = frame.f_locals.get("self")
        counts = pool.get_stats() if hasattr(pool, "get_stats") else {}
        if counts.get("connections_errors") and "connections_ms" not in counts:
            return _NEVER_CONNECTED.verdict()
    return None


_READ = re.compile(r"\W*(?:select|with(?!.*\b(?:insert|update|delete|merge)\b))\b", re.IGNORECASE | re.DOTALL)


def _several(error: Any) -> Verdict | None:
    """The verdict on MultipleResultsFound if the statement only reads; None if the statement may have changed rows."""
    results = [frame.f_locals.get("self") for _, frame in frames(error, "sqlalchemy")]
    more = [attribute(result, name) for result in results for name in ("_real_result", "raw")]
    statements = [attribute(result, "context", "statement") for result in [*results, *more]]
    is_read = any(isinstance(statement, str) and _READ.match(statement) for statement in statements)
    return _SEVERAL.verdict() if is_read else None


_WRAPPERS = (exc.StatementError, exc.EmulatedDBAPIException)


def _innermost(error: Any) -> Any:
    """The driver's exception under SQLAlchemy's; its dialects for asyncio put another exception between them."""
    for _ in range(5):
        inner = attribute(error, "orig") if isinstance(error, _WRAPPERS) else None
        if not isinstance(inner, BaseException):
            break
        error = inner
    return error


def _row(error: Any) -> Row | None:
    """The row of the code in a driver's exception; None if the exception has no code, or no table has the code."""
    package, first, code = _package(error), _first_argument(error), _code(error)
    if isinstance(attribute(error, "original_exception"), ssl.SSLCertVerificationError):  # PyMySQL's 2003
        return _TLS
    oracle = attribute(first, "full_code")
    if isinstance(oracle, str) and oracle in _ORACLE:
        return _ORACLE[oracle]
    if package in _MYSQL and isinstance(first, int) and str(first) in _ERRNO:
        return _ERRNO[str(first)]
    if code == "SQLITE_ERROR" and isinstance(first, str) and first.startswith("no such table"):
        return _NO_TABLE
    if code == "0A000" and attribute(attribute(error, "diag"), "source_function") == "RevalidateCachedQuery":
        return _STALE  # a prepared statement is older than its table
    if not code and isinstance(first, str) and first in _BY_OWN_MESSAGE.get(package, {}):
        return _BY_OWN_MESSAGE[package][first]
    return next((_TABLES[code[:end]] for end in range(len(code), 1, -1) if code[:end] in _TABLES), None)


_MYSQL = ("pymysql", "MySQLdb", "asyncmy", "mysql", "mariadb")
"""Packages whose exceptions have MySQL's errno as their first argument."""
_LIBPQ_PACKAGES = ("psycopg", "psycopg2")


def _names(error: BaseException) -> JsonValue:
    """The names of the constraint, table and column that PostgreSQL's answer has as data; None without any."""
    found = dict[str, JsonValue]()
    for source in (attribute(error, "diag"), error):
        for key in ("constraint", "table", "column"):
            name = attribute(source, f"{key}_name")
            if isinstance(name, str) and name:
                found[key] = name[:MAX_NAME]
    return found or None


def _code(error: Any) -> str:
    """SQLite's result code or the SQLSTATE; for a failed libpq connection the code for its message; else empty."""
    original = _innermost(error)
    codes = (attribute(original, name) for name in ("sqlite_errorname", "sqlstate", "pgcode"))
    code = next((code[:MAX_NAME] for code in codes if isinstance(code, str) and code), "")
    package = _package(original)
    if not code and package == "psycopg2":  # which sets pgcode only on what the server sent
        known = getattr(sys.modules.get("psycopg2._psycopg"), "sqlstate_errors", {})
        code = next((state for state, raised in known.items() if raised is type(original)), "")
    return code or (_libpq_code(original) if package in _LIBPQ_PACKAGES else "")


def _libpq_code(error: Any) -> str:
    """The code in _POSTGRESQL for libpq's message about a failed connection; empty for any other message."""
    message = str(first)[:MAX_MESSAGE] if isinstance(first := _first_argument(error), str) else ""
    if not message or not (_CONNECTING.match(message) or attribute(error, "pgconn")):
        return ""
    return next((code for pattern, code in _LIBPQ.items() if re.search(pattern, message)), "08001")


def _package(error: object) -> str:
    """The driver's package that defines the class or one of its base classes; empty for other packages."""
    packages = (str(raised.__module__).partition(".")[0] for raised in parents(type(error)))
    return next((package for package in packages if package in (*_MYSQL, *_LIBPQ_PACKAGES, "asyncpg")), "")


def _first_argument(error: object) -> object:
    args = attribute(error, "args")
    return args[0] if isinstance(args, tuple) and args else None


def _drivers(package: str, rows: Mapping[str, Row], *, operational: Row = _LOST, internal: Row = _BUG) -> Table:
    """The entries for the classes that PEP 249 requires of a driver; the others have the entry of their parent.

    `operational` and `internal` are for errors of these classes whose code `rows` does not have.
    """
    return {
        f"{package}.Warning": _BUG,
        f"{package}.Error": _driver(rows, _BUG),
        f"{package}.OperationalError": _driver(rows, operational),
        f"{package}.InternalError": _driver(rows, internal),
        f"{package}.IntegrityError": _driver(rows, _CONSTRAINT),
        f"{package}.DataError": _driver(rows, _VALUE),
    }


TABLE: Table = {
    **_drivers("sqlite3", _SQLITE),
    **_drivers("psycopg", _POSTGRESQL),
    "psycopg.DataError": Cases(
        "the code of the database, or where it was raised",
        {**_POSTGRESQL, "while reading the result": _NOT_READ, "in execute()": _VALUE},
        _of_psycopg,
        otherwise=replace(_VALUE, proves=Proof.UNKNOWN),
    ),
    "psycopg.errors.ConnectionTimeout": _UNREACHED,
    "psycopg.errors.CancellationTimeout": unknown(
        Code.TIMEOUT, "The database did not confirm in time that a statement was cancelled."
    ),
    "psycopg.errors.PipelineAborted": _ABORTED,
    "psycopg.Rollback": _BUG,  # for the inside of `Connection.transaction()`, which catches it
    "psycopg_pool.PoolTimeout": Cases(
        "whether the pool has ever connected", {"never": _NEVER_CONNECTED}, _of_pool, otherwise=_IN_USE
    ),
    "psycopg_pool.TooManyRequests": _IN_USE,
    "psycopg_pool.PoolClosed": _POOL,
    **_drivers("psycopg2", _POSTGRESQL),
    "psycopg2.extras.StopReplication": _BUG,  # for the inside of `consume_stream`, which lets it end the stream
    "psycopg2.extensions.TransactionRollbackError": _driver(_SQLSTATE, _LOCKED),
    "psycopg2.extensions.QueryCanceledError": _driver(_SQLSTATE, _TIMEOUT),
    "psycopg2.pool.PoolError": _driver(_BY_OWN_MESSAGE["psycopg2"], _POOL),
    "asyncpg.exceptions._base.PostgresError": _driver(_SQLSTATE, _BUG),
    # The server has an answer for the statement, but not one in the shape that was prepared.
    "asyncpg.exceptions.InvalidCachedStatementError": _STALE,
    # The answer came, and cannot be read: so the statement ran.
    "asyncpg.exceptions._base.OutdatedSchemaCacheError": unknown(Code.BUSY, _STALE.reason),
    "asyncpg.exceptions._base.TargetServerAttributeNotMatched": unsent(
        Code.UNREACHABLE, "No server of the database has the wanted role now, such as primary."
    ),
    "asyncpg.exceptions._base.InterfaceError": _driver(_BY_OWN_MESSAGE["asyncpg"], _BUG),
    "asyncpg.exceptions._base.DataError": _VALUE,
    "asyncpg.exceptions._base.InternalClientError": _BUG,
    **of_module(
        "asyncpg",
        (_BUG, "exceptions.PostgresWarning exceptions._base.InterfaceWarning cluster.ClusterError"),
        (_BUG, "pgproto.pgproto.BufferError"),
    ),
    # Errors over 1999 and without a class are OperationalErrors, so an errno that no table knows proves nothing.
    **_drivers("pymysql.err", _ERRNO, operational=_INTERNAL, internal=_LOST),
    "pymysql.err.MySQLError": _BUG,
    **_drivers("oracledb.exceptions", _ORACLE),
    # Most codes have no class of their own.
    "oracledb.exceptions.DatabaseError": _driver(_ORACLE, _BUG),
    # The driver catches these two itself.
    "oracledb.thin_impl.MarkerDetected": _LOST,
    "oracledb.thin_impl.OutOfPackets": _LOST,
    "sqlalchemy.exc.SQLAlchemyError": _wrapper(_BUG),
    "sqlalchemy.exc.EmulatedDBAPIException": _wrapper(_BUG),
    # This one class does not keep the exception that it wraps.
    "sqlalchemy.dialects.postgresql.asyncpg.AsyncAdapt_asyncpg_dbapi.InvalidCachedStatementError": _STALE,
    "sqlalchemy.exc.OperationalError": _wrapper(_LOST),
    "sqlalchemy.exc.InterfaceError": _wrapper(_LOST),
    "sqlalchemy.exc.IntegrityError": _wrapper(_CONSTRAINT),
    "sqlalchemy.exc.DataError": _wrapper(_VALUE),
    "sqlalchemy.exc.DisconnectionError": _LOST,
    "sqlalchemy.exc.TimeoutError": _IN_USE,
    "sqlalchemy.exc.NoResultFound": _NO_ROW,
    "sqlalchemy.exc.MultipleResultsFound": Cases(
        "the statement", {"SELECT": _SEVERAL}, _several, otherwise=replace(_SEVERAL, proves=Proof.UNKNOWN)
    ),
    "sqlalchemy.orm.exc.StaleDataError": refused(
        Code.PRECONDITION_FAILED, "The row has changed since it was read: read it again."
    ),
    **of_module(
        "sqlalchemy.exc", (_BUG, "SAWarning SADeprecationWarning SAPendingDeprecationWarning SATestSuiteWarning")
    ),
    qualified(WriteInReadTransaction): refused(
        Code.BUG,
        "The tool writes to a database where it may only read, as a @tool.read everywhere and a @tool.unkeyed in the"
        " store: declare it @tool.transactional.",
    ),
    qualified(DatabaseFileGone): _GONE,
    qualified(DatabaseUnavailable): unsent(
        Code.STORE_UNAVAILABLE, "The database of the call is locked or cannot be reached; nothing was done."
    ),
}

DATABASE_ERRORS = (exc.SQLAlchemyError, sqlite3.Error, OSError, DatabaseFileGone, DatabaseUnavailable)
"""The exceptions that code can get when it uses a database."""

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
    "Connection refused": "nothing listens there",
    "failed to resolve host": "its host is not known",
    "timeout expired": "it gave no answer",
}
"""Why a database cannot be reached, by a part of libpq's message."""

_BY_CLASS: Mapping[type[BaseException], str] = {
    exc.ArgumentError: "it is no URL of a database",
    exc.NoSuchModuleError: "there is no such driver: write sqlite+aiosqlite:// or postgresql+psycopg://",
    exc.InvalidRequestError: "its driver is not asynchronous: write sqlite+aiosqlite:// or postgresql+psycopg://",
}
"""Why a database cannot be used, by the class of SQLAlchemy's exception about its URL."""


def is_unavailable(error: BaseException) -> bool:
    """Whether an exception says that a database cannot be reached now, or is locked: a retry may succeed."""
    return judge(error).fault.code in (Code.UNREACHABLE, Code.BUSY)


def cause(error: BaseException) -> str:
    """Why a database cannot be used, in a few words; the class of the exception if that is unknown."""
    code, message = _code(error), str(getattr(error, "orig", None) or "")
    by_code = (reason for start, reason in _CAUSES.items() if code.startswith(start))
    by_message = (reason for part, reason in _BY_MESSAGE.items() if part in message)
    return next(by_code, None) or next(by_message, None) or _BY_CLASS.get(type(error)) or type(error).__name__
