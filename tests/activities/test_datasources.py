"""The databases that tools brought: adopted when a worker starts, each with a ledger of its own."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from temporalio.testing import ActivityEnvironment

from activities.effects.ledger import LEDGER
from activities.inspection import Host
from activities.storage.store import Datasources, StoreUnavailable, adopt, open_store, sqlite_url
from tests.activities.test_store import differences
from tests.stores import make_old_store


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[AsyncEngine]:
    """The store."""
    opened = await open_store(sqlite_url(tmp_path))
    yield opened
    await opened.dispose()


@pytest.fixture
async def bank(store_url: str, tmp_path: Path) -> AsyncIterator[AsyncEngine]:
    """A tool's database with a table `ledger` of its own."""
    is_file = store_url.startswith("sqlite")
    engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/bank.db" if is_file else store_url)
    async with engine.begin() as tx:
        await tx.execute(text("CREATE TABLE ledger (account TEXT)"))
    yield engine
    await engine.dispose()


async def test_an_adopted_database_has_a_ledger(bank: AsyncEngine) -> None:
    """As the code says that it is, beside the tables of the database's owner; and nothing else of ours."""
    await adopt(bank)
    async with bank.connect() as connection:
        found = await connection.run_sync(differences)

    missing = {str(one[1].name) for one in found if isinstance(one, tuple)}
    indexes = {"ix_replan_ahead_at", "replan_payloads_owner", "replan_turns_owner"}
    own = {
        "replan_ahead",
        "replan_breakers",
        "replan_checked",
        "replan_catalogues",
        "replan_keys",
        "replan_listeners",
        "replan_store",
        "replan_payloads",
        "replan_sessions",
        "replan_owners",
        "replan_tickets",
        "replan_turns",
        "replan_words",
    }
    assert missing == own | indexes


async def test_an_adopted_database_is_used_as_the_store_is(bank: AsyncEngine) -> None:
    """Also by connections that were opened before."""
    await adopt(bank)
    asked = {"sqlite": ("PRAGMA journal_mode", "wal"), "postgresql": ("SHOW lock_timeout", "5s")}
    question, answer = asked[bank.dialect.name]
    async with bank.begin() as tx:
        assert await tx.scalar(text(question)) == answer


async def test_values_stay_out_of_the_messages_of_an_adopted_database(bank: AsyncEngine) -> None:
    """They go to the log."""
    await adopt(bank)
    with pytest.raises(DBAPIError) as failed:
        async with bank.begin() as tx:
            await tx.execute(text("INSERT INTO nowhere VALUES (:word)"), {"word": "sk-word"})

    assert "sk-word" not in str(failed.value)


async def test_a_database_may_be_adopted_again(bank: AsyncEngine) -> None:
    """By each worker that starts, and twice by one."""
    for _ in range(2):
        await adopt(bank)
    async with bank.begin() as tx:
        assert await tx.scalar(text("SELECT count(*) FROM replan_ledger")) == 0


async def test_each_database_is_there_once_and_the_store_is_first(store: AsyncEngine, bank: AsyncEngine) -> None:
    """However many kinds and engines lead to it."""
    again = create_async_engine(bank.url)
    found = list(Datasources(store, [bank, bank, None, again]))
    await again.dispose()

    assert found == [store, bank]


async def test_the_engine_of_another_event_loop_has_the_same_options(store: AsyncEngine, bank: AsyncEngine) -> None:
    """The connections of a tool are as its author configured them."""
    serial = bank.execution_options(isolation_level="SERIALIZABLE", schema_translate_map={None: "shop"})
    async with Datasources(store, [serial]).twins() as twins:
        _, made = twins

    assert made.get_execution_options() == serial.get_execution_options()


async def test_opening_makes_every_ledger(store: AsyncEngine, bank: AsyncEngine) -> None:
    """At the start of the worker, not at the first call."""
    async with AsyncExitStack() as opened:
        datasources = Datasources(store, [bank])
        await datasources.open(opened)
        for engine in datasources:
            async with engine.begin() as tx:
                assert (await tx.execute(LEDGER.select())).all() == []


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


async def test_a_datasource_of_a_newer_replan_is_refused(bank: AsyncEngine) -> None:
    """With both revisions."""
    await adopt(bank)
    async with bank.begin() as tx:
        await tx.execute(text("UPDATE replan_ledger_revision SET version_num = '9999'"))

    with pytest.raises(StoreUnavailable, match=r"was migrated by a newer Replan .*9999.*0100.*start a newer Replan"):
        await adopt(bank)


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
