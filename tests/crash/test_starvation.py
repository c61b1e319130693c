"""Tools that take all slots, all threads or the event loop: other tasks go on, and the worker still ends in order."""

import asyncio
import json
import signal

import pytest

from tests.crash.places import Place
from tests.harness import outcome
from workflows.account.task import TaskStatus


async def test_tasks_are_planned_and_inspected_while_all_slots_are_taken(place: Place) -> None:
    """Only tools with I/O wait; whoever follows is told that the worker is busy, and with how many calls."""
    with place.serving("--slots", "3"):
        slow = await place.start("wait_for_gate", "a", "b", "c")
        await place.noted("a", "b", "c")
        tools = await asyncio.to_thread(place.starter, "tools", "--queue", place.queue)
        dry = await asyncio.to_thread(place.starter, "--task", "calculate 1+1", "--dry-run", "--queue", place.queue)
        pure = await asyncio.to_thread(place.starter, "--task", "calculate 1+1", "--queue", place.queue)
        args = {"file": str(place.notes), "word": "d"}
        (place.folder / "plan.json").write_text(
            json.dumps({"task": "wait", "steps": [{"id": "d", "kind": "wait_for_gate", "args": args}]})
        )
        busy = "the worker is busy: 3 of 3 slots"
        followed = await place.follow_until(busy, "--plan", str(place.folder / "plan.json"))
        ended = await outcome(slow)

    assert (tools.returncode, dry.returncode, pure.returncode, followed) == (0, 0, 0, 0), (tools, dry, pure)
    assert ended.status is TaskStatus.COMPLETED


@pytest.mark.full
async def test_a_worker_without_a_free_thread_ends_so_that_a_supervisor_starts_it_again(place: Place) -> None:
    """Threads that hang are lost to the process: the next worker has new ones. The exit code says that it failed."""
    with place.serving("--slots", "2") as worker:
        await place.start("hang", "a", "b")
        code = await asyncio.to_thread(worker.wait, 40)

    log = place.log.read_text()
    assert code == 1, log
    assert "All 2 threads for tools are held by calls that do not return (hang 2)." in log
    assert [entry["outlived"] for entry in place.logged("thread_left")] == [1, 2]


async def test_a_tool_that_blocks_its_event_loop_harms_no_other_task(place: Place) -> None:
    """A payment of another task goes through at its first attempt: heartbeats do not depend on tools."""
    with place.serving():
        paying = await place.start("pay_slowly", "paid", seconds=2)
        await place.noted("paid")
        blocking = await place.start("block", "blocked", seconds=8)
        paid, blocked = await outcome(paying), await outcome(blocking)

    assert (paid.status, paid.faults, paid.steps[0].attempts) == (TaskStatus.COMPLETED, (), 1)
    assert (blocked.status, blocked.faults) == (TaskStatus.COMPLETED, ())
    call = f"block ({blocked.task_id}/blocked)"
    (entry,) = [one for one in place.logged("tool_blocks") if one["call"] == call]
    assert "harmful.py" in entry["at"][-1]


@pytest.mark.full
async def test_a_call_that_blocks_beyond_its_timeout_is_a_timeout(place: Place) -> None:
    """It is an attempt of the tool, and its fault says what is wrong; the next attempt has the same key."""
    with place.serving():
        ended = await outcome(await place.start("block_once", "blocked", seconds=5))

    fault, *later = ended.faults
    assert ended.status is TaskStatus.COMPLETED
    assert (fault.code, fault.applied, fault.uncounted) == ("timeout", "unknown", False)
    # A retry that comes while the first call still blocks the loop may pass its own deadline before its call.
    assert all((one.code, one.applied) == ("timeout", "none") for one in later), later
    assert "block_once gave no answer within 1 s: it blocks its event loop." in fault.reason


@pytest.mark.parametrize("kind", ["ignore_cancel", pytest.param("block", marks=pytest.mark.full)])
@pytest.mark.timeout(120)
@pytest.mark.full
async def test_a_worker_ends_although_a_tool_does_not(place: Place, kind: str) -> None:
    """After the time for running calls, in one line that names the call; a blocked event loop hears no cancel."""
    with place.serving() as worker:
        handle = await place.start(kind, "stubborn")
        await place.noted("stubborn")
        worker.send_signal(signal.SIGTERM)
        said, _ = await asyncio.to_thread(worker.communicate, timeout=60)

    call = f"{kind} ({handle.id}/stubborn)"
    assert worker.returncode == 0
    assert said.splitlines()[0] == "stopping; 1 call still runs, and is cancelled after 8 s"
    assert said.splitlines()[-1] == (
        f"stopped after 20 s, although calls still ran: {call}; another worker finds out whether they took effect, or"
        " repeats them"
    )
