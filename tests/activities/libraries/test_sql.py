"""The drivers of databases: real exceptions from a real PostgreSQL and SQLite, and PyMySQL's from its own parser."""

import asyncio
import importlib
import pkgutil
import sqlite3
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import create_engine, exc, pool, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.ext.asyncio import create_async_engine

from activities.borders import entry_of, judge
from activities.borders.described import rows_of
from activities.borders.sql import TABLE, is_unavailable
from activities.borders.table import Cases, Proof, Row, Verdict, qualified
from evals.fakes.postgresql import Cluster
from runtime.dev_server import free_port
from workflows.faults.fault import Code

for name in ("psycopg2", "psycopg_pool", "asyncpg", "pymysql", "oracledb"):
    pytest.importorskip(name)

psycopg2: Any = importlib.import_module("psycopg2")
psycopg2_pool: Any = importlib.import_module("psycopg2.pool")
psycopg_pool: Any = importlib.import_module("psycopg_pool")
asyncpg: Any = importlib.import_module("asyncpg")
pymysql: Any = importlib.import_module("pymysql")
oracledb: Any = importlib.import_module("oracledb")
oracledb_errors: Any = importlib.import_module("oracledb.errors")
aiosqlite: Any = importlib.import_module("aiosqlite")

pytestmark = pytest.mark.full

HIDDEN = "sk-secret"
DRIVERS = ("psycopg", "psycopg2", "asyncpg", "postgresql+psycopg", "postgresql+psycopg2", "postgresql+asyncpg")
"""The drivers for PostgreSQL: each directly, and under SQLAlchemy, whose URLs begin so."""
SCHEMA = (
    "CREATE TABLE seats (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE CHECK (name <> 'nobody'), age SMALLINT)",
    "CREATE TABLE notes (slot INTEGER NOT NULL REFERENCES seats (id))",
    "INSERT INTO seats VALUES (1, 'ann'), (2, 'bob')",
)
Execute = Callable[[str], Awaitable[Any]]


@asynccontextmanager
async def transaction(driver: str, url: URL) -> AsyncIterator[Execute]:
    """A transaction over one of the drivers: a function that executes a statement in it. It is never committed."""
    if driver.startswith("postgresql+"):
        async with wrapped(url.set(drivername=driver)) as execute:
            yield execute
        return
    plain = url.set(drivername="postgresql").render_as_string(hide_password=False)
    if driver == "asyncpg":
        connection = await asyncpg.connect(plain)
        try:
            await connection.execute("BEGIN")
            yield connection.execute
        finally:
            connection.terminate()
        return
    opened: Any = await asyncio.to_thread(importlib.import_module(driver).connect, plain)
    try:
        cursor = opened.cursor()
        yield lambda statement: asyncio.to_thread(cursor.execute, statement)
    finally:
        opened.close()


@asynccontextmanager
async def wrapped(url: URL) -> AsyncIterator[Execute]:
    """A transaction over SQLAlchemy."""
    if url.drivername.endswith("psycopg2"):
        engine = create_engine(url, poolclass=pool.NullPool)
        connection = await asyncio.to_thread(engine.connect)
        try:
            yield lambda statement: asyncio.to_thread(connection.execute, text(statement))
        finally:
            with suppress(exc.DBAPIError):
                connection.close()
        return
    others = create_async_engine(url, poolclass=pool.NullPool)
    async with others.connect() as one:
        yield lambda statement: one.execute(text(statement))


@pytest.fixture
def url(postgresql: Cluster) -> Iterator[URL]:
    """A database with two seats."""
    name = postgresql.create()
    address = make_url(postgresql.url(name))
    with admin(address) as other:
        for statement in SCHEMA:
            other.execute(statement.encode())
    yield address
    postgresql.drop(name)


def admin(url: URL) -> psycopg.Connection[Any]:
    """Another connection, on which each statement is a transaction."""
    plain = url.set(drivername="postgresql").render_as_string(hide_password=False)
    return psycopg.connect(plain, autocommit=True)


async def verdict_of(driver: str, url: URL, *statements: str) -> Verdict:
    """What the last of some statements is judged as."""
    with pytest.raises(Exception) as raised:  # which class it is, is what the border is asked
        async with transaction(driver, url) as execute:
            for statement in statements:
                await execute(statement)
    return judged(raised.value)


def judged(error: BaseException) -> Verdict:
    """The verdict on an exception, which must not have a word of it."""
    verdict = judge(error)

    assert HIDDEN not in verdict.fault.model_dump_json()
    return verdict


def short(verdict: Verdict) -> tuple[Code, Proof]:
    """What tests compare."""
    return verdict.fault.code, verdict.proves


ANSWERS = {
    "INSERT INTO seats VALUES (1, 'sk-secret')": (Code.CONFLICT, {"constraint": "seats_pkey", "table": "seats"}),
    "INSERT INTO seats VALUES (3, 'ann')": (Code.CONFLICT, {"constraint": "seats_name_key", "table": "seats"}),
    "INSERT INTO seats VALUES (3, NULL)": (Code.CONFLICT, {"table": "seats", "column": "name"}),
    "INSERT INTO seats VALUES (3, 'nobody')": (Code.CONFLICT, {"constraint": "seats_name_check", "table": "seats"}),
    "INSERT INTO notes VALUES (99)": (Code.CONFLICT, {"constraint": "notes_slot_fkey", "table": "notes"}),
    "INSERT INTO seats VALUES (3, 'eve', 40000)": (Code.INVALID_INPUT, None),
    "SELECT CAST('sk-secret' AS INTEGER)": (Code.INVALID_INPUT, None),
    "SELEKT 'sk-secret'": (Code.BUG, None),
    "SELECT * FROM nowhere": (Code.BUG, None),
    "SELECT sk_secret FROM seats": (Code.BUG, None),
    "DO $$ BEGIN RAISE EXCEPTION 'sk-secret'; END $$": (Code.REFUSED, None),
}


@pytest.mark.parametrize("driver", DRIVERS)
async def test_what_postgresql_answers_to_a_statement(driver: str, url: URL) -> None:
    """An answer proves that nothing was changed, and a constraint comes with its name, but never with a value."""
    found = {statement: await verdict_of(driver, url, statement) for statement in ANSWERS}

    assert {one: (*short(v), v.fault.observed) for one, v in found.items()} == {
        statement: (code, Proof.REFUSED, observed) for statement, (code, observed) in ANSWERS.items()
    }


LIMITS = {
    ("SET LOCAL statement_timeout = 30", "SELECT pg_sleep(5)"): Code.TIMEOUT,
    ("SET LOCAL lock_timeout = 30", "LOCK TABLE notes"): Code.BUSY,
    ("LOCK TABLE notes NOWAIT",): Code.BUSY,
    ("SET TRANSACTION READ ONLY", "DELETE FROM seats"): Code.FORBIDDEN,
    ("SET LOCAL ROLE guest", "DELETE FROM seats"): Code.FORBIDDEN,
}


PROCEDURE = (
    "CREATE PROCEDURE sell() LANGUAGE plpgsql AS"
    " $$ BEGIN INSERT INTO seats VALUES (7, 'eve'); COMMIT; INSERT INTO seats VALUES (7, 'eve'); END $$"
)
IN_PART = (
    "CALL sell()",
    "DO $$ BEGIN INSERT INTO seats VALUES (7, 'eve'); COMMIT; INSERT INTO seats VALUES (7, 'eve'); END $$",
)
"""Statements that fail after they have committed a row."""


async def commit(driver: str, url: URL, statement: str) -> None:
    """Execute a statement that is a transaction of its own."""
    plain = url.set(drivername="postgresql").render_as_string(hide_password=False)
    if driver == "asyncpg":
        connection = await asyncpg.connect(plain)
        try:
            await connection.execute(statement)
        finally:
            await connection.close()
    elif driver == "postgresql+asyncpg":
        engine = create_async_engine(url.set(drivername=driver), poolclass=pool.NullPool, isolation_level="AUTOCOMMIT")
        async with engine.connect() as one:
            await one.execute(text(statement))
    elif driver.startswith("postgresql+"):
        blocking = create_engine(url.set(drivername=driver), poolclass=pool.NullPool, isolation_level="AUTOCOMMIT")
        with blocking.connect() as other:
            other.execute(text(statement))
    else:
        opened: Any = importlib.import_module(driver).connect(plain)
        try:
            opened.autocommit = True
            opened.cursor().execute(statement)
        finally:
            opened.close()


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("statement", IN_PART)
async def test_a_statement_that_has_committed_a_part_proves_nothing(driver: str, url: URL, statement: str) -> None:
    """The database rejects the rest of it, and the first row stays."""
    with admin(url) as other:
        other.execute(PROCEDURE.encode())
    with pytest.raises(Exception) as raised:  # which class it is, is what the border is asked
        await commit(driver, url, statement)
    with admin(url) as other:
        [kept] = other.execute("SELECT count(*) FROM seats WHERE id = 7").fetchall()

    assert kept == (1,)
    assert short(judged(raised.value)) == (Code.CONFLICT, Proof.UNKNOWN)


def test_a_result_that_psycopg_cannot_read_is_that_of_a_statement_that_ran(url: URL) -> None:
    """Its own DataError comes before the statement, too: only then is nothing changed."""
    with admin(url) as connection:
        with pytest.raises(psycopg.DataError) as unread:
            connection.execute("INSERT INTO seats VALUES (7, 'eve') RETURNING 'infinity'::timestamptz").fetchone()
        with pytest.raises(psycopg.DataError) as unsent:
            connection.execute("INSERT INTO seats VALUES (8, %s)", [f"{HIDDEN}\0"])
        with pytest.raises(psycopg.DataError) as later:
            connection.cursor().executemany("INSERT INTO seats VALUES (%s, %s)", [[9, "kim"], [10, "\0"]])
        seats = connection.execute("SELECT id FROM seats WHERE id > 6 ORDER BY id").fetchall()

    assert seats == [(7,), (9,)]
    assert short(judged(unread.value)) == (Code.UNEXPECTED_RESULT, Proof.UNKNOWN)
    assert short(judged(unsent.value)) == (Code.INVALID_INPUT, Proof.REFUSED)
    assert short(judged(later.value)) == (Code.INVALID_INPUT, Proof.UNKNOWN)


@pytest.mark.parametrize("statement", ["SELECT id FROM seats", "WITH s AS (SELECT id FROM seats) SELECT id FROM s"])
def test_more_rows_than_one_of_a_query_changed_nothing(tmp_path: Path, statement: str) -> None:
    """SQLAlchemy says it of what it has read; of what a statement has changed, it says it after that."""
    engine = create_engine(f"sqlite:///{tmp_path / 'seats.db'}", isolation_level="AUTOCOMMIT", poolclass=pool.NullPool)
    with engine.connect() as connection:
        for prepared in (SCHEMA[0], "INSERT INTO seats (id, name) VALUES (1, 'ann'), (2, 'bob')"):
            connection.execute(text(prepared))
        with pytest.raises(exc.MultipleResultsFound) as read:
            connection.execute(text(statement)).scalar_one()
        with pytest.raises(exc.MultipleResultsFound) as changed:
            connection.execute(text("UPDATE seats SET age = 1 RETURNING id")).scalars().one()
        ages = connection.execute(text("SELECT DISTINCT age FROM seats")).scalars().all()

    assert ages == [1]
    assert short(judge(read.value)) == (Code.CONFLICT, Proof.REFUSED)
    assert short(judge(changed.value)) == (Code.CONFLICT, Proof.UNKNOWN)


def test_rows_before_a_failed_one_stay_where_a_statement_says_so(tmp_path: Path) -> None:
    """SQLite's `OR FAIL` does not undo them."""
    engine = create_engine(f"sqlite:///{tmp_path / 'seats.db'}", isolation_level="AUTOCOMMIT", poolclass=pool.NullPool)
    with engine.connect() as connection:
        connection.execute(text(SCHEMA[0]))
        with pytest.raises(exc.IntegrityError) as raised:
            connection.execute(text("INSERT OR FAIL INTO seats (id, name) VALUES (1, 'ann'), (2, 'ann')"))
        kept = connection.execute(text("SELECT count(*) FROM seats")).scalar_one()

    assert kept == 1
    assert short(judge(raised.value)) == (Code.CONFLICT, Proof.UNKNOWN)


@pytest.mark.parametrize("driver", DRIVERS)
async def test_limits_locks_and_permissions(driver: str, url: URL) -> None:
    """A statement that is stopped, or may not run, has changed nothing."""
    with admin(url) as holder:
        holder.execute("DO $$ BEGIN CREATE ROLE guest; EXCEPTION WHEN duplicate_object THEN END $$")
        with holder.transaction():
            holder.execute("LOCK TABLE notes")
            found = {statements: short(await verdict_of(driver, url, *statements)) for statements in LIMITS}

    assert found == {statements: (code, Proof.REFUSED) for statements, code in LIMITS.items()}


@pytest.mark.parametrize("driver", DRIVERS)
async def test_a_deadlock_is_busy_and_rolled_back(driver: str, url: URL) -> None:
    """The server chooses the one whose patience ends first."""
    with admin(url) as other, pytest.raises(Exception) as raised:
        async with transaction(driver, url) as execute:
            await execute("SET deadlock_timeout = '30ms'")
            await execute("UPDATE seats SET age = 1 WHERE id = 1")
            other.execute("SET deadlock_timeout = '60s'")
            other.execute("BEGIN")
            other.execute("UPDATE seats SET age = 2 WHERE id = 2")
            waiting = asyncio.create_task(asyncio.to_thread(other.execute, "UPDATE seats SET age = 2 WHERE id = 1"))
            try:
                await execute("UPDATE seats SET age = 1 WHERE id = 2")
            finally:
                await waiting

    assert short(judged(raised.value)) == (Code.BUSY, Proof.REFUSED)


@pytest.mark.parametrize("driver", DRIVERS)
async def test_a_serialization_failure_is_busy_and_rolled_back(driver: str, url: URL) -> None:
    """The row changed after the transaction began."""
    with admin(url) as other, pytest.raises(Exception) as raised:
        async with transaction(driver, url) as execute:
            await execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            await execute("SELECT * FROM seats")
            other.execute("UPDATE seats SET age = 2")
            await execute("UPDATE seats SET age = 1")

    assert short(judged(raised.value)) == (Code.BUSY, Proof.REFUSED)


@pytest.mark.parametrize("driver", DRIVERS)
async def test_a_server_that_stops_in_the_middle_is_lost(driver: str, url: URL, postgresql: Cluster) -> None:
    """Nobody knows what became of the statement, nor can the connection be used again."""
    found = list[BaseException]()
    with pytest.raises(Exception) as raised, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the pool, which cannot close what is broken
        async with transaction(driver, url) as execute:
            await execute("SELECT 1")
            try:
                await postgresql.stop()
                for _ in range(2):
                    try:
                        await execute("SELECT 1")
                    except Exception as error:
                        found.append(error)
            finally:
                await postgresql.start()
            raise found[0]

    assert raised.value is found[0]
    assert short(judged(found[0])) == (Code.UNREACHABLE, Proof.UNKNOWN) and is_unavailable(found[0])
    if not driver.startswith("postgresql+"):  # SQLAlchemy says that a rollback must come first, which is a bug
        assert short(judged(found[1])) == (Code.UNREACHABLE, Proof.UNKNOWN)


UNOPENED: dict[str, tuple[dict[str, Any], Code]] = {
    "wrong password": ({"password": "sk-wrong"}, Code.UNAUTHORIZED),
    "refused port": ({"port": 0}, Code.UNREACHABLE),
    "unknown host": ({"host": "nowhere.invalid"}, Code.UNREACHABLE),
    "no connection left": ({"username": "crowd"}, Code.BUSY),
}


@pytest.mark.parametrize("driver", DRIVERS)
async def test_a_connection_that_cannot_be_made_has_sent_nothing(driver: str, url: URL, postgresql: Cluster) -> None:
    """libpq gives no code for it, asyncpg does."""
    create = "CREATE ROLE crowd LOGIN CONNECTION LIMIT 0 PASSWORD 'sk-secret'"
    postgresql.run(f"DO $$ BEGIN {create}; EXCEPTION WHEN duplicate_object THEN END $$")
    found = dict[str, tuple[Code, Proof]]()
    for case, (changes, _) in UNOPENED.items():
        port = {"port": free_port()} if "port" in changes else {}
        found[case] = short(await verdict_of(driver, url.set(**{**changes, **port})))

    assert found == {case: (code, Proof.NOT_SENT) for case, (_, code) in UNOPENED.items()}


@pytest.mark.parametrize("driver", DRIVERS)
async def test_a_database_that_does_not_exist_is_for_a_person(driver: str, url: URL) -> None:
    """Nothing creates it by itself."""
    assert (await verdict_of(driver, url.set(database="nowhere"))).fault.code is Code.NEEDS_PERSON


@pytest.mark.parametrize("driver", [one for one in DRIVERS if "asyncpg" not in one])
async def test_a_server_without_tls_is_for_a_person(driver: str, url: URL) -> None:
    """Where the tool demands TLS; asyncpg raises Python's ConnectionError instead."""
    verdict = await verdict_of(driver, url.update_query_dict({"sslmode": "require"}))

    assert short(verdict) == (Code.NEEDS_PERSON, Proof.NOT_SENT)


async def test_a_server_that_never_answers_a_connection_was_sent_nothing() -> None:
    """psycopg's own limit of time."""
    silent = await asyncio.start_server(lambda _, writer: asyncio.sleep(60), "127.0.0.1", 0)
    port = silent.sockets[0].getsockname()[1]
    with pytest.raises(psycopg.OperationalError) as raised:
        await psycopg.AsyncConnection.connect(
            f"host=127.0.0.1 port={port} user=replan dbname=x connect_timeout=2 sslmode=disable gssencmode=disable"
        )
    silent.close()

    assert type(raised.value) is psycopg.errors.ConnectionTimeout
    assert short(judged(raised.value)) == (Code.UNREACHABLE, Proof.NOT_SENT)


def test_pools_without_a_free_connection_are_busy(url: URL) -> None:
    """Nothing was sent, since there is no connection."""
    plain = url.set(drivername="postgresql").render_as_string(hide_password=False)
    found = list[BaseException]()
    with psycopg_pool.ConnectionPool(plain, min_size=1, max_size=1, max_waiting=1) as small, small.connection():
        for wait in (0.02, 0.0):
            with pytest.raises(psycopg.OperationalError) as raised:
                small.getconn(timeout=wait)
            found.append(raised.value)
    with pytest.raises(psycopg.OperationalError) as closed:
        small.getconn()
    other = psycopg2_pool.SimpleConnectionPool(1, 1, plain)
    other.getconn()
    with pytest.raises(psycopg2.Error) as exhausted:
        other.getconn()
    other.closeall()
    with pytest.raises(psycopg2.Error) as over:
        other.getconn()
    busy = [*found, psycopg_pool.TooManyRequests(HIDDEN), exhausted.value]

    assert {short(judged(error)) for error in busy} == {(Code.BUSY, Proof.NOT_SENT)}
    assert {short(judged(error)) for error in (closed.value, over.value)} == {(Code.BUG, Proof.NOT_SENT)}


async def test_a_pool_that_never_connected_is_not_busy(url: URL) -> None:
    """As with a wrong password, whatever the pool is made of; a pool that did connect has none free."""
    wrong = url.set(drivername="postgresql", password="sk-wrong").render_as_string(hide_password=False)  # noqa: S106
    with psycopg_pool.ConnectionPool(wrong, min_size=1) as pool, pytest.raises(psycopg_pool.PoolTimeout) as of_threads:
        pool.getconn(timeout=0.5)
    async with psycopg_pool.AsyncConnectionPool(wrong, min_size=1, open=False) as pool:
        with pytest.raises(psycopg_pool.PoolTimeout) as of_tasks:
            await pool.getconn(timeout=0.5)
    verdicts = [judged(of_threads.value), judged(of_tasks.value)]

    assert {short(verdict) for verdict in verdicts} == {(Code.UNREACHABLE, Proof.NOT_SENT)}
    assert all("password" in verdict.fault.reason for verdict in verdicts)


def oracle_error(message: str, number: int = 0) -> Any:
    """What the driver of Oracle makes of an answer, or of a mistake of its own."""
    made = oracledb_errors._Error(message, code=number)
    return made.exc_type(made)


ORACLE = {
    ("ORA-01017: invalid username/password", 1017): (Code.UNAUTHORIZED, Proof.NOT_SENT),
    ("ORA-28000: the account is locked", 28000): (Code.UNAUTHORIZED, Proof.NOT_SENT),
    ("ORA-00001: unique constraint violated", 1): (Code.CONFLICT, Proof.REFUSED),
    ("ORA-00054: resource busy", 54): (Code.BUSY, Proof.REFUSED),
    ("ORA-00942: table or view does not exist", 942): (Code.BUG, Proof.REFUSED),
    ("ORA-01722: invalid number", 1722): (Code.INVALID_INPUT, Proof.REFUSED),
    ("ORA-03113: end-of-file on communication channel", 3113): (Code.UNREACHABLE, Proof.UNKNOWN),
    ("ORA-01013: user requested cancel", 1013): (Code.TIMEOUT, Proof.UNKNOWN),
    ("ORA-20001: of the database's own code", 20001): (Code.BUG, Proof.UNKNOWN),
}
"""The verdicts on Oracle's answers."""


def test_what_oracle_answers() -> None:
    """The code decides, and not the class: 1017 is an OperationalError in one version, a DatabaseError in another."""
    errors = {case: oracle_error(*case) for case in ORACLE}
    dialect = importlib.import_module("sqlalchemy.dialects.oracle.oracledb").dialect()
    base = oracledb.Error
    wrapped = {
        case: exc.DBAPIError.instance(HIDDEN, {}, error, base, dialect=dialect) for case, error in errors.items()
    }
    other = oracledb.OperationalError(oracledb_errors._Error("ORA-01017: invalid username/password", code=1017))

    assert {case: short(judged(error)) for case, error in errors.items()} == ORACLE
    assert {case: short(judged(error)) for case, error in wrapped.items()} == ORACLE
    assert short(judged(other)) == (Code.UNAUTHORIZED, Proof.NOT_SENT)


@pytest.mark.parametrize(
    ("statement", "proves"),
    [
        ("INSERT INTO orders VALUES (1)", Proof.REFUSED),
        ("begin pay(1); end;", Proof.UNKNOWN),
        ("DECLARE n NUMBER; BEGIN pay(n); END;", Proof.UNKNOWN),
    ],
)
def test_a_block_of_oracle_may_have_committed_a_part(statement: str, proves: Proof) -> None:
    """Directly, where only the function of the driver knows the statement, and under SQLAlchemy."""
    error = oracle_error("ORA-00001: unique constraint violated", 1)
    space: dict[str, Any] = {"__name__": "oracledb.cursor"}
    exec("def execute(statement, error): raise error", space)  # noqa: S102
    with pytest.raises(oracledb.IntegrityError) as raised:
        space["execute"](statement, error)
    wrapped = exc.IntegrityError(statement, {}, oracle_error("ORA-00001: unique constraint violated", 1))

    assert [short(judged(one)) for one in (raised.value, wrapped)] == [(Code.CONFLICT, proves)] * 2


async def test_an_oracle_that_cannot_be_reached_was_sent_nothing() -> None:
    """The code of the driver says so."""
    with pytest.raises(oracledb.Error) as refused:
        await asyncio.to_thread(oracledb.connect, user="x", password=HIDDEN, dsn=f"127.0.0.1:{free_port()}/orders")

    assert short(judged(refused.value)) == (Code.UNREACHABLE, Proof.NOT_SENT)


async def test_asyncpg_used_wrongly_is_a_bug(url: URL) -> None:
    """Two statements at a time on one connection, a wrong number of values; a wrong value is an answer."""
    connection = await asyncpg.connect(url.set(drivername="postgresql").render_as_string(hide_password=False))
    slow = asyncio.create_task(connection.execute("SELECT pg_sleep(0.2)"))
    await asyncio.sleep(0.05)
    with pytest.raises(asyncpg.InterfaceError) as both:
        await connection.execute("SELECT 1")
    await slow
    with pytest.raises(asyncpg.InterfaceError) as count:
        await connection.fetch("SELECT $1::int", 1, 2)
    with pytest.raises(asyncpg.DataError) as value:
        await connection.fetch("SELECT $1::int", HIDDEN)
    await connection.close()

    assert {short(judged(one.value)) for one in (both, count)} == {(Code.BUG, Proof.UNKNOWN)}
    assert short(judged(value.value)) == (Code.INVALID_INPUT, Proof.REFUSED)


async def test_an_idle_transaction_that_the_server_ended_is_rolled_back(url: URL) -> None:
    """The server says so to the next statement."""
    with pytest.raises(psycopg.Error) as raised:
        async with transaction("psycopg", url) as execute:
            await execute("SET idle_in_transaction_session_timeout = 20")
            await asyncio.sleep(0.3)
            await execute("INSERT INTO seats VALUES (3, 'eve')")

    assert short(judged(raised.value)) == (Code.TIMEOUT, Proof.REFUSED)


def test_a_prepared_statement_older_than_its_table_is_busy(url: URL) -> None:
    """A migration ran meanwhile, and the next transaction prepares the statement again."""
    with admin(url) as connection, admin(url) as other, pytest.raises(psycopg.NotSupportedError) as raised:
        connection.execute("SELECT * FROM seats", prepare=True)
        other.execute("ALTER TABLE seats ADD COLUMN more INTEGER")
        connection.execute("SELECT * FROM seats", prepare=True)
    in_asyncpg = asyncpg.exceptions.InvalidCachedStatementError(HIDDEN)
    dialect = importlib.import_module("sqlalchemy.dialects.postgresql.asyncpg").AsyncAdapt_asyncpg_dbapi
    under_it = exc.DBAPIError(HIDDEN, {}, dialect.InvalidCachedStatementError(HIDDEN, in_asyncpg))

    assert {short(judged(one)) for one in (raised.value, in_asyncpg, under_it)} == {(Code.BUSY, Proof.REFUSED)}


class ShopError(psycopg.OperationalError):
    """A tool's own class, which has a driver's as its parent."""


def test_a_class_of_the_tool_is_what_its_parent_is() -> None:
    """The parent's data are read."""
    refused = ShopError('connection failed: connection to server at "127.0.0.1", port 1 failed: Connection refused')

    assert short(judged(refused)) == (Code.UNREACHABLE, Proof.NOT_SENT)


MYSQL = {
    (1213, "40001"): (Code.BUSY, Proof.REFUSED),
    (1205, "HY000"): (Code.BUSY, Proof.REFUSED),
    (3572, "HY000"): (Code.BUSY, Proof.REFUSED),
    (1040, "08004"): (Code.BUSY, Proof.NOT_SENT),
    (1062, "23000"): (Code.CONFLICT, Proof.REFUSED),
    (1048, "23000"): (Code.CONFLICT, Proof.REFUSED),
    (1451, "23000"): (Code.CONFLICT, Proof.REFUSED),
    (1452, "23000"): (Code.CONFLICT, Proof.REFUSED),
    (3819, "HY000"): (Code.CONFLICT, Proof.REFUSED),
    (4025, "23000"): (Code.CONFLICT, Proof.REFUSED),
    (1045, "28000"): (Code.UNAUTHORIZED, Proof.NOT_SENT),
    (1698, "28000"): (Code.UNAUTHORIZED, Proof.NOT_SENT),
    (1044, "42000"): (Code.FORBIDDEN, Proof.REFUSED),
    (1142, "42000"): (Code.FORBIDDEN, Proof.REFUSED),
    (1290, "HY000"): (Code.FORBIDDEN, Proof.REFUSED),
    (1836, "HY000"): (Code.FORBIDDEN, Proof.REFUSED),
    (1317, "70100"): (Code.TIMEOUT, Proof.UNKNOWN),
    (3024, "HY000"): (Code.TIMEOUT, Proof.REFUSED),
    (1406, "22001"): (Code.INVALID_INPUT, Proof.REFUSED),
    (1264, "22003"): (Code.INVALID_INPUT, Proof.REFUSED),
    (1366, "HY000"): (Code.INVALID_INPUT, Proof.REFUSED),
    (1644, "45000"): (Code.REFUSED, Proof.REFUSED),
    (1146, "42S02"): (Code.BUG, Proof.REFUSED),
    (1054, "42S22"): (Code.BUG, Proof.REFUSED),
    (1064, "42000"): (Code.BUG, Proof.REFUSED),
    (1049, "42000"): (Code.NEEDS_PERSON, Proof.REFUSED),
    (1114, "HY000"): (Code.QUOTA_EXHAUSTED, Proof.REFUSED),
    (1053, "08S01"): (Code.UNREACHABLE, Proof.UNKNOWN),
    (9999, "08S01"): (Code.UNREACHABLE, Proof.UNKNOWN),  # an errno that no table has: its SQLSTATE decides
    (9999, "HY000"): (Code.BUG, Proof.UNKNOWN),
}
"""The verdicts on MySQL's answers, by errno and SQLSTATE."""


def answered(number: int, state: str) -> Any:
    """What PyMySQL makes of an error packet."""
    with pytest.raises(pymysql.MySQLError) as raised:
        pymysql.err.raise_mysql_exception(b"\xff" + number.to_bytes(2, "little") + f"#{state}{HIDDEN}".encode())
    return raised.value


def under_sqlalchemy(error: Exception, *, is_invalidated: bool = False) -> BaseException:
    """The exception as SQLAlchemy wraps it."""
    base = next(one for one in type(error).__mro__ if one.__name__ == "Error")
    dialect = importlib.import_module("sqlalchemy.dialects.mysql.pymysql").dialect()
    made: BaseException = exc.DBAPIError.instance(
        f"SELECT '{HIDDEN}'", {}, error, base, connection_invalidated=is_invalidated, dialect=dialect
    )
    return made


def test_what_mysql_answers() -> None:
    """The errno decides, and the SQLSTATE where no table has the errno."""
    errors = {case: answered(*case) for case in MYSQL}

    assert {case: short(judged(error)) for case, error in errors.items()} == MYSQL
    assert {case: short(judged(under_sqlalchemy(error))) for case, error in errors.items()} == MYSQL


async def test_a_mysql_that_cannot_be_reached_was_sent_nothing() -> None:
    """Refused, unknown, or cut while the connection was made, where PyMySQL does not say how far it came."""
    cutting = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    ports = {"127.0.0.1": free_port(), "nowhere.invalid": 3306}
    found = dict[str, tuple[Code, Proof]]()
    for host, port in (*ports.items(), ("localhost", cutting.sockets[0].getsockname()[1])):
        with pytest.raises(pymysql.err.OperationalError) as raised:
            await asyncio.to_thread(pymysql.connect, host=host, port=port, user="x", connect_timeout=3)
        found[host] = short(judged(raised.value))
    cutting.close()

    assert found == {
        "127.0.0.1": (Code.UNREACHABLE, Proof.NOT_SENT),
        "nowhere.invalid": (Code.UNREACHABLE, Proof.NOT_SENT),
        "localhost": (Code.UNREACHABLE, Proof.UNKNOWN),
    }


@pytest.mark.parametrize(
    "error",
    [
        pymysql.err.OperationalError(2006, f"MySQL server has gone away ({HIDDEN})"),
        pymysql.err.OperationalError(2013, f"Lost connection to MySQL server during query ({HIDDEN})"),
        pymysql.err.InterfaceError(0, ""),
        pymysql.err.Error("Already closed"),
        pymysql.err.InternalError("Packet sequence number wrong - got 2 expected 1"),
    ],
)
def test_a_connection_to_mysql_that_is_lost(error: Exception) -> None:
    """Directly, and under SQLAlchemy."""
    both = (error, under_sqlalchemy(error), under_sqlalchemy(error, is_invalidated=True))

    assert {short(judged(one)) for one in both} == {(Code.UNREACHABLE, Proof.UNKNOWN)}


class DriverError(Exception):
    """The error of a driver that no table knows."""


DriverError.__module__ = "MySQLdb._exceptions"


@pytest.mark.parametrize(("number", "code"), [(1213, Code.BUSY), (1062, Code.CONFLICT), (2013, Code.UNREACHABLE)])
def test_other_drivers_of_mysql_are_read_by_their_errno(number: int, code: Code) -> None:
    """Under SQLAlchemy, as mysqlclient gives it: the first argument."""
    assert judged(exc.DBAPIError(HIDDEN, {}, DriverError(number, HIDDEN))).fault.code is code


def test_a_transaction_that_cannot_begin_or_commit_changed_nothing(tmp_path: Path) -> None:
    """These are statements of one step, other than a block that commits."""
    engine = create_engine(f"sqlite:///{tmp_path / 'seats.db'}", isolation_level="AUTOCOMMIT", poolclass=pool.NullPool)
    with engine.connect() as one, engine.connect() as other:
        one.exec_driver_sql("PRAGMA busy_timeout = 0")
        other.exec_driver_sql("BEGIN EXCLUSIVE")
        with pytest.raises(exc.OperationalError) as locked:
            one.exec_driver_sql("BEGIN IMMEDIATE")
        other.exec_driver_sql("ROLLBACK")
        one.exec_driver_sql("PRAGMA foreign_keys = ON")
        for prepared in ("CREATE TABLE a (id INTEGER PRIMARY KEY)", "BEGIN"):
            one.exec_driver_sql(prepared)
        one.exec_driver_sql("CREATE TABLE b (id INTEGER REFERENCES a DEFERRABLE INITIALLY DEFERRED)")
        one.exec_driver_sql("INSERT INTO b VALUES (7)")
        with pytest.raises(exc.IntegrityError) as dangling:
            one.exec_driver_sql("COMMIT")
        one.exec_driver_sql("ROLLBACK")

    assert short(judge(locked.value)) == (Code.BUSY, Proof.REFUSED)
    assert short(judge(dangling.value)) == (Code.CONFLICT, Proof.REFUSED)


async def test_aiosqlite_raises_what_sqlite_raises(tmp_path: Path) -> None:
    """It has no exceptions of its own."""
    async with aiosqlite.connect(tmp_path / "seats.db") as connection:
        await connection.execute("CREATE TABLE seats (id INTEGER PRIMARY KEY)")
        await connection.execute("INSERT INTO seats VALUES (1)")
        with pytest.raises(sqlite3.IntegrityError) as raised:
            await connection.execute("INSERT INTO seats VALUES (1)")

    assert short(judged(raised.value)) == (Code.CONFLICT, Proof.REFUSED)


PACKAGES = ("psycopg", "psycopg2", "psycopg_pool", "asyncpg", "aiosqlite", "sqlite3", "pymysql", "sqlalchemy")
INTERNAL = {
    "asyncpg._testbase.fuzzer.StopServer",
    "asyncpg.connect_utils._NextHostSignal",
    "asyncpg.connect_utils._RetryConnectSignal",
    "sqlalchemy.engine.interfaces.DBAPIModule.Error",
    "sqlalchemy.engine.interfaces.DBAPIModule.IntegrityError",
    "sqlalchemy.engine.interfaces.DBAPIModule.InterfaceError",
    "sqlalchemy.engine.interfaces.DBAPIModule.OperationalError",
    "sqlalchemy.orm.mapper._OptGetColumnsNotAvailable",
    "sqlalchemy.orm.util._CleanupError",
    "sqlalchemy.util.queue.Empty",
    "sqlalchemy.util.queue.Full",
}
"""Classes that are raised and caught inside of a library, or describe a type only."""


def classes(package: str) -> list[type[BaseException]]:
    """The exceptions that a package and its modules define."""
    root = importlib.import_module(package)
    for module in pkgutil.walk_packages(root.__path__, f"{package}."):
        if ".testing" not in module.name:
            with suppress(ImportError, KeyError), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                importlib.import_module(module.name)
    found, left = dict[type[BaseException], None](), [BaseException]
    while left:
        one = left.pop()
        left += [child for child in type.__subclasses__(one) if child not in found]
        found[one] = None
    return [one for one in found if one.__module__.partition(".")[0] == package]


@pytest.mark.parametrize("package", PACKAGES)
def test_every_exception_of_a_library_has_a_row(package: str) -> None:
    """Default deny is never an accident."""
    names = {qualified(one): entry_of(map(qualified, one.__mro__)) for one in classes(package)}

    assert [name for name, entry in names.items() if entry is None and name not in INTERNAL] == []


STATES = {
    "40001": (Code.BUSY, Proof.REFUSED),
    "40003": (Code.UNREACHABLE, Proof.UNKNOWN),
    "40P01": (Code.BUSY, Proof.REFUSED),
    "08000": (Code.UNREACHABLE, Proof.UNKNOWN),
    "08001": (Code.UNREACHABLE, Proof.NOT_SENT),
    "08003": (Code.UNREACHABLE, Proof.UNKNOWN),
    "08004": (Code.UNREACHABLE, Proof.NOT_SENT),
    "08006": (Code.UNREACHABLE, Proof.UNKNOWN),
    "08007": (Code.UNREACHABLE, Proof.UNKNOWN),
    "08P01": (Code.UNREACHABLE, Proof.UNKNOWN),
    "0A000": (Code.BUG, Proof.REFUSED),
    "22P02": (Code.INVALID_INPUT, Proof.REFUSED),
    "23P01": (Code.CONFLICT, Proof.REFUSED),
    "25006": (Code.FORBIDDEN, Proof.REFUSED),
    "25P02": (Code.BUG, Proof.REFUSED),
    "28000": (Code.UNAUTHORIZED, Proof.NOT_SENT),
    "3D000": (Code.NEEDS_PERSON, Proof.REFUSED),
    "53100": (Code.QUOTA_EXHAUSTED, Proof.REFUSED),
    "53200": (Code.OVERLOADED, Proof.REFUSED),
    "53300": (Code.BUSY, Proof.NOT_SENT),
    "53400": (Code.QUOTA_EXHAUSTED, Proof.REFUSED),
    "54000": (Code.INVALID_INPUT, Proof.REFUSED),
    "55P03": (Code.BUSY, Proof.REFUSED),
    "57014": (Code.TIMEOUT, Proof.REFUSED),
    "57P01": (Code.UNREACHABLE, Proof.UNKNOWN),
    "57P02": (Code.UNREACHABLE, Proof.UNKNOWN),
    "57P03": (Code.UNREACHABLE, Proof.NOT_SENT),
    "58030": (Code.SERVER_ERROR, Proof.UNKNOWN),
    "P0001": (Code.REFUSED, Proof.REFUSED),
    "P0002": (Code.NOT_FOUND, Proof.REFUSED),
    "XX000": (Code.BUG, Proof.UNKNOWN),
    "XX001": (Code.NEEDS_PERSON, Proof.UNKNOWN),
}


def test_each_driver_of_postgresql_has_the_same_states() -> None:
    """The class alone says it, too: an exception that somebody else constructed has no answer of a server."""
    asyncpg_states = {vars(one).get("sqlstate"): one for one in classes("asyncpg")}
    sources = {
        "psycopg": psycopg.errors.lookup,
        "psycopg2": importlib.import_module("psycopg2.errors").lookup,
        "asyncpg": asyncpg_states.__getitem__,
    }
    found = {name: {state: short(judged(of(state)(HIDDEN))) for state in STATES} for name, of in sources.items()}

    assert found == dict.fromkeys(sources, STATES)


def test_every_state_of_postgresql_is_chosen_on_purpose() -> None:
    """No SQLSTATE of the manual falls through to what holds for any other."""
    entry = TABLE["psycopg.Error"]
    assert isinstance(entry, Cases)
    states = [state for one in classes("psycopg") if isinstance(state := vars(one).get("sqlstate"), str)]

    assert len(states) > 200
    assert [one for one in states if not any(one.startswith(start) for start in entry.rows)] == []


class Nonsense(Exception):
    """An exception whose attributes are not what they should be."""

    sqlstate = 7
    pgcode = ("40001",)
    sqlite_errorname = b"SQLITE_BUSY"
    statement = object()
    constraint_name = 5
    connection_invalidated = "yes"

    @property
    def diag(self) -> object:
        raise RuntimeError(HIDDEN)

    @property
    def pgconn(self) -> object:
        raise RuntimeError(HIDDEN)

    @property
    def orig(self) -> "Nonsense":
        return self


NOTHING = (None, 5, b"\xff", [HIDDEN], {"x": HIDDEN}, 1e9, "", -1, True, "x" * 10**6)


def test_no_entry_raises_whatever_an_exception_carries() -> None:
    """A wrong type, nothing, or a property that raises leads to the row for any other."""
    carriers: list[Exception] = [Nonsense(*args) for args in ((), *((one,) for one in NOTHING))]
    for package in ("pymysql.err", "psycopg", "psycopg2.errors", "asyncpg.exceptions"):
        carriers += [type("Nonsense", (Nonsense,), {"__module__": package})(one) for one in NOTHING]
    carriers += [exc.DBAPIError(HIDDEN, {}, one) for one in carriers]
    cycle, other = (exc.DBAPIError(HIDDEN, {}, carriers[0]) for _ in range(2))
    cycle.orig, other.orig = other, cycle
    own = exc.DBAPIError(HIDDEN, {}, carriers[0])
    own.orig = own
    wrong = list[tuple[str, BaseException]]()
    for name, entry in TABLE.items():
        rows = {row for _, row in rows_of(entry)}
        allowed = {(row.code, row.proves) for row in (*rows, Row(Code.UNREACHABLE, "", Proof.UNKNOWN))}
        wrong += [(name, one) for one in (*carriers, cycle, own) if short(judged_by(entry, one)) not in allowed]

    assert wrong == []


def judged_by(entry: Any, error: BaseException) -> Verdict:
    """The verdict of one entry."""
    verdict: Verdict = entry(error)

    assert HIDDEN not in verdict.fault.model_dump_json()
    return verdict
