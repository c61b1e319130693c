"""Writes to the store: no transaction of Replan is open while the event loop does something else, or stands still."""

import asyncio
import contextlib
import itertools
import os
import random
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from pydantic import JsonValue
from sqlalchemy.ext.asyncio import AsyncEngine
from structlog.testing import capture_logs
from temporalio.api.common.v1 import Payload
from temporalio.converter import StorageDriverStoreContext, StorageDriverWorkflowInfo

from activities.boundary.breakers.rows import Breakers
from activities.effects import ledger
from activities.effects.ledger import LedgerEntry
from activities.errors import DatabaseUnavailable
from activities.planning.planner import RecordedTurn
from activities.planning.transcript import Transcript
from activities.storage.store import StoreUnavailable, open_store, sqlite_url, time_limit, write
from activities.storage.vault import Vault
from tests.activities.situations import asked
from workflows.faults.circuit_breaker import STANDARD_BREAKER
from workflows.faults.fault import Code
from workflows.plans.proposal import Answer, Proposed

BLOCKS = 30
"""How often the event loop stands still."""


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[AsyncEngine]:
    opened = await open_store(sqlite_url(tmp_path))
    yield opened
    await opened.dispose()


async def effect() -> JsonValue:
    return "done"


async def claim(engine: AsyncEngine, number: int) -> None:
    """Claim the key of an effect, record its result, and undo it."""
    entry = LedgerEntry(f"run/{number}", "task", str(number), "pay", "digest")
    await ledger.apply_at_most_once(engine, entry, effect, lambda error: False)
    await ledger.mark_undone([engine], entry, by="another")


async def change_breaker(engine: AsyncEngine, number: int) -> None:
    breakers = Breakers(engine)
    await breakers.move(
        "pay",
        lambda one, at: one.failed(str(number), one.generation, Code.UNREACHABLE, STANDARD_BREAKER, at.now),
    )


async def store_payload(engine: AsyncEngine, number: int) -> None:
    context = StorageDriverStoreContext(StorageDriverWorkflowInfo(namespace="default", id="task"))
    await Vault(engine).store(context, [Payload(data=b"%d" % number)])


async def record_turn(engine: AsyncEngine, number: int) -> None:
    """Record a turn of a planner."""
    proposed = Proposed(proposal=Answer(result="done"), planner="test")
    await Transcript(engine).write(RecordedTurn(f"run-{number}", 0, 1, asked("a task"), proposed, None), before=0)


Writing = Callable[[AsyncEngine, int], Coroutine[Any, Any, None]]


@pytest.mark.parametrize("writing", [claim, change_breaker, store_payload, record_turn])
async def test_no_lock_is_held_while_the_event_loop_stands_still(
    engine: AsyncEngine, tmp_path: Path, writing: Writing
) -> None:
    """A tool that blocks the loop, or a frozen process, would keep all others from writing."""
    dice, locked = random.Random(7), 0  # noqa: S311  # no secret

    async def write_on() -> None:
        for number in itertools.count():
            await writing(engine, number)

    working = asyncio.create_task(write_on())
    for _ in range(BLOCKS):
        for _ in range(dice.randint(1, 25)):  # so that it stands still anywhere in a write
            await asyncio.sleep(0)
        locked += not can_write(tmp_path)  # the loop stands still meanwhile
    working.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await working

    assert locked == 0


def can_write(folder: Path) -> bool:
    """Whether another connection can begin to write; it waits for a thread that has begun on a busy machine."""
    with contextlib.closing(sqlite3.connect(folder / "store.db", timeout=5, isolation_level=None)) as other:
        try:
            other.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return False
    return True


@contextlib.contextmanager
def locked(folder: Path, seconds: float) -> Any:
    """Another connection holds the lock for writing for some seconds."""
    other = sqlite3.connect(folder / "store.db", isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    timer = threading.Timer(seconds, other.rollback)
    timer.start()
    try:
        yield
    finally:
        timer.join()
        other.close()


async def test_a_worker_starts_while_another_one_holds_the_lock(engine: AsyncEngine, tmp_path: Path) -> None:
    """A frozen worker may hold it in the middle of a commit. The store needs no change, so nothing is written."""
    with locked(tmp_path, 1):
        began = time.monotonic()
        await (await open_store(sqlite_url(tmp_path))).dispose()
        seconds = time.monotonic() - began

    assert seconds < 1


async def test_a_write_waits_for_the_lock(engine: AsyncEngine, tmp_path: Path) -> None:
    """As long as BUSY_TIMEOUT, without a thread for each."""
    with locked(tmp_path, 0.5):
        await asyncio.gather(*(claim(engine, number) for number in range(10)))

    assert None not in [await ledger.undone_by([engine], f"run/{number}") for number in range(10)]


@pytest.mark.full
async def test_a_lock_that_stays_is_an_outage_that_names_its_process(engine: AsyncEngine, tmp_path: Path) -> None:
    """The log says which process to end; here it is this one."""
    with capture_logs() as lines, locked(tmp_path, 6), pytest.raises(DatabaseUnavailable):
        await claim(engine, 1)

    [line] = [line for line in lines if line["event"] == "store_locked"]
    assert line["holder"] == os.getpid()


@pytest.mark.full
async def test_a_new_store_that_is_locked_is_refused_with_the_process_that_holds_it(tmp_path: Path) -> None:
    """It has to be written, so the worker cannot start, and says what to end."""
    with contextlib.closing(sqlite3.connect(tmp_path / "store.db")) as new:
        new.execute("PRAGMA journal_mode=WAL")
    with locked(tmp_path, 6), pytest.raises(StoreUnavailable, match=f"process {os.getpid()} holds its lock: end"):
        await open_store(sqlite_url(tmp_path))


@pytest.mark.parametrize("pauses", [*range(12), None])
async def test_a_cancel_leaves_no_claim_behind(engine: AsyncEngine, pauses: int | None) -> None:
    """The next attempt may claim the key, or finds what was recorded; without pauses, it comes right after the call."""
    entry, called = LedgerEntry("run/1", "task", "1", "pay", "digest"), list[int]()

    async def call() -> JsonValue:
        called.append(1)
        if pauses is None:
            first.cancel()
        return "done"

    async def attempt() -> ledger.EffectResult:
        return await ledger.apply_at_most_once(engine, entry, call, lambda error: not called)

    first = asyncio.create_task(attempt())
    if pauses is not None:
        for _ in range(pauses):
            await asyncio.sleep(0.0005)
        first.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await first
    found = await attempt()

    assert called == [1]
    assert found.replayed or pauses is not None


async def test_a_timeout_during_a_write_is_a_timeout(engine: AsyncEngine, tmp_path: Path) -> None:
    """And no cancel of the task, which would end it."""
    with locked(tmp_path, 1), pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await claim(engine, 1)


async def test_a_timeout_during_the_last_write_cancels_nothing_after_it(engine: AsyncEngine) -> None:
    """The write is done, so there is a result, and what follows has its own time."""

    def slowly(_: object) -> str:
        time.sleep(0.5)
        return "done"

    async with time_limit(0.3) as limit:
        done = await write(engine, slowly)
    await asyncio.sleep(0)

    assert (done, limit.expired()) == ("done", True)
