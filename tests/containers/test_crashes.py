"""What ends in the composition loses no task, and has no effect twice."""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from runtime.temporal_cli import spoken
from tests.containers.composed import Composed

pytestmark = pytest.mark.timeout(900)
TASKS = 20
PATIENCE = 120
BOOK = "SELECT word, count(*) FROM book WHERE word LIKE '{name}-%' GROUP BY word"
LEDGER = "SELECT key, count(*) FROM replan_ledger WHERE task LIKE '{name}-%' AND kind = 'enter' GROUP BY key"


@asynccontextmanager
async def crowd(composed: Composed, name: str, figures: list[str], tasks: int = TASKS) -> AsyncIterator[None]:
    began = time.monotonic()
    running = asyncio.create_task(composed.host(sys.executable, "-m", "tests.containers.crowd", name, str(tasks)))
    try:
        while not running.done() and not (await book(composed, name)):
            await asyncio.sleep(0.5)
        yield
        done = await running
    finally:
        running.cancel()
    figures.append(f"{name}: {tasks} tasks, {2 * tasks} effects: {spoken(time.monotonic() - began)}")

    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout).values()) == {"completed"}
    for question in (BOOK, LEDGER):
        [rows] = await composed.ask_store(question.format(name=name))
        assert len(rows) == 2 * tasks
        assert {count for _, count in rows} == {1}, rows


async def book(composed: Composed, name: str) -> bool:
    [tables] = await composed.ask_store("SELECT name FROM sqlite_master WHERE name = 'book'")
    return bool(tables) and bool((await composed.ask_store(BOOK.format(name=name)))[0])


async def test_a_worker_killed_in_a_step(composed: Composed, figures: list[str]) -> None:
    plan = {"steps": [{"id": "slow", "kind": "enter", "args": {"word": "slow-0", "seconds": 15}}]}
    (file := composed.folder / "plan.json").write_text(json.dumps(plan))
    began = time.monotonic()
    started = await composed.starter("start", "--detach", "--id", "slow-0", "--task", "a", "--plan", str(file))
    assert started.returncode == 0, started.stderr
    where = await composed.working("slow-0")
    await composed.kill(where)
    done = await composed.starter("show", "slow-0", "--follow")
    figures.append(f"killed in a step of 15 s: done after {spoken(time.monotonic() - began)}")
    [written, ledger] = await composed.ask_store(BOOK.format(name="slow"), LEDGER.format(name="slow"))
    await composed.up()
    await composed.is_healthy()

    assert done.returncode == 0, done.stdout + done.stderr
    assert written == [["slow-0", 1]]
    assert [count for _, count in ledger] == [1]


async def test_both_workers_killed(composed: Composed, figures: list[str]) -> None:
    async with crowd(composed, "killed", figures):
        workers = await composed.containers("worker")
        before = {worker["State"]["StartedAt"] for worker in workers}
        await asyncio.gather(*(composed.kill_process(worker["Id"]) for worker in workers))
        for _ in range(PATIENCE):
            after = await composed.containers("worker")
            if all(one["State"]["Running"] and one["State"]["StartedAt"] not in before for one in after):
                break
            await asyncio.sleep(0.5)

    assert {one["Id"] for one in after} == {one["Id"] for one in workers}
    assert all(one["State"]["Running"] for one in after)
    assert before.isdisjoint(one["State"]["StartedAt"] for one in after)


@pytest.mark.parametrize("service", ["postgresql", "temporal"])
async def test_a_restart(composed: Composed, service: str, figures: list[str]) -> None:
    async with crowd(composed, f"restart-{service}", figures):
        await composed.compose("restart", service)
    await composed.is_healthy()


async def test_down_and_up(composed: Composed) -> None:
    before = await composed.starter("--id", "kept", "--task", "calculate 2 + 2")
    await composed.compose("down")
    began = time.monotonic()
    await composed.up()
    await composed.is_healthy()
    shown = await composed.starter("show", "kept")

    assert before.returncode == 0, before.stdout + before.stderr
    assert shown.returncode == 0 and "Completed" in shown.stdout, shown.stdout + shown.stderr
    assert time.monotonic() - began < 300


async def test_four_workers(composed: Composed, figures: list[str]) -> None:
    await composed.up("--scale", "worker=4")
    await composed.is_healthy()
    async with crowd(composed, "four", figures):
        pass
    workers = await composed.containers("worker")
    await composed.up("--scale", "worker=2")

    assert len(workers) == 4
