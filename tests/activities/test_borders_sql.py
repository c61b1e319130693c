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
    return tmp_path / "store.db"


@asynccontextmanager
async def seats(url: str) -> AsyncIterator[AsyncEngine]:
    engine = await open_store(url)
    async with engine.begin() as connection:
        for statement in SCHEMA:
            await connection.execute(text(statement))
    yield engine
    await engine.dispose()


@pytest.fixture
async def engine(store_url: str) -> AsyncIterator[AsyncEngine]:
    async with seats(store_url) as engine:
        yield engine


@pytest.fixture
async def embedded(file: Path) -> AsyncIterator[AsyncEngine]:
    async with seats(f"sqlite+aiosqlite:///{file}") as engine:
        yield engine


async def fault_of(engine: AsyncEngine, *statements: str, **values: Any) -> Fault:
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


async def test_the_commonest_mistakes_come_with_their_remedy(engine: AsyncEngine) -> None:
    """A table that is missing; and a read that writes, which writes nothing: the remedy is the other decorator."""
    missing = await fault_of(engine, "SELECT * FROM nowhere")
    writing_reads = [
        await fault_of(reading(engine), statement)
        for statement in ("INSERT INTO seats VALUES (3, 'eve')", "CREATE TABLE more (id INTEGER)")
    ]

    assert "a table that does not exist: declare it as Table(..., metadata)" in missing.reason
    for fault in writing_reads:
        assert fault.code is Code.BUG and "declare it @tool.transactional" in fault.reason


@on_sqlite
async def test_reading_does_not_bind_who_comes_after(engine: AsyncEngine) -> None:
    """The connection goes back to the pool, and the next one may write and then read again."""
    for number in range(3, 13):
        await fault_of(reading(engine), "DELETE FROM seats")
        async with writing(engine).begin() as connection:
            await connection.execute(text("INSERT INTO seats VALUES (:id, :name)"), {"id": number, "name": str(number)})
    async with reading(engine).begin() as connection:
        assert await connection.scalar(text("SELECT count(*) FROM seats")) == 12


async def test_a_lock_held_by_another_writer_is_busy(embedded: AsyncEngine, file: Path) -> None:
    """Two connections, one writes: the other's write is to be tried again, with SQLAlchemy and without."""
    waiter = sqlite3.connect(file, isolation_level=None, timeout=0.02)
    with closing(sqlite3.connect(file, isolation_level=None)) as other, closing(waiter):
        other.execute("BEGIN IMMEDIATE")
        fault = await fault_of(embedded, "PRAGMA busy_timeout = 20", "INSERT INTO seats VALUES (3, 'eve')")
        with pytest.raises(sqlite3.OperationalError) as raised:
            waiter.execute("BEGIN IMMEDIATE")

    assert (fault.code, classify(raised.value).code) == (Code.BUSY, Code.BUSY)


async def test_a_read_that_has_become_stale_is_busy(embedded: AsyncEngine, file: Path) -> None:
    """A transaction that read and then wants to write, while another one wrote: begin again."""
    with closing(sqlite3.connect(file, isolation_level=None)) as other, pytest.raises(exc.OperationalError) as raised:
        async with embedded.begin() as connection:
            await connection.execute(text("SELECT * FROM seats"))
            other.execute("INSERT INTO seats VALUES (3, 'eve')")
            await connection.execute(text("INSERT INTO seats VALUES (4, 'dan')"))

    assert classify(raised.value).code is Code.BUSY


async def test_what_only_a_person_can_mend_is_not_retried(embedded: AsyncEngine, file: Path) -> None:
    """A full disk and a database that may not be written stay so."""
    for pragma, code in (("max_page_count", Code.QUOTA_EXHAUSTED), ("query_only", Code.FORBIDDEN)):
        insert = "INSERT INTO seats VALUES (3, :name)"
        assert (await fault_of(embedded, f"PRAGMA {pragma} = 1", insert, name="x" * 100_000)).code is code
        await embedded.dispose()  # the pragma is of the connection


@on_sqlite
async def test_one_row_was_wanted(engine: AsyncEngine) -> None:
    """`scalar_one` over no row or over several is an answer about the world."""
    for where, code in (("WHERE id = 9", Code.NOT_FOUND), ("", Code.CONFLICT)):
        async with engine.begin() as connection:
            rows = await connection.execute(text(f"SELECT id FROM seats {where}"))  # noqa: S608  # of two words
            with pytest.raises(exc.InvalidRequestError) as raised:
                rows.scalar_one()
        assert classify(raised.value).code is code


async def test_an_answer_proves_that_nothing_was_changed(engine: AsyncEngine) -> None:
    """A broken constraint, and on PostgreSQL the constraint's name, but never a value."""
    with pytest.raises(exc.IntegrityError) as raised:
        async with engine.begin() as connection:
            await connection.execute(text("INSERT INTO seats VALUES (3, :name)"), {"name": HIDDEN})
            await connection.execute(text("INSERT INTO seats VALUES (4, :name)"), {"name": HIDDEN})
    verdict = judge(raised.value)
    names = {"constraint": "seats_name_key", "table": "seats"} if engine.dialect.name == "postgresql" else None

    assert (verdict.proves, verdict.fault.observed) == (Proof.REFUSED, names)
    assert HIDDEN in str(raised.value.orig) + str(raised.value.statement) + str(raised.value.params)
    assert HIDDEN not in verdict.fault.model_dump_json()


async def test_sqlite_used_directly_means_the_same(embedded: AsyncEngine, file: Path) -> None:
    """A plain tool may use the standard library, and a progress handler as its limit."""
    calls: list[tuple[str, tuple[str, ...], Code]] = [
        ("INSERT INTO seats VALUES (1, 'eve')", (), Code.CONFLICT),
        ("SELEKT", (), Code.BUG),
        ("SELECT * FROM nowhere", (), Code.BUG),
        ("SELECT ?", ("x" * 1000,), Code.INVALID_INPUT),
    ]
    with closing(sqlite3.connect(file)) as connection:
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 900)
        for statement, values, code in calls:
            with pytest.raises(sqlite3.Error) as raised:
                connection.execute(statement, values)
            assert classify(raised.value).code is code, statement
        connection.set_progress_handler(lambda: 1, 1)
        with pytest.raises(sqlite3.OperationalError) as interrupted:
            connection.execute("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n")
    verdict = judge(interrupted.value)

    assert (verdict.fault.code, verdict.proves) == (Code.TIMEOUT, Proof.REFUSED)


INNER = {TimeoutError(HIDDEN): Code.TIMEOUT, ConnectionResetError(HIDDEN): Code.UNREACHABLE, ValueError(): Code.BUG}


class Postgres(Exception):
    """What asyncpg, which is no dependency of ours, raises: an exception with PostgreSQL's own five letters."""

    def __init__(self, sqlstate: str) -> None:
        super().__init__(HIDDEN)
        self.sqlstate = sqlstate


STATES = {
    **dict.fromkeys(("40001", "40P01", "55P03", "53300"), Code.BUSY),
    **dict.fromkeys(("08006", "57P01"), Code.UNREACHABLE),
    **dict.fromkeys(("42P01", "XX000"), Code.BUG),
    "53100": Code.QUOTA_EXHAUSTED,
    "22003": Code.INVALID_INPUT,
}


def test_postgresql_is_read_by_its_sqlstate() -> None:
    """SQLAlchemy has no class for most of asyncpg's errors, and wraps whatever is raised while a statement runs."""
    found = dict[str, Code]()
    for state in STATES:
        driver = Asyncpg.Error(HIDDEN, Postgres(state))  # type: ignore[no-untyped-call]  # SQLAlchemy's
        found[state] = classify(exc.DBAPIError("SELECT 1", {}, driver)).code

    assert found == STATES

    assert {one: classify(exc.StatementError(HIDDEN, "SELECT 1", {}, one)).code for one in INNER} == INNER
