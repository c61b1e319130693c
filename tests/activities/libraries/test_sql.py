"""The drivers of databases: real exceptions from a real PostgreSQL and SQLite."""

import asyncio
import importlib
import sqlite3
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import Connection, create_engine, exc, pool, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.ext.asyncio import create_async_engine

from activities.borders.described import rows_of
from activities.borders.sql import TABLE, is_unavailable
from activities.borders.table import Cases, Row, Verdict
from evals.fakes.postgresql import Cluster
from runtime.dev_server import free_port
from tests.activities.libraries.verdicts import (
    HIDDEN,
    NOT_SENT,
    REFUSED,
    UNKNOWN,
    Outcome,
    classes_of,
    failing,
    judged,
    outcome,
    raised,
)
from tests.libraries import recorded
from workflows.faults.fault import Code

for name in ("psycopg2", "psycopg_pool", "asyncpg"):
    pytest.importorskip(name)

psycopg2: Any = importlib.import_module("psycopg2")
psycopg2_pool: Any = importlib.import_module("psycopg2.pool")
psycopg_pool: Any = importlib.import_module("psycopg_pool")
asyncpg: Any = importlib.import_module("asyncpg")
aiosqlite: Any = importlib.import_module("aiosqlite")

pytestmark = pytest.mark.full

DRIVERS = ("psycopg", "psycopg2", "asyncpg", "postgresql+psycopg", "postgresql+psycopg2", "postgresql+asyncpg")
"""The drivers for PostgreSQL: each directly, and under SQLAlchemy, whose URLs begin so."""
with_each = pytest.mark.parametrize("driver", DRIVERS)
SCHEMA = (
    "CREATE TABLE seats (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE CHECK (name <> 'nobody'), age SMALLINT)",
    "CREATE TABLE notes (slot INTEGER NOT NULL REFERENCES seats (id))",
    "INSERT INTO seats VALUES (1, 'ann'), (2, 'bob')",
)
LATER = "INSERT INTO seats VALUES (7, 'eve')"
Execute = Callable[[str], Awaitable[Any]]


def plain(url: URL, **changes: Any) -> str:
    """The address as the drivers themselves take it."""
    return url.set(drivername="postgresql", **changes).render_as_string(hide_password=False)


@asynccontextmanager
async def transaction(driver: str, url: URL, *, is_each_its_own: bool = False) -> AsyncIterator[Execute]:
    """A transaction over one of the drivers: a function that executes a statement in it. It is never committed.

    Else each statement is a transaction of its own.
    """
    if driver.startswith("postgresql+"):
        async with wrapped(
            url.set(drivername=driver), {"isolation_level": "AUTOCOMMIT"} if is_each_its_own else {}
        ) as it:
            yield it
    elif driver == "asyncpg":
        connection = await asyncpg.connect(plain(url))
        try:
            if not is_each_its_own:
                await connection.execute("BEGIN")
            yield connection.execute
        finally:
            connection.terminate()
    else:
        opened: Any = await asyncio.to_thread(importlib.import_module(driver).connect, plain(url))
        try:
            opened.autocommit = is_each_its_own
            cursor = opened.cursor()
            yield lambda statement: asyncio.to_thread(cursor.execute, statement)
        finally:
            opened.close()


@asynccontextmanager
async def wrapped(url: URL, options: dict[str, str]) -> AsyncIterator[Execute]:
    """A transaction over SQLAlchemy."""
    if url.drivername.endswith("psycopg2"):
        connection = await asyncio.to_thread(create_engine(url, poolclass=pool.NullPool, **options).connect)
        try:
            yield lambda statement: asyncio.to_thread(connection.execute, text(statement))
        finally:
            with suppress(exc.DBAPIError):
                connection.close()
        return
    async with create_async_engine(url, poolclass=pool.NullPool, **options).connect() as one:
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
    return psycopg.connect(plain(url), autocommit=True)


async def error_of(driver: str, url: URL, *statements: str, is_each_its_own: bool = False) -> BaseException:
    """What some statements raise, all in one transaction or each in its own."""

    async def run() -> None:
        async with transaction(driver, url, is_each_its_own=is_each_its_own) as execute:
            for statement in statements:
                await execute(statement)

    return await failing(run)


ANSWERS: dict[tuple[str, ...], tuple[Code, dict[str, str] | None]] = {
    ("INSERT INTO seats VALUES (1, 'sk-secret')",): (Code.CONFLICT, {"constraint": "seats_pkey", "table": "seats"}),
    ("INSERT INTO seats VALUES (3, 'ann')",): (Code.CONFLICT, {"constraint": "seats_name_key", "table": "seats"}),
    ("INSERT INTO seats VALUES (3, NULL)",): (Code.CONFLICT, {"table": "seats", "column": "name"}),
    ("INSERT INTO seats VALUES (3, 'nobody')",): (Code.CONFLICT, {"constraint": "seats_name_check", "table": "seats"}),
    ("INSERT INTO notes VALUES (99)",): (Code.CONFLICT, {"constraint": "notes_slot_fkey", "table": "notes"}),
    ("INSERT INTO seats VALUES (3, 'eve', 40000)",): (Code.INVALID_INPUT, None),
    ("SELECT CAST('sk-secret' AS INTEGER)",): (Code.INVALID_INPUT, None),
    ("SELEKT 'sk-secret'",): (Code.BUG, None),
    ("SELECT * FROM nowhere",): (Code.BUG, None),
    ("SELECT sk_secret FROM seats",): (Code.BUG, None),
    ("DO $$ BEGIN RAISE EXCEPTION 'sk-secret'; END $$",): (Code.REFUSED, None),
    ("SET LOCAL statement_timeout = 30", "SELECT pg_sleep(5)"): (Code.TIMEOUT, None),
    ("SET LOCAL lock_timeout = 30", "LOCK TABLE stock"): (Code.BUSY, None),
    ("LOCK TABLE stock NOWAIT",): (Code.BUSY, None),
    ("SET TRANSACTION READ ONLY", "DELETE FROM seats"): (Code.FORBIDDEN, None),
    ("SET LOCAL ROLE guest", "DELETE FROM seats"): (Code.FORBIDDEN, None),
}
"""What the last of some statements becomes, and what is observed of it; `stock` is locked, and `guest` has no right."""


@with_each
async def test_what_postgresql_answers_to_a_statement(driver: str, url: URL) -> None:
    """An answer proves that nothing was changed, and a constraint comes with its name, but never with a value."""
    with admin(url) as holder:
        holder.execute("DO $$ BEGIN CREATE ROLE guest; EXCEPTION WHEN duplicate_object THEN END $$")
        holder.execute("CREATE TABLE stock (id INTEGER)")
        with holder.transaction():
            holder.execute("LOCK TABLE stock")
            found = {statements: judged(await error_of(driver, url, *statements)) for statements in ANSWERS}

    assert {one: (*outcome(verdict), verdict.fault.observed) for one, verdict in found.items()} == {
        statements: (code, REFUSED, observed) for statements, (code, observed) in ANSWERS.items()
    }


BLOCK = f"BEGIN {LATER}; COMMIT; {LATER}; END"


@with_each
@pytest.mark.parametrize("statement", ["CALL sell()", f"DO $$ {BLOCK} $$"])
async def test_a_statement_that_has_committed_a_part_proves_nothing(driver: str, url: URL, statement: str) -> None:
    """The database rejects the rest of it, and the first row stays."""
    with admin(url) as other:
        other.execute(f"CREATE PROCEDURE sell() LANGUAGE plpgsql AS $$ {BLOCK} $$".encode())
        error = await error_of(driver, url, statement, is_each_its_own=True)
        [kept] = other.execute("SELECT count(*) FROM seats WHERE id = 7").fetchall()

    assert (kept, outcome(error)) == ((1,), (Code.CONFLICT, UNKNOWN))


def test_a_result_that_psycopg_cannot_read_is_that_of_a_statement_that_ran(url: URL) -> None:
    """Its own DataError comes before the statement, too: only then is nothing changed."""
    with admin(url) as connection:
        returning = connection.execute(f"{LATER} RETURNING 'infinity'::timestamptz".encode())
        unread = raised(returning.fetchone)
        unsent = raised(lambda: connection.execute("INSERT INTO seats VALUES (8, %s)", [f"{HIDDEN}\0"]))
        rows = [[9, "kim"], [10, "\0"]]
        later = raised(lambda: connection.cursor().executemany("INSERT INTO seats VALUES (%s, %s)", rows))
        seats = connection.execute("SELECT id FROM seats WHERE id > 6 ORDER BY id").fetchall()

    assert (seats, {type(one) for one in (unread, unsent, later)}) == ([(7,), (9,)], {psycopg.DataError})
    assert outcome(unread) == (Code.UNEXPECTED_RESULT, UNKNOWN)
    assert outcome(unsent) == (Code.INVALID_INPUT, REFUSED)
    assert outcome(later) == (Code.INVALID_INPUT, UNKNOWN)


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[Connection]:
    """A connection to SQLite with an empty table of seats; each statement is a transaction of its own."""
    engine = create_engine(f"sqlite:///{tmp_path / 'seats.db'}", isolation_level="AUTOCOMMIT", poolclass=pool.NullPool)
    with engine.connect() as connection:
        connection.execute(text(SCHEMA[0]))
        yield connection


@pytest.mark.parametrize("statement", ["SELECT id FROM seats", "WITH s AS (SELECT id FROM seats) SELECT id FROM s"])
def test_more_rows_than_one_of_a_query_changed_nothing(embedded: Connection, statement: str) -> None:
    """SQLAlchemy says it of what it has read; of what a statement has changed, it says it after that."""
    embedded.execute(text("INSERT INTO seats (id, name) VALUES (1, 'ann'), (2, 'bob')"))
    read = raised(embedded.execute(text(statement)).scalar_one)
    changed = raised(embedded.execute(text("UPDATE seats SET age = 1 RETURNING id")).scalars().one)
    ages = embedded.execute(text("SELECT DISTINCT age FROM seats")).scalars().all()

    assert (ages, type(read), type(changed)) == ([1], exc.MultipleResultsFound, exc.MultipleResultsFound)
    assert outcome(read) == (Code.CONFLICT, REFUSED)
    assert outcome(changed) == (Code.CONFLICT, UNKNOWN)


def test_rows_before_a_failed_one_stay_where_a_statement_says_so(embedded: Connection) -> None:
    """SQLite's `OR FAIL` does not undo them."""
    insert = text("INSERT OR FAIL INTO seats (id, name) VALUES (1, 'ann'), (2, 'ann')")
    error = raised(lambda: embedded.execute(insert))
    kept = embedded.execute(text("SELECT count(*) FROM seats")).scalar_one()

    assert (kept, outcome(error)) == (1, (Code.CONFLICT, UNKNOWN))


def test_a_transaction_that_cannot_begin_or_commit_changed_nothing(embedded: Connection) -> None:
    """These are statements of one step, other than a block that commits."""
    embedded.exec_driver_sql("PRAGMA busy_timeout = 0")
    with embedded.engine.connect() as other:
        other.exec_driver_sql("BEGIN EXCLUSIVE")
        locked = raised(lambda: embedded.exec_driver_sql("BEGIN IMMEDIATE"))
        other.exec_driver_sql("ROLLBACK")
    for prepared in (
        "PRAGMA foreign_keys = ON",
        "BEGIN",
        "CREATE TABLE b (id INTEGER REFERENCES seats DEFERRABLE INITIALLY DEFERRED)",
        "INSERT INTO b VALUES (7)",
    ):
        embedded.exec_driver_sql(prepared)
    dangling = raised(lambda: embedded.exec_driver_sql("COMMIT"))
    embedded.exec_driver_sql("ROLLBACK")

    assert outcome(locked) == (Code.BUSY, REFUSED)
    assert (type(dangling), outcome(dangling)) == (exc.IntegrityError, (Code.CONFLICT, REFUSED))


async def test_aiosqlite_raises_what_sqlite_raises(tmp_path: Path) -> None:
    """It has no exceptions of its own."""
    async with aiosqlite.connect(tmp_path / "seats.db") as connection:
        await connection.execute("CREATE TABLE seats (id INTEGER PRIMARY KEY)")
        await connection.execute("INSERT INTO seats VALUES (1)")
        error = await failing(connection.execute, "INSERT INTO seats VALUES (1)")

    assert (type(error), outcome(error)) == (sqlite3.IntegrityError, (Code.CONFLICT, REFUSED))


@with_each
async def test_a_deadlock_is_busy_and_rolled_back(driver: str, url: URL) -> None:
    """The server chooses the one whose patience ends first."""
    with admin(url) as other:
        async with transaction(driver, url) as execute:
            await execute("SET deadlock_timeout = '30ms'")
            await execute("UPDATE seats SET age = 1 WHERE id = 1")
            for statement in ("SET deadlock_timeout = '60s'", "BEGIN", "UPDATE seats SET age = 2 WHERE id = 2"):
                other.execute(statement.encode())
            waiting = asyncio.create_task(asyncio.to_thread(other.execute, "UPDATE seats SET age = 2 WHERE id = 1"))
            error = await failing(execute, "UPDATE seats SET age = 1 WHERE id = 2")
            await waiting

    assert outcome(error) == (Code.BUSY, REFUSED)


@with_each
async def test_a_serialization_failure_is_busy_and_rolled_back(driver: str, url: URL) -> None:
    """The row changed after the transaction began."""
    with admin(url) as other:
        async with transaction(driver, url) as execute:
            await execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            await execute("SELECT * FROM seats")
            other.execute("UPDATE seats SET age = 2")
            error = await failing(execute, "UPDATE seats SET age = 1")

    assert outcome(error) == (Code.BUSY, REFUSED)


@with_each
async def test_a_server_that_stops_in_the_middle_is_lost(driver: str, url: URL, postgresql: Cluster) -> None:
    """Nobody knows what became of the statement, nor can the connection be used again."""
    with warnings.catch_warnings(), suppress(Exception):
        warnings.simplefilter("ignore")  # of the pool, which cannot close what is broken
        async with transaction(driver, url) as execute:
            await execute("SELECT 1")
            try:
                await postgresql.stop()
                first, second = [await failing(execute, "SELECT 1") for _ in range(2)]
            finally:
                await postgresql.start()

    assert outcome(first) == (Code.UNREACHABLE, UNKNOWN) and is_unavailable(first)
    if not driver.startswith("postgresql+"):  # SQLAlchemy says that a rollback must come first, which is a bug
        assert outcome(second) == (Code.UNREACHABLE, UNKNOWN)


UNOPENED: dict[str, tuple[dict[str, Any], Code]] = {
    "wrong password": ({"password": "sk-wrong"}, Code.UNAUTHORIZED),
    "refused port": ({"port": 0}, Code.UNREACHABLE),
    "unknown host": ({"host": "nowhere.invalid"}, Code.UNREACHABLE),
    "no connection left": ({"username": "crowd"}, Code.BUSY),
    "no TLS, which the tool demands": ({"query": {"sslmode": "require"}}, Code.NEEDS_PERSON),
}


@with_each
async def test_a_connection_that_cannot_be_made_has_sent_nothing(driver: str, url: URL, postgresql: Cluster) -> None:
    """libpq gives no code for it, asyncpg does, and raises Python's ConnectionError where TLS is missing."""
    create = "CREATE ROLE crowd LOGIN CONNECTION LIMIT 0 PASSWORD 'sk-secret'"
    postgresql.run(f"DO $$ BEGIN {create}; EXCEPTION WHEN duplicate_object THEN END $$")
    found = dict[str, Outcome]()
    for case, (changes, _) in UNOPENED.items():
        port = {"port": free_port()} if "port" in changes else {}
        found[case] = outcome(await error_of(driver, url.set(**{**changes, **port})))
    if "asyncpg" in driver:
        found.pop("no TLS, which the tool demands")
    nowhere = judged(await error_of(driver, url.set(database="nowhere")))

    assert found == {case: (UNOPENED[case][1], NOT_SENT) for case in found}
    assert nowhere.fault.code is Code.NEEDS_PERSON  # nothing creates it by itself


async def test_a_server_that_never_answers_a_connection_was_sent_nothing() -> None:
    """psycopg's own limit of time, and what psycopg2 says in place of a class of its own."""
    silent = await asyncio.start_server(lambda _, writer: asyncio.sleep(60), "127.0.0.1", 0)
    port = silent.sockets[0].getsockname()[1]
    address = f"host=127.0.0.1 port={port} user=replan dbname=x connect_timeout=2 sslmode=disable gssencmode=disable"
    late = await failing(psycopg.AsyncConnection.connect, address)
    silent.close()
    said = psycopg2.OperationalError('connection to server at "192.0.2.1", port 5432 failed: timeout expired\n')

    assert type(late) is psycopg.errors.ConnectionTimeout
    assert outcome(late) == outcome(said) == (Code.UNREACHABLE, NOT_SENT)


def test_pools_without_a_free_connection_are_busy(url: URL) -> None:
    """Nothing was sent, since there is no connection."""
    with psycopg_pool.ConnectionPool(plain(url), min_size=1, max_size=1, max_waiting=1) as small, small.connection():
        late, never = (raised(lambda wait=wait: small.getconn(timeout=wait)) for wait in (0.02, 0.0))  # type: ignore[misc]
    other = psycopg2_pool.SimpleConnectionPool(1, 1, plain(url))
    other.getconn()
    exhausted = raised(other.getconn)
    other.closeall()
    busy = [late, never, psycopg_pool.TooManyRequests(HIDDEN), exhausted]

    assert [outcome(error) for error in busy] == [(Code.BUSY, NOT_SENT)] * 4
    assert outcome(raised(small.getconn)) == outcome(raised(other.getconn)) == (Code.BUG, NOT_SENT)


@pytest.mark.parametrize("changes", [{"password": "sk-wrong"}, {"port": 0}], ids=["wrong password", "refused port"])
async def test_a_pool_that_never_connected_is_not_busy(url: URL, changes: dict[str, Any]) -> None:
    """Whatever the pool is made of; a pool that did connect has none free."""
    wrong = plain(url, **{**changes, **({"port": free_port()} if "port" in changes else {})})
    with psycopg_pool.ConnectionPool(wrong, min_size=1) as pool:
        of_threads = raised(lambda: pool.getconn(timeout=0.5))
    async with psycopg_pool.AsyncConnectionPool(wrong, min_size=1, open=False) as pool:
        of_tasks = await failing(pool.getconn, timeout=0.5)

    for error in (of_threads, of_tasks):
        assert (type(error), outcome(error)) == (psycopg_pool.PoolTimeout, (Code.UNREACHABLE, NOT_SENT))
        assert "password" in judged(error).fault.reason


async def test_asyncpg_used_wrongly_is_a_bug(url: URL) -> None:
    """Two statements at a time on one connection, a wrong number of values; a wrong value is an answer."""
    connection = await asyncpg.connect(plain(url))
    slow = asyncio.create_task(connection.execute("SELECT pg_sleep(0.2)"))
    await asyncio.sleep(0.05)
    both = await failing(connection.execute, "SELECT 1")
    await slow
    count = await failing(connection.fetch, "SELECT $1::int", 1, 2)
    value = await failing(connection.fetch, "SELECT $1::int", HIDDEN)
    await connection.close()

    assert all(isinstance(one, asyncpg.InterfaceError) for one in (both, count))
    assert outcome(both) == outcome(count) == (Code.BUG, UNKNOWN)
    assert outcome(value) == (Code.INVALID_INPUT, REFUSED)


async def test_an_idle_transaction_that_the_server_ended_is_rolled_back(url: URL) -> None:
    """The server says so to the next statement."""
    async with transaction("psycopg", url) as execute:
        await execute("SET idle_in_transaction_session_timeout = 20")
        await asyncio.sleep(0.3)
        error = await failing(execute, "INSERT INTO seats VALUES (3, 'eve')")

    assert outcome(error) == (Code.TIMEOUT, REFUSED)


def test_a_prepared_statement_older_than_its_table_is_busy(url: URL) -> None:
    """A migration ran meanwhile, and the next transaction prepares the statement again."""
    with admin(url) as connection, admin(url) as other:
        connection.execute("SELECT * FROM seats", prepare=True)
        other.execute("ALTER TABLE seats ADD COLUMN more INTEGER")
        stale = raised(lambda: connection.execute("SELECT * FROM seats", prepare=True))
    in_asyncpg = asyncpg.exceptions.InvalidCachedStatementError(HIDDEN)
    dialect = importlib.import_module("sqlalchemy.dialects.postgresql.asyncpg").AsyncAdapt_asyncpg_dbapi
    under_it = exc.DBAPIError(HIDDEN, {}, dialect.InvalidCachedStatementError(HIDDEN, in_asyncpg))

    assert isinstance(stale, psycopg.NotSupportedError)
    assert [outcome(one) for one in (stale, in_asyncpg, under_it)] == [(Code.BUSY, REFUSED)] * 3


def test_a_class_of_the_tool_is_what_its_parent_is() -> None:
    """The data of the driver's class are read, which is the parent."""
    own = type("ShopError", (psycopg.OperationalError,), {})
    refused = own('connection failed: connection to server at "127.0.0.1", port 1 failed: Connection refused')

    assert outcome(refused) == (Code.UNREACHABLE, NOT_SENT)


STATES: dict[Outcome, str] = {
    (Code.BUSY, REFUSED): "40001 40P01 55P03",
    (Code.BUSY, NOT_SENT): "53300",
    (Code.UNREACHABLE, UNKNOWN): "40003 08000 08003 08006 08007 08P01 57P01 57P02",
    (Code.UNREACHABLE, NOT_SENT): "08001 08004 57P03",
    (Code.BUG, REFUSED): "0A000 25P02",
    (Code.BUG, UNKNOWN): "XX000",
    (Code.INVALID_INPUT, REFUSED): "22P02 54000",
    (Code.CONFLICT, REFUSED): "23P01",
    (Code.FORBIDDEN, REFUSED): "25006",
    (Code.UNAUTHORIZED, NOT_SENT): "28000",
    (Code.NEEDS_PERSON, REFUSED): "3D000",
    (Code.NEEDS_PERSON, UNKNOWN): "XX001",
    (Code.QUOTA_EXHAUSTED, REFUSED): "53100 53400",
    (Code.OVERLOADED, REFUSED): "53200",
    (Code.TIMEOUT, REFUSED): "57014",
    (Code.SERVER_ERROR, UNKNOWN): "58030",
    (Code.REFUSED, REFUSED): "P0001",
    (Code.NOT_FOUND, REFUSED): "P0002",
}
"""By what they become, the SQLSTATEs of PostgreSQL."""


@pytest.mark.parametrize("driver", ["psycopg", "psycopg2", "asyncpg"])
def test_each_driver_of_postgresql_has_the_same_states(driver: str) -> None:
    """The class alone says it, too: an exception that somebody else constructed has no answer of a server."""
    states = {vars(one).get("sqlstate"): one for one in classes_of("asyncpg")}
    lookup: dict[str, Callable[[str], Any]] = {
        "psycopg": psycopg.errors.lookup,
        "psycopg2": importlib.import_module("psycopg2.errors").lookup,
        "asyncpg": states.__getitem__,
    }
    of = lookup[driver]

    assert {
        expected: " ".join(state for state in several.split() if outcome(of(state)(HIDDEN)) == expected)
        for expected, several in STATES.items()
    } == STATES


def test_every_state_of_postgresql_is_chosen_on_purpose() -> None:
    """No SQLSTATE of the manual falls through to what holds for any other."""
    entry = TABLE["psycopg.Error"]
    assert isinstance(entry, Cases)
    states = [one.sqlstate for one in recorded()["psycopg"] if one.sqlstate]

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

    pgconn = diag

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
    cycle, other, own = (exc.DBAPIError(HIDDEN, {}, carriers[0]) for _ in range(3))
    cycle.orig, other.orig, own.orig = other, cycle, own
    wrong = list[tuple[str, BaseException]]()
    for name, entry in TABLE.items():
        rows = {row for _, row in rows_of(entry)}
        allowed = {(row.code, row.proves) for row in (*rows, Row(Code.UNREACHABLE, "", UNKNOWN))}
        for one in (*carriers, cycle, own):
            verdict: Verdict = entry(one)
            wrong += [(name, one)] if outcome(verdict) not in allowed else []

            assert HIDDEN not in verdict.fault.model_dump_json()

    assert wrong == []
