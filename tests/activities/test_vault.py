"""The vault: large payloads are kept by task and digest, and what comes back is what was stored."""

import re
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

from activities.storage.store import open_store, sqlite_url, writing
from activities.storage.vault import PAYLOADS, EndedTasks, PayloadLost, Vault
from runtime.payloads import PayloadConverter, PayloadPruned
from workflows.account.task import Task
from workflows.faults.fault import Code
from workflows.plans.proposal import StepReturn
from workflows.plans.references import PRUNED

HERE = StorageDriverRetrieveContext()
LATER = datetime.now(UTC) + timedelta(days=1)
NEVER = StorageDriverClaim({"task": "never", "digest": "0" * 64, "size": "9"})


def of(task: str) -> StorageDriverStoreContext:
    """What the SDK says when a task stores something."""
    return StorageDriverStoreContext(target=StorageDriverWorkflowInfo(namespace="default", id=task))


def payload(text: str) -> Payload:
    """A payload as the converter makes it."""
    return Payload(metadata={"encoding": b"json/plain", "b": b"2", "a": b"1"}, data=text.encode())


@pytest.fixture
async def engine(store_url: str) -> AsyncIterator[AsyncEngine]:
    opened = await open_store(store_url)
    yield opened
    await opened.dispose()


async def rows(engine: AsyncEngine) -> int:
    async with engine.begin() as tx:
        return await tx.scalar(select(func.count()).select_from(PAYLOADS)) or 0


async def test_what_comes_back_is_what_was_stored(engine: AsyncEngine) -> None:
    """Data and metadata, in the order of the claims; a retried call stores its result again, which is kept once."""
    vault, sent = Vault(engine), [payload("one"), payload("two")]
    claims = await vault.store(of("task"), sent)
    again = await vault.store(of("task"), sent)
    await vault.store(of("other"), sent)

    assert await vault.retrieve(HERE, list(reversed(claims))) == [payload("two"), payload("one")]
    assert (again, await rows(engine)) == (claims, 4)


async def test_what_was_changed_is_not_believed(engine: AsyncEngine) -> None:
    """The digest is checked on the way out; what is not there is named, with the store on which it could be."""
    claims = await Vault(engine).store(of("task"), [payload("100.00 EUR")])
    forged = payload("900.00 EUR").SerializeToString(deterministic=True)
    async with engine.begin() as tx:
        await tx.execute(update(PAYLOADS).values(data=forged))

    with pytest.raises(PayloadLost, match="is not what was stored: restore the store"):
        await Vault(engine).retrieve(HERE, claims)
    with pytest.raises(PayloadLost, match="000000000000 of task 'never' is not in this worker's store: start a worker"):
        await Vault(engine).retrieve(HERE, [NEVER])


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
    """What cannot be fetched must be retryable: the SDK closes the workflow on any other error."""
    engine = await open_store(sqlite_url(tmp_path))
    vault = Vault(engine)
    claims = await vault.store(of("task"), [payload("x")])
    (tmp_path / "store.db").rename(tmp_path / "elsewhere.db")
    codes = list[tuple[Code, bool]]()
    for use in (vault.store(of("task"), [payload("y")]), vault.retrieve(HERE, claims)):
        with pytest.raises(PayloadLost) as lost:
            await use
        codes.append((lost.value.details[0].code, lost.value.non_retryable))
    await engine.dispose()

    assert codes == [(Code.STORE_UNAVAILABLE, True), (Code.STORE_UNAVAILABLE, False)]


async def test_only_what_is_older_is_pruned(engine: AsyncEngine) -> None:
    """By when it was stored last, in any time zone: an open task that stores the same once more needs it."""
    vault = Vault(engine, "ours")
    for task in ("old", "again"):
        await vault.store(of(task), [payload("a" * 10)])
    between = datetime.now(UTC).astimezone()
    claims = await vault.store(of("new"), [payload("b")]) + await vault.store(of("again"), [payload("a" * 10)])
    pruned = await vault.prune(EndedTasks(closed=["old", "new", "again"], gone=[]), between, "me")

    assert (pruned.payloads, pruned.size > 10) == (1, True)
    assert await vault.retrieve(HERE, claims) == [payload("b"), payload("a" * 10)]


async def test_only_what_tasks_stored_that_are_over_is_pruned(engine: AsyncEngine) -> None:
    """However old the rest is: the tasks to ask about are told in order, page by page."""
    vault = Vault(engine, "ours")
    claims = {task: await vault.store(of(task), [payload("x"), payload("y")]) for task in ("c", "a", "b")}
    pages = [await vault.tasks(LATER, "", 2), await vault.tasks(LATER, "b", 2)]
    nothing = await vault.prune(EndedTasks(closed=["task"], gone=[]), LATER, "me")
    pruned = await vault.prune(EndedTasks(closed=["a"], gone=["b"]), LATER, "me")

    assert (pages, pruned.payloads) == ([["a", "b"], ["c"]], 4)
    assert (nothing.payloads, nothing.size) == (0, 0)
    assert await vault.retrieve(HERE, claims["c"]) == [payload("x"), payload("y")]


async def test_what_another_namespace_or_none_stored_is_not_pruned(engine: AsyncEngine) -> None:
    """Nor what both have under the same task id, of which nobody knows both sides: it is counted, for a person."""
    ours, theirs = Vault(engine, "ours"), Vault(engine, "theirs")
    alone = await theirs.store(of("alone"), [payload("x")])
    both = await theirs.store(of("both"), [payload("x")])
    await ours.store(of("both"), [payload("x")])
    nobodys = await Vault(engine).store(of("nobody's"), [payload("x")])
    pruned = await ours.prune(EndedTasks(closed=["alone", "nobody's"], gone=["both", "nobody's"]), LATER, "me")

    assert (await ours.tasks(LATER, "", 9), pruned.payloads, await ours.ownerless(LATER)) == ([], 0, 2)
    assert await theirs.retrieve(HERE, alone + both + nobodys) == [payload("x")] * 3


async def test_what_a_closed_task_left_says_that_it_was_pruned(engine: AsyncEngine) -> None:
    """When, and by whom, as a result or raised; a task that was reset behind it may store the same again."""
    vault = Vault(engine, "ours")
    claims = await vault.store(of("task"), [payload("x")])
    await vault.prune(EndedTasks(closed=["task"], gone=[]), LATER, "me@host")
    [left] = await vault.retrieve(HERE, claims)
    [read] = PayloadConverter().from_payloads([left], [StepReturn])

    sentence = (
        rf"^The payload {claims[0].claim_data['digest'][:12]} of task 'task' \(\d+ bytes\) was deleted by `prune` "
    )
    assert re.match(sentence + r"\(20.* UTC, asked by me@host\): start the task anew\.$", read.result[PRUNED])
    with pytest.raises(PayloadPruned, match="was deleted by `prune`"):
        PayloadConverter().from_payloads([left], [Task])
    again = await vault.store(of("task"), [payload("x")])
    assert await vault.retrieve(HERE, again) == [payload("x")]


async def test_what_a_task_left_of_which_the_server_knows_nothing_is_deleted_without_a_trace(
    engine: AsyncEngine,
) -> None:
    """No history can ask for it; what an earlier `prune` left of it goes, too."""
    vault = Vault(engine, "ours")
    for word in ("x", "y"):
        await vault.store(of("task"), [payload(word)])
        pruned = await vault.prune(EndedTasks(closed=["task"] if word == "x" else [], gone=["task"]), LATER, "me")

    assert (pruned.payloads, await rows(engine)) == (1, 0)


async def test_what_is_lacking_is_named(engine: AsyncEngine) -> None:
    """Without fetching anything: what was pruned, and what was never here."""
    vault = Vault(engine, "ours")
    kept, pruned = await vault.store(of("kept"), [payload("x")]), await vault.store(of("closed"), [payload("x")])
    await vault.prune(EndedTasks(closed=["closed"], gone=[]), LATER, "me")
    lacks = [str(await vault.lacks(claims)) for claims in (kept, [*kept, *pruned], [NEVER])]

    assert [word in one for word, one in zip(("None", "deleted by `prune`", "is not in"), lacks, strict=True)] == [
        True
    ] * 3
