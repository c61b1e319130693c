"""The threads of tools: calls that outlive their attempts are counted, and none waits for them."""

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from pydantic import BaseModel

from activities.boundary.threads import THREADS_RETRY_AFTER, Threads
from replan import Key, tool
from tests.activities.bench import Bench, bench
from workflows.faults.fault import Applied, Code


class Nothing(BaseModel):
    """No arguments."""


class Said(BaseModel):
    thread: str


OPEN = threading.Event()
"""Lets `hang` return."""


@tool.read(timeout=0.2)
def hang(args: Nothing) -> Said:
    """Return when the event is set."""
    OPEN.wait(60)
    return Said(thread=threading.current_thread().name)


@tool.keyed
def charge(args: Nothing, key: Key) -> Said:
    """Charge."""
    return Said(thread=threading.current_thread().name)


@pytest.fixture
async def calls(tmp_path: Path) -> AsyncIterator[Bench]:
    OPEN.clear()
    async with bench(tmp_path) as ready:
        yield ready
    OPEN.set()


async def test_a_call_is_refused_as_busy_while_no_thread_can_come_free(calls: Bench) -> None:
    """It was not made, and the reason names what holds the threads; when one returns, calls go through again."""
    reasons = list[str]()
    calls.boundary.threads = Threads(1, reasons.append)
    late, _ = await calls.fails(hang)
    refused, raised = await calls.fails(charge)
    held = calls.boundary.capacity(100)
    OPEN.set()
    while calls.boundary.threads.outlived:
        await asyncio.sleep(0.01)
    after = await calls.call(charge)

    text = "All 1 threads for tools are held by calls that do not return (hang 1)."
    assert (late.code, refused.code, refused.reason, refused.applied) == (Code.TIMEOUT, Code.BUSY, text, Applied.NONE)
    assert raised.next_retry_delay is not None and raised.next_retry_delay.total_seconds() >= THREADS_RETRY_AFTER
    assert reasons == [text] and str(held) == "0 of 100 slots, 1 of 1 threads held by calls that do not return"
    assert after.result is not None
