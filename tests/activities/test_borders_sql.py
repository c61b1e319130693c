"""The SQL border, against real databases: locks wait, constraints answer, wrong SQL is a bug."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import exc, text
from sqlalchemy.dialects.postgresql.asyncpg import AsyncAdapt_asyncpg_dbapi as Asyncpg
from sqlalchemy.ext.asyncio import AsyncEngine

from activities.borders import classify, judge
from activities.borders.table import Proof
from activities.storage.store import open_store, reading, writing
from tests.gate import on_sqlite
from workflows.faults.fault import Code, Fault

HIDDEN = "sk-secret"
SCHEMA = (
    "CREATE TABLE seats (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE CHECK (name <> 'nobody'))",
    "CREATE TABLE notes (slot INTEGER NOT NULL REFERENCES seats (id))",
    "INSERT INTO seats VALUES (1, 'ann'), (2, 'bob')",
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Where the database is."""
    return tmp_path / "store.db"


@asynccontextmanager
async def seats(url: str) -> AsyncIterator[AsyncEngine]:
    """A store with two seats."""
    engine = await open_store(url)
    async with engine.begin() as connection:
        for statement in SCHEMA:
            await connection.execute(text(statement))
    yield engine
    await engine.dispose()


@pytest.fixture
async def engine(store_url: str) -> AsyncIterator[AsyncEngine]:
    """A store with two seats, on each database."""
    async with seats(store_url) as engine:
        yield engine


@pytest.fixture
async def embedded(file: Path) -> AsyncIterator[AsyncEngine]:
    """A store with two seats in a file."""
    async with seats(f"sqlite+aiosqlite:///{file}") as engine:
        yield engine


async def fault_of(engine: AsyncEngine, *statements: str, **values: Any) -> Fault:
    """What the last of some statements is classified as."""
    with pytest.raises(Exception) as raised:  # which class it is, is what the border is asked
        async with engine.begin() as connection:
            for statement in statements:
                await connection.execute(text(statement), values)
    return classify(raised.value)


@pytest.mark.parametrize(
    ("statement", "code"),
    [
        ("INSERT INTO seats VALUES (3, 'ann')", Code.CONFLICT),
        pytest.param("INSERT INTO seats VALUES (1, 'eve')", Code.CONFLICT, marks=pytest.mark.full),
        ("INSERT INTO seats VALUES (3, NULL)", Code.CONFLICT),
        pytest.param("INSERT INTO seats VALUES (3, 'nobody')", Code.CONFLICT, marks=pytest.mark.full),
        ("INSERT INTO notes VALUES (99)", Code.CONFLICT),
        ("SELEKT 'sk-secret'", Code.BUG),
        ("SELECT * FROM nowhere", Code.BUG),
        pytest.param("SELECT nothing FROM seats", Code.BUG, marks=pytest.mark.full),
        pytest.param("SELECT :missing", Code.BUG, marks=pytest.mark.full),
    ],
)
async def test_what_the_database_says_to_a_statement(engine: AsyncEngine, statement: str, code: Code) -> None:
    """A broken constraint is an answer of the world; wrong SQL, a missing table or value is the tool's bug."""
    assert (await fault_of(engine, statement)).code is code


async def test_a_table_that_is_missing_is_named_as_such(engine: AsyncEngine) -> None:
    """The most common mistake of a tool with a table of its own comes with its remedy."""
    fault = await fault_of(engine, "SELECT * FROM nowhere")

    assert "a table that does not exist: declare it as Table(..., metadata)" in fault.reason


async def fails_reading(engine: AsyncEngine, statement: str) -> Fault:
    """What a statement comes to in a transaction that only reads."""
    return await fault_of(reading(engine), statement)


@pytest.mark.parametrize("statement", ["INSERT INTO seats VALUES (3, 'eve')", "CREATE TABLE more (id INTEGER)"])
async def test_a_read_that_writes_is_a_bug(engine: AsyncEngine, statement: str) -> None:
    """The remedy is the other decorator, and nothing was written."""
    fault = await fails_reading(engine, statement)

    assert (fault.code, "declare it @tool.transactional" in fault.reason) == (Code.BUG, True)


@on_sqlite
async def test_reading_does_not_bind_who_comes_after(engine: AsyncEngine) -> None:
    """The connection goes back to the pool, and the next one may write and then read again."""
    for number in range(3, 13):
        await fails_reading(engine, "DELETE FROM seats")
        async with writing(engine).begin() as connection:
            await connection.execute(text("INSERT INTO seats VALUES (:id, :name)"), {"id": number, "name": str(number)})
    async with reading(engine).begin() as connection:
        assert await connection.scalar(text("SELECT count(*) FROM seats")) == 12


async def test_a_lock_held_by_another_writer_is_busy(embedded: AsyncEngine, file: Path) -> None:
    """Two connections, one writes: the other's write is to be tried again."""
    other = sqlite3.connect(file, isolation_level=None)
    try:
        other.execute("BEGIN IMMEDIATE")
        fault = await fault_of(embedded, "PRAGMA busy_timeout = 20", "INSERT INTO seats VALUES (3, 'eve')")
    finally:
        other.close()

    assert fault.code is Code.BUSY


async def test_a_read_that_has_become_stale_is_busy(embedded: AsyncEngine, file: Path) -> None:
    """A transaction that read and then wants to write, while another one wrote: begin again."""
    other = sqlite3.connect(file, isolation_level=None)
    try:
        with pytest.raises(exc.OperationalError) as raised:
            async with embedded.begin() as connection:
                await connection.execute(text("SELECT * FROM seats"))
                other.execute("INSERT INTO seats VALUES (3, 'eve')")
                await connection.execute(text("INSERT INTO seats VALUES (4, 'dan')"))
    finally:
        other.close()

    assert classify(raised.value).code is Code.BUSY


@pytest.mark.parametrize(
    ("pragma", "code"),
    [("PRAGMA max_page_count = 1", Code.QUOTA_EXHAUSTED), ("PRAGMA query_only = 1", Code.FORBIDDEN)],
    ids=["full", "read-only"],
)
async def test_what_only_a_person_can_mend_is_not_retried(embedded: AsyncEngine, pragma: str, code: Code) -> None:
    """A full disk and a database that may not be written stay so."""
    insert = "INSERT INTO seats VALUES (3, :name)"

    assert (await fault_of(embedded, pragma, insert, name="x" * 100_000)).code is code


@pytest.mark.parametrize(
    ("statement", "code"),
    [("SELECT id FROM seats WHERE id = 9", Code.NOT_FOUND), ("SELECT id FROM seats", Code.CONFLICT)],
    ids=["none", "several"],
)
@on_sqlite
async def test_one_row_was_wanted(engine: AsyncEngine, statement: str, code: Code) -> None:
    """`scalar_one` over no row or over several is an answer about the world."""
    async with engine.begin() as connection:
        rows = await connection.execute(text(statement))
        with pytest.raises(exc.InvalidRequestError) as raised:
            rows.scalar_one()

    assert classify(raised.value).code is code


@on_sqlite
async def test_values_of_a_statement_stay_out_of_the_reason(engine: AsyncEngine) -> None:
    """SQLAlchemy writes statement and parameters into its messages; none of it leaves the border."""
    fault = await fault_of(engine, "INSERT INTO seats VALUES (1, :name)", name=HIDDEN)

    assert HIDDEN not in fault.model_dump_json()


@pytest.mark.parametrize(
    ("statement", "code"),
    [
        ("INSERT INTO seats VALUES (1, 'eve')", Code.CONFLICT),
        ("SELEKT", Code.BUG),
        ("SELECT * FROM nowhere", Code.BUG),
    ],
)
async def test_sqlite_used_directly_means_the_same(
    embedded: AsyncEngine, file: Path, statement: str, code: Code
) -> None:
    """A plain tool may use the standard library."""
    connection = sqlite3.connect(file)
    try:
        with pytest.raises(sqlite3.Error) as raised:
            connection.execute(statement)
    finally:
        connection.close()

    assert classify(raised.value).code is code


async def test_a_lock_met_directly_is_busy(embedded: AsyncEngine, file: Path) -> None:
    """`database is locked` without SQLAlchemy."""
    holder, waiter = (sqlite3.connect(file, isolation_level=None, timeout=0.02) for _ in range(2))
    try:
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(sqlite3.OperationalError) as raised:
            waiter.execute("BEGIN IMMEDIATE")
    finally:
        holder.close()
        waiter.close()

    assert classify(raised.value).code is Code.BUSY


async def test_a_statement_that_is_interrupted_has_timed_out(file: Path) -> None:
    """The tool's own limit, by a progress handler."""
    with closing(sqlite3.connect(file)) as connection, pytest.raises(sqlite3.OperationalError) as raised:
        connection.set_progress_handler(lambda: 1, 1)
        connection.execute("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n")
    verdict = judge(raised.value)

    assert (verdict.fault.code, verdict.proves) == (Code.TIMEOUT, Proof.REFUSED)


async def test_a_value_that_is_too_large_is_invalid(file: Path) -> None:
    """The planner may choose a smaller one."""
    with closing(sqlite3.connect(file)) as connection, pytest.raises(sqlite3.DataError) as raised:
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 100)
        connection.execute("SELECT ?", ("x" * 1000,))

    assert classify(raised.value).code is Code.INVALID_INPUT


@pytest.mark.parametrize(
    ("inner", "code"),
    [(TimeoutError(HIDDEN), Code.TIMEOUT), (ConnectionResetError(HIDDEN), Code.UNREACHABLE), (ValueError(), Code.BUG)],
)
def test_what_is_no_error_of_a_database_stays_what_it_is(inner: Exception, code: Code) -> None:
    """SQLAlchemy wraps whatever is raised while a statement runs, such as a driver's own timeout."""
    assert classify(exc.StatementError(HIDDEN, "SELECT 1", {}, inner)).code is code


async def test_an_answer_proves_that_nothing_was_changed(engine: AsyncEngine) -> None:
    """A broken constraint, and on PostgreSQL the constraint's name, but never a value."""
    with pytest.raises(exc.IntegrityError) as raised:
        async with engine.begin() as connection:
            await connection.execute(text("INSERT INTO seats VALUES (3, 'ann')"))
    verdict = judge(raised.value)
    names = {"constraint": "seats_name_key", "table": "seats"} if engine.dialect.name == "postgresql" else None

    assert (verdict.proves, verdict.fault.observed) == (Proof.REFUSED, names)


class Postgres(Exception):
    """What asyncpg, which is no dependency of ours, raises: an exception with PostgreSQL's own five letters."""

    def __init__(self, sqlstate: str) -> None:
        super().__init__(HIDDEN)
        self.sqlstate = sqlstate


@pytest.mark.parametrize(
    ("sqlstate", "code"),
    [
        ("40001", Code.BUSY),
        ("40P01", Code.BUSY),
        ("55P03", Code.BUSY),
        ("53300", Code.BUSY),
        ("08006", Code.UNREACHABLE),
        ("57P01", Code.UNREACHABLE),
        ("53100", Code.QUOTA_EXHAUSTED),
        ("22003", Code.INVALID_INPUT),
        ("42P01", Code.BUG),
        ("XX000", Code.BUG),
    ],
)
def test_postgresql_is_read_by_its_sqlstate(sqlstate: str, code: Code) -> None:
    """SQLAlchemy has no class for most of asyncpg's errors, serialization failures among them: the state decides."""
    driver = Asyncpg.Error(HIDDEN, Postgres(sqlstate))  # type: ignore[no-untyped-call]  # SQLAlchemy leaves it untyped
    raised = exc.DBAPIError("SELECT 1", {}, driver)

    assert classify(raised).code is code
