"""The vault: large payloads are kept by task and digest, and what comes back is what was stored."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import func, select, text, update
from sqlalchemy.ext.asyncio import AsyncEngine
from temporalio.api.common.v1 import Payload
from temporalio.converter import (
    StorageDriverClaim,
    StorageDriverRetrieveContext,
    StorageDriverStoreContext,
    StorageDriverWorkflowInfo,
)

from activities.store import open_store, sqlite_url, writing
from activities.vault import PAYLOADS, PayloadLost, Vault
from workflows.faults import Code

HERE = StorageDriverRetrieveContext()


def of(task: str) -> StorageDriverStoreContext:
    """What the SDK says when a task stores something."""
    return StorageDriverStoreContext(target=StorageDriverWorkflowInfo(namespace="default", id=task))


def payload(text: str) -> Payload:
    """A payload as the converter makes it."""
    return Payload(metadata={"encoding": b"json/plain", "b": b"2", "a": b"1"}, data=text.encode())


@pytest.fixture
async def engine(store_url: str) -> AsyncIterator[AsyncEngine]:
    """A store."""
    opened = await open_store(store_url)
    yield opened
    await opened.dispose()


async def rows(engine: AsyncEngine) -> int:
    """How many payloads are kept."""
    async with engine.begin() as tx:
        return await tx.scalar(select(func.count()).select_from(PAYLOADS)) or 0


async def test_what_comes_back_is_what_was_stored(engine: AsyncEngine) -> None:
    """Data and metadata, in the order of the claims."""
    vault, sent = Vault(engine), [payload("one"), payload("two")]
    claims = await vault.store(of("task"), sent)

    assert await vault.retrieve(HERE, list(reversed(claims))) == [payload("two"), payload("one")]


async def test_the_same_payload_of_a_task_is_kept_once(engine: AsyncEngine) -> None:
    """A retried call stores its result again; another task has its own."""
    vault = Vault(engine)
    first, again = await vault.store(of("task"), [payload("x")]), await vault.store(of("task"), [payload("x")])
    await vault.store(of("other"), [payload("x")])

    assert (first, await rows(engine)) == (again, 2)


async def test_what_is_not_there_is_named(engine: AsyncEngine) -> None:
    """A worker on another store cannot go on, and says on which it could."""
    claim = StorageDriverClaim({"task": "task", "digest": "0" * 64, "size": "9"})

    with pytest.raises(PayloadLost, match="000000000000 of task 'task' is not in this worker's store: start a worker"):
        await Vault(engine).retrieve(HERE, [claim])


async def test_what_was_changed_is_not_believed(engine: AsyncEngine) -> None:
    """The digest is checked on the way out."""
    claims = await Vault(engine).store(of("task"), [payload("100.00 EUR")])
    forged = payload("900.00 EUR").SerializeToString(deterministic=True)
    async with engine.begin() as tx:
        await tx.execute(update(PAYLOADS).values(data=forged))

    with pytest.raises(PayloadLost, match="is not what was stored: restore the store"):
        await Vault(engine).retrieve(HERE, claims)


async def test_a_store_that_cannot_be_used_is_a_fault_in_our_own_words(engine: AsyncEngine) -> None:
    """This is what histories get, so no word of the driver's is in it."""
    async with writing(engine).begin() as tx:
        await tx.execute(text("ALTER TABLE replan_payloads RENAME COLUMN data TO content"))
    with pytest.raises(PayloadLost) as lost:
        await Vault(engine).store(of("task"), [payload("x")])

    [fault] = lost.value.details
    assert (fault.code, lost.value.type, lost.value.__cause__) == (Code.WRONG_STORE, fault.quadrant.value, None)
    assert "SQL" not in str(lost.value) and "content" not in str(lost.value)


async def test_a_store_that_is_away_is_waited_for(tmp_path: Path) -> None:
    """Keeping and fetching both say so, with the code that a task waits for."""
    engine = await open_store(sqlite_url(tmp_path))
    vault = Vault(engine)
    claims = await vault.store(of("task"), [payload("x")])
    (tmp_path / "store.db").rename(tmp_path / "elsewhere.db")
    codes = list[Code]()
    for use in (vault.store(of("task"), [payload("y")]), vault.retrieve(HERE, claims)):
        with pytest.raises(PayloadLost) as lost:
            await use
        codes.append(lost.value.details[0].code)
    await engine.dispose()

    assert codes == [Code.STORE_UNAVAILABLE] * 2


async def test_only_what_is_older_is_pruned(engine: AsyncEngine) -> None:
    """By when it was stored last, in any time zone."""
    vault = Vault(engine)
    await vault.store(of("old"), [payload("a" * 10)])
    between = datetime.now(UTC).astimezone()
    claims = await vault.store(of("new"), [payload("b")])
    pruned = await vault.prune(between)

    assert (pruned.payloads, pruned.size > 10) == (1, True)
    assert await vault.retrieve(HERE, claims) == [payload("b")]


async def test_what_is_stored_again_is_young_again(engine: AsyncEngine) -> None:
    """An open task that stores the same once more needs it."""
    vault = Vault(engine)
    await vault.store(of("task"), [payload("a")])
    between = datetime.now(UTC)
    await vault.store(of("task"), [payload("a")])

    assert (await vault.prune(between)).payloads == 0


async def test_nothing_to_prune_is_nothing(engine: AsyncEngine) -> None:
    """An empty store has no bytes."""
    pruned = await Vault(engine).prune(datetime.now(UTC) + timedelta(days=1))

    assert (pruned.payloads, pruned.size) == (0, 0)
