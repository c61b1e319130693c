"""The event loop and the threads of tools: what one tool does there does not hold up the others."""

import asyncio
import importlib
import sys
import threading
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import TypeVar

import pytest
import structlog
from pydantic import BaseModel

from activities.borders import table_of
from activities.boundary.threads import THREADS_RETRY_AFTER, Threads
from activities.boundary.tool_loop import ToolLoop
from replan import Key, tool
from tests.activities.bench import Bench, bench
from workflows.faults.fault import Applied, Code

T = TypeVar("T")


async def test_names_are_looked_up_while_all_threads_of_the_loop_are_busy() -> None:
    """Tools use `asyncio.to_thread` for slow work; the HTTP clients of other tools look up names meanwhile."""
    done = threading.Event()

    async def look_up() -> int:
        loop = asyncio.get_running_loop()
        others = [loop.run_in_executor(None, done.wait) for _ in range(40)]  # more than the loop has threads
        try:
            async with asyncio.timeout(20):
                return len(await loop.getaddrinfo("localhost", 80))
        finally:
            done.set()
            await asyncio.gather(*others)

    async with ToolLoop() as loop:
        found = await loop.run(look_up)

    assert found > 0


@pytest.mark.parametrize("is_child", [False, True], ids=["the call", "a task of the call"])
async def test_a_tool_that_exits_does_not_end_the_loop(is_child: bool) -> None:
    """Its call fails, as with any exception; the calls of other tools go on."""

    async def leave() -> None:
        sys.exit(3)

    async def call() -> None:
        await (asyncio.create_task(leave()) if is_child else leave())

    async def answer() -> str:
        return "here"

    async with ToolLoop() as loop:
        raised, said = await within(5, _raised(loop.run(call))), await within(5, loop.run(answer))

    assert (type(raised), said) == (SystemExit, "here")


async def _raised(call: Awaitable[object]) -> BaseException | None:
    try:
        await call
    except SystemExit as error:  # here, since a task that ends with it would end the loop of the tests
        return error
    return None


async def within(seconds: float, call: Awaitable[T]) -> T:
    """The result, or TimeoutError although the call cannot be cancelled."""
    task = asyncio.ensure_future(call)
    await asyncio.wait([task], timeout=seconds)
    if not task.done():
        raise TimeoutError
    return task.result()


@pytest.mark.full
@pytest.mark.parametrize("is_own", [False, True], ids=["by the tool", "by Replan"])
async def test_a_slow_import_is_reported_if_the_tool_makes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_own: bool
) -> None:
    """What Replan imports, as a package's table of faults, no author of a tool can change."""
    monkeypatch.syspath_prepend(tmp_path)
    name = f"slow_{is_own}".lower()
    (tmp_path / f"{name}.py").write_text("import time\ntime.sleep(2.5)\nFAULTS = {}\n")
    (info := tmp_path / f"{name}-1.0.dist-info").mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[replan.faults]\n{name} = {name}:FAULTS\n")

    async def work() -> None:
        table_of(name) if is_own else importlib.import_module(name)

    with structlog.testing.capture_logs() as logs:
        async with ToolLoop() as loop:
            await loop.run(work, "a call")

    assert [entry["event"] for entry in logs] == ([] if is_own else ["tool_blocks", "tool_blocked"])


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
