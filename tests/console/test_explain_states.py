"""`explain` of tasks on a real server that still run, that were ended from outside, or whose worker crashed."""

import asyncio
import signal
import uuid
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from client.explain import explanation, page
from client.explain.explanation import Explanation
from client.history import fetch
from client.tasks import Handle
from replan import Busy, Refused, Unreachable, tool
from runtime.dev_server import DevServer
from tests.crash.test_crash import Workers, chain
from tests.harness import DONE, Proposals, outcome, plan, staged, step
from tests.record import Said, Word
from tests.workflows.history import until
from workflows.account.records import StepStatus
from workflows.account.task import Task
from workflows.agent import AgentWorkflow
from workflows.plans.proposal import GiveUp


async def told(client: Client, handle: Handle) -> Explanation:
    """What is said of a task now."""
    return explanation.explain_task(await fetch.fetch_history(client, handle, journal=True))


def said(explained: Explanation) -> list[str]:
    """The same in whole lines."""
    return page.page_lines(explained, None)


@tool.read
async def busy(args: Word) -> Said:
    """Be busy for an hour."""
    raise Busy("Not now.", retry_after=3600)


@tool.read
async def full(args: Word) -> Said:
    """Be full."""
    raise Refused("There is no room.", code="conflict")


async def test_a_running_task_says_what_it_waits_for(client: Client, tmp_path: Path) -> None:
    """A step on a timer: why, how long, and that it goes on; nothing is made up about its end."""
    async with staged(client, tmp_path, [busy], [plan(step("a", "busy"))]) as stage:
        handle = await stage.start()
        await until(handle, lambda progress: bool(progress.with_status(StepStatus.WAITING)))
        explained = await told(client, handle)
        await handle.cancel()
        await outcome(handle)

    assert [(item.decision, item.steps) for item in explained.items] == [("wait", ("a",))]
    assert explained.items[0].then[0].text == (
        "It waited 60 min on a timer (it is still waiting), then the same call is to be made again."
    )
    assert explained.now[0].text.startswith("A timer of 60 min runs: a waits: busy, then again.")


@tool.read
async def down(args: Word) -> Said:
    """Fail each time."""
    raise Unreachable("It failed.", code="server_error")


@pytest.mark.parametrize(("kind", "is_later"), [("down", True), ("full", False)])
async def test_what_may_work_later_is_to_be_tried_later(
    client: Client, tmp_path: Path, kind: str, is_later: bool
) -> None:
    """The planner knows no way round a service that is down: that is no fault of the task's text."""
    proposals: Proposals = [plan(step("a", kind)), GiveUp(reason="There is no other way.")]
    async with staged(client, tmp_path, [down, full], proposals) as stage:
        handle = await stage.start()
        await outcome(handle)
        explained = await told(client, handle)

    todo = [sentence.text for sentence in explained.todo]
    later = ["Start it again later: what failed last may work by then."] * is_later
    assert todo == [*later, "Say it in other words, or ask for less."]
    assert is_later == any("The retries are used up" in line for line in said(explained))


async def test_a_step_that_is_being_retried_is_told_by_the_server(client: Client, tmp_path: Path) -> None:
    """No event tells of attempts before the last one has ended; the server's list of pending calls does."""
    called = asyncio.Event()

    @tool.read
    async def hangs(args: Word) -> Said:
        """Fail once, then hang."""
        if not called.is_set():
            called.set()
            raise Unreachable("The line is cut.")
        await asyncio.sleep(60)
        return Said(said="")

    async with staged(client, tmp_path, [hangs], [plan(step("a", "hangs"))]) as stage:
        handle = await stage.start()
        await called.wait()
        await asyncio.sleep(1.5)
        explained = await told(client, handle)
        await handle.cancel()
        await outcome(handle)

    assert [one.text for one in explained.now] == [
        "a (hangs): attempt 2 of 4 runs; the one before failed (unreachable): The line is cut."
    ]
    assert "is running: 1 plan, 0 of 1 step finished" in explained.summary


async def start_alone(client: Client, **more: Any) -> Handle:
    """A task on a queue that nobody serves."""
    id = f"alone-{uuid.uuid4().hex[:8]}"
    return await client.start_workflow(AgentWorkflow.run, Task(text="wait"), id=id, task_queue="nobody", **more)


async def test_a_task_without_a_worker_says_so(client: Client) -> None:
    """It was asked, and nobody has begun."""
    handle = await start_alone(client)
    lines = said(await told(client, handle))
    await handle.terminate()

    assert lines[0].startswith(f"{handle.id} is running: no plan in force, 0 tool calls. No faults. Started 20")
    assert "Now  No worker has taken the task up yet.  [event 2]" in lines


async def test_a_terminated_task_says_that_it_was_ended_from_outside(client: Client) -> None:
    """With the reason that was given, as data."""
    handle = await start_alone(client)
    await handle.terminate(reason="no longer\x1b[31m needed")
    item = (await told(client, handle)).items[0]

    assert item.decision == "end"
    assert item.what.text == (
        "The task was terminated from outside, so it could neither clean up nor write an outcome "
        "(no longer [31m needed.)."
    )


async def test_a_task_that_the_server_timed_out_says_so(client: Client) -> None:
    """Whoever started it with a limit of the server's own."""
    handle = await start_alone(client, execution_timeout=timedelta(seconds=1))
    await asyncio.sleep(2.5)
    explained = await told(client, handle)

    assert (explained.status, explained.items[0].decision) == ("failed", "end")


async def test_a_cancel_before_anything_began_is_told(client: Client) -> None:
    """The request stands in the history, and nobody has acted on it yet."""
    handle = await start_alone(client)
    await handle.cancel()
    explained = await told(client, handle)
    await handle.terminate()

    assert "The task was asked to stop." in [one.text for one in explained.now]


@pytest.mark.full
async def test_a_crash_is_told_as_a_lost_worker(server: DevServer, client: Client, tmp_path: Path) -> None:
    """A killed worker leaves no fault behind: the server's own record of the attempt says what happened, and that it is
    made again without being counted."""
    workers = Workers(server.address, tmp_path, [chain(tmp_path / "notes", "a", seconds=3), DONE])
    handle: Handle = await client.start_workflow(
        AgentWorkflow.run, Task(text="x"), id=f"crash-{uuid.uuid4().hex[:8]}", task_queue=workers.queue
    )
    with workers.one() as first:
        while not (tmp_path / "notes").exists():
            await asyncio.sleep(0.05)
        first.send_signal(signal.SIGKILL)
        first.wait()
    with workers.one():
        await outcome(handle)
    explained = await told(client, handle)
    shown = workers.starter("explain", handle.id, "--step", "a")

    told_first = explained.items[0]
    assert (told_first.decision, told_first.cost.waited) == ("wait", 1)
    assert "(worker_lost): The worker that ran note went" in told_first.what.text
    assert told_first.why is not None and "does not count as an attempt" in told_first.why.text
    assert told_first.cost.lost > 3
    assert (shown.returncode, shown.stderr) == (0, "") and "worker_lost" in shown.stdout
