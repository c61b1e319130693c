"""What becomes of a database that is locked, gone, read-only, full or of another version, on both databases."""

import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from activities.borders import classify
from activities.borders.sql import is_unavailable
from activities.effects.ledger import LedgerEntry, apply_in_transaction
from activities.errors import DatabaseUnavailable
from activities.storage.store import (
    StoreUnavailable,
    open_store,
    sqlite_url,
    store_id,
    transaction,
    tune,
    writing,
)
from evals.fakes.postgresql import Cluster
from workflows.faults.fault import Code, Fault

ON_A_FILE = pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
ENTRY = LedgerEntry("run/step", "task", "step", "add", "abc")


async def nothing() -> None:
    """An effect."""


async def claim(engine: AsyncEngine) -> None:
    async with transaction(writing(engine)) as tx:
        await apply_in_transaction(tx, ENTRY, nothing)


async def fault_of(engine: AsyncEngine) -> Fault:
    with pytest.raises(Exception) as raised:  # which class it is, is what the border is asked
        await claim(engine)
    return classify(raised.value)


@pytest.fixture
async def engine(store_url: str) -> AsyncIterator[AsyncEngine]:
    opened = await open_store(store_url)
    yield opened
    await opened.dispose()


@pytest.fixture
async def served(postgresql: Cluster) -> AsyncIterator[AsyncEngine]:
    name = postgresql.create()
    opened = await open_store(postgresql.url(name))
    yield opened
    await opened.dispose()
    postgresql.drop(name)


@contextmanager
def locked(engine: AsyncEngine) -> Iterator[None]:
    """Somebody else holds the lock for writing, for longer than anybody waits."""
    url = engine.url
    if engine.dialect.name == "sqlite":
        with closing(sqlite3.connect(str(url.database), isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            yield
        return
    plain = url.set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(plain) as holder:
        holder.execute("LOCK TABLE replan_ledger")
        yield


async def impatient(engine: AsyncEngine) -> None:
    """Wait for locks for 50 ms only, on the connection that is open."""
    shorter = {"sqlite": "PRAGMA busy_timeout = 50", "postgresql": "SET lock_timeout = '50ms'"}
    async with engine.begin() as tx:
        await tx.execute(text(shorter[engine.dialect.name]))


async def test_a_locked_store_is_away_until_it_is_free(engine: AsyncEngine) -> None:
    """Nothing happened, and the same engine goes on afterwards."""
    await impatient(engine)
    with locked(engine), pytest.raises(DatabaseUnavailable):
        await claim(engine)

    await claim(engine)


async def test_waits_for_locks_are_bounded_on_postgresql_as_on_sqlite(served: AsyncEngine) -> None:
    """Unless the server or the URL says otherwise."""
    other = await open_store(served.url.update_query_dict({"options": "-c lock_timeout=70"}).render_as_string(False))
    found = list[object]()
    for one in (served, other):
        async with one.begin() as tx:
            found.append(await tx.scalar(text("SHOW lock_timeout")))
    await other.dispose()

    assert found == ["5s", "70ms"]


@ON_A_FILE
async def test_a_file_that_is_deleted_is_away_until_it_is_back(engine: AsyncEngine, tmp_path: Path) -> None:
    """What the open file still takes would be lost with the process, and a new file would have no memory."""
    before = await store_id(engine)
    (tmp_path / "store.db").rename(tmp_path / "elsewhere.db")
    for _ in range(2):  # with the connection that was open, and with a new one
        with pytest.raises(DatabaseUnavailable):
            await claim(engine)
    await engine.dispose()
    with pytest.raises(DatabaseUnavailable):
        await claim(engine)
    made = (tmp_path / "store.db").exists()
    (tmp_path / "elsewhere.db").rename(tmp_path / "store.db")
    await claim(engine)

    assert (made, await store_id(engine)) == (False, before)


@ON_A_FILE
async def test_a_file_that_was_replaced_is_not_taken_for_the_old_one(engine: AsyncEngine, tmp_path: Path) -> None:
    """It knows nothing of what has happened: a worker that starts on it has another store, and says so."""
    (tmp_path / "store.db").rename(tmp_path / "elsewhere.db")
    other = await open_store(sqlite_url(tmp_path))
    for _ in range(2):
        with pytest.raises(DatabaseUnavailable):
            await claim(engine)
        await engine.dispose()
    async with other.begin() as tx:
        written = await tx.scalar(text("SELECT count(*) FROM replan_ledger"))
    await other.dispose()

    assert written == 0


async def test_a_server_that_stops_is_away_until_it_is_back(served: AsyncEngine, postgresql: Cluster) -> None:
    """Whatever was not committed did not happen; the same engine goes on, since its old connections are thrown away."""
    try:
        with pytest.raises(DBAPIError) as lost:
            async with writing(served).begin() as tx:
                await apply_in_transaction(tx, ENTRY, nothing)
                await postgresql.stop()
                await tx.execute(text("SELECT 1"))
        with pytest.raises(DatabaseUnavailable):
            await claim(served)
    finally:
        await postgresql.start()

    assert is_unavailable(lost.value)
    async with served.begin() as tx:
        assert await tx.scalar(text("SELECT count(*) FROM replan_ledger")) == 0
    await claim(served)


@pytest.mark.full
async def test_a_server_that_restarted_between_two_calls_costs_nothing(
    served: AsyncEngine, postgresql: Cluster
) -> None:
    """A connection is looked at before it is used."""
    await claim(served)
    await postgresql.stop()
    await postgresql.start()

    await claim(served)


async def test_a_pool_without_a_free_connection_is_away(store_url: str) -> None:
    """Sooner or later one comes back."""
    small = create_async_engine(store_url, pool_size=1, max_overflow=0, pool_timeout=0.02)
    async with small.connect():
        with pytest.raises(DatabaseUnavailable):
            await claim(small)
    await small.dispose()


@ON_A_FILE
async def test_a_file_that_may_not_be_written_is_for_a_person(engine: AsyncEngine, tmp_path: Path) -> None:
    """Waiting does not help."""
    read_only = create_async_engine(f"{engine.url.drivername}:///file:{tmp_path}/store.db?mode=ro&uri=true")
    tune(read_only.sync_engine)
    fault = await fault_of(read_only)
    await read_only.dispose()

    assert (fault.code, fault.quadrant.is_transient) == (Code.FORBIDDEN, False)
    assert fault.reason.startswith("The database may not be written")


async def test_a_server_that_may_not_be_written_is_for_a_person(served: AsyncEngine, postgresql: Cluster) -> None:
    """As a standby is, until it is promoted."""
    postgresql.run(f"ALTER DATABASE {served.url.database} SET default_transaction_read_only = on")
    await served.dispose()

    assert (await fault_of(served)).code is Code.FORBIDDEN


@ON_A_FILE
async def test_a_damaged_file_is_for_a_person(engine: AsyncEngine, tmp_path: Path) -> None:
    """Also where a new connection finds it so, which leaves nothing open."""
    await engine.dispose()
    with (tmp_path / "store.db").open("r+b") as file:
        file.write(b"no database" * 100)

    assert (await fault_of(engine)).code is Code.NEEDS_PERSON


CHANGES = ["DROP COLUMN claim", "RENAME COLUMN step TO place", "RENAME TO another"]


@pytest.mark.parametrize("change", CHANGES)
async def test_tables_of_another_version_are_for_a_person(engine: AsyncEngine, change: str) -> None:
    """A newer worker migrated the store while this one ran: no bug of the tool."""
    async with writing(engine).begin() as tx:
        await tx.execute(text(f"ALTER TABLE replan_ledger {change}"))
    fault = await fault_of(engine)

    assert (fault.code, "of another version than this worker" in fault.reason) == (Code.WRONG_STORE, True)


UNOPENED = {
    "user or password are rejected": {"password": "sk-wrong"},
    "the server has no such database": {"database": "nowhere"},
    "nothing listens there": {"port": 1},
    "its host is not known": {"host": "nowhere.invalid"},
    "there is no such driver": {"drivername": "postgresql+nothing"},
    "since the package 'pg8000' is missing": {"drivername": "postgresql+pg8000"},
}


@pytest.mark.parametrize("words", UNOPENED)
async def test_a_server_that_cannot_be_used_is_a_sentence(postgresql: Cluster, words: str) -> None:
    """With the cause, and without the password."""
    url = make_url(postgresql.url("postgres")).set(**UNOPENED[words])  # type: ignore[arg-type]  # a table of cases
    with pytest.raises(StoreUnavailable) as refused:
        await open_store(url.render_as_string(hide_password=False))

    assert words in str(refused.value) and "check --store" in str(refused.value)
    assert "sk-" not in str(refused.value)
