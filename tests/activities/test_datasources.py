"""The databases that tools brought: adopted when a worker starts, each with a ledger of its own."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, closing, suppress
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from temporalio.testing import ActivityEnvironment

from activities.effects.ledger import LEDGER
from activities.inspection import Host
from activities.storage.store import Datasources, StoreUnavailable, adopt, open_store, sqlite_url, transaction, writing
from tests.activities.test_store import differences
from tests.stores import make_old_store


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[AsyncEngine]:
    opened = await open_store(sqlite_url(tmp_path))
    yield opened
    await opened.dispose()


@pytest.fixture
async def bank(store_url: str, tmp_path: Path) -> AsyncIterator[AsyncEngine]:
    is_file = store_url.startswith("sqlite")
    engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/bank.db" if is_file else store_url)
    async with engine.begin() as tx:
        await tx.execute(text("CREATE TABLE ledger (account TEXT)"))
    yield engine
    await engine.dispose()


async def test_an_adopted_database_has_a_ledger(bank: AsyncEngine) -> None:
    """As the code says that it is, beside the tables of the database's owner, also for connections of before."""
    for _ in range(2):
        await adopt(bank)
    async with bank.connect() as connection:
        found = await connection.run_sync(differences)
        assert await connection.scalar(text("SELECT count(*) FROM replan_ledger")) == 0

    indexes, of_gateway = {"replan_payloads_owner", "replan_turns_owner"}, {"ix_replan_ahead_at", "replan_ahead"}
    words = "breakers checked catalogues keys listeners store payloads sessions owners tickets turns words"
    own = {f"replan_{word}" for word in words.split()}
    # Those of the gateway only where a test before has imported it.
    assert {str(one[1].name) for one in found if isinstance(one, tuple)} - of_gateway == own | indexes

    await adopt(bank)
    asked = {"sqlite": ("PRAGMA journal_mode", "wal"), "postgresql": ("SHOW lock_timeout", "5s")}
    question, answer = asked[bank.dialect.name]
    with pytest.raises(DBAPIError) as failed:
        async with bank.begin() as tx:
            assert await tx.scalar(text(question)) == answer
            await tx.execute(text("INSERT INTO nowhere VALUES (:word)"), {"word": "sk-word"})
    async with bank.begin() as tx:
        await tx.execute(text("UPDATE replan_ledger_revision SET version_num = '9999'"))

    assert "sk-word" not in str(failed.value)
    with pytest.raises(StoreUnavailable, match=r"was migrated by a newer Replan .*9999.*0100.*start a newer Replan"):
        await adopt(bank)


async def test_each_database_is_there_once_and_the_store_is_first(store: AsyncEngine, bank: AsyncEngine) -> None:
    """However many kinds and engines lead to it; each has its ledger from the start of the worker."""
    again = create_async_engine(bank.url)
    datasources = Datasources(store, [bank, bank, None, again])
    async with AsyncExitStack() as opened:
        await datasources.open(opened)
        for engine in datasources:
            async with engine.begin() as tx:
                assert (await tx.execute(LEDGER.select())).all() == []
    serial = bank.execution_options(isolation_level="SERIALIZABLE", schema_translate_map={None: "shop"})
    async with Datasources(store, [serial]).twins() as twins:
        _, made = twins
    await again.dispose()

    assert [*datasources] == [store, bank]
    assert made.get_execution_options() == serial.get_execution_options()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("sqlite+aiosqlite:////no/such/folder/bank.db", "(OperationalError)"),
        ("postgresql+psycopg://me:sk-secret@127.0.0.1:1/bank", "(nothing listens there)"),
    ],
)
async def test_one_that_cannot_be_opened_is_a_sentence(store: AsyncEngine, url: str, words: str) -> None:
    """Which one, why, and where it was named; without its password."""
    with pytest.raises(StoreUnavailable) as refused:
        async with AsyncExitStack() as opened:
            await Datasources(store, [create_async_engine(url)]).open(opened)

    assert str(refused.value).startswith("The datasource ") and words in str(refused.value)
    assert "check its URL in the tools file" in str(refused.value) and "sk-secret" not in str(refused.value)


async def test_a_datasource_with_a_ledger_of_before_the_first_release_is_refused(bank: AsyncEngine) -> None:
    """The remedy spares the tables of the database's owner."""
    await make_old_store(bank.url.render_as_string(hide_password=False))

    with pytest.raises(
        StoreUnavailable, match=r"before 0\.2\.0, which was never released.*at revision 0001"
    ) as refused:
        await adopt(bank)
    assert str(refused.value).endswith("drop its tables replan_ledger and replan_ledger_revision.")


async def test_a_worker_says_how_its_datasources_are(store: AsyncEngine, bank: AsyncEngine) -> None:
    """Beside its store, without their passwords; one without a ledger has a problem."""
    host = Host(store, {}, {}, "1.2.3", Datasources(store, [bank]))
    before = await ActivityEnvironment().run(host.card)
    await adopt(bank)
    after = await ActivityEnvironment().run(host.card)

    assert [one.name for one in before.places] == ["store", "datasource"]
    assert before.places[1].problem == "it lacks the tables replan_ledger" and after.places[1].problem is None
    assert "sk-secret" not in before.model_dump_json()


SLOW = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 3000000) SELECT count(*) FROM n"


async def test_a_cancelled_statement_leaves_no_lock(tmp_path: Path) -> None:
    """SQLite ends no transaction whose connection is only forgotten, and then nobody could write for a long time."""
    engine = await open_store(sqlite_url(tmp_path))

    async def write() -> None:
        async with transaction(writing(engine)) as tx:
            await tx.exec_driver_sql(SLOW)

    writer = asyncio.create_task(write())
    await asyncio.sleep(0.1)
    writer.cancel()
    with suppress(asyncio.CancelledError):
        await writer
    with closing(sqlite3.connect(tmp_path / "store.db", timeout=0.5, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        other.execute("ROLLBACK")
    await engine.dispose()

    assert writer.cancelled()
