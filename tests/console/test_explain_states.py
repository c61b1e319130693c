"""`explain` of tasks on a real server that still run, that were ended from outside, or whose worker crashed."""

import asyncio
import json
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
from tests.processes import Processes
from tests.record import Said, Word, tools
from tests.workflows.history import until
from workflows.account.records import StepStatus
from workflows.account.task import Task
from workflows.agent import AgentWorkflow
from workflows.plans.proposal import GiveUp


async def told(client: Client, handle: Handle) -> Explanation:
    return explanation.explain_task(await fetch.fetch_history(client, handle, journal=True))


def said(explained: Explanation) -> list[str]:
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
    """It was asked, and nobody has begun; to stop, and nobody has acted on it yet; then it was ended from outside.

    With the reason that was given, as data. So is one that the server timed out.
    """
    handle, limited = await start_alone(client), await start_alone(client, execution_timeout=timedelta(seconds=1))
    lines = said(await told(client, handle))
    await handle.cancel()
    cancelled = await told(client, handle)
    await handle.terminate(reason="no longer\x1b[31m needed")
    item = (await told(client, handle)).items[0]
    async with asyncio.timeout(20):
        while (timed_out := await told(client, limited)).status == "running":
            await asyncio.sleep(0.1)

    assert lines[0].startswith(f"{handle.id} is running: no plan in force, 0 tool calls. No faults. Started 20")
    assert "Now  No worker has taken the task up yet.  [event 2]" in lines
    assert "The task was asked to stop." in [one.text for one in cancelled.now]
    ended = "The task was terminated from outside, so it could neither clean up nor write an outcome "
    assert (item.decision, item.what.text) == ("end", f"{ended}(no longer [31m needed.).")
    assert (timed_out.status, timed_out.items[0].decision) == ("failed", "end")


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


EVERYTHING: Proposals = [
    plan(step("a", "pick", word="taken"), step("b", "flaky", word="hello"), step("c", "say", "a", word="later")),
    plan(step("a-2", "prick", word="free")),
    plan(step("a-2", "pick", word="free"), step("d", "down", word="wide"), because="free is free"),
    plan(step("e", "broken", "d", word="x")),
]
"""A replan and a retry; a rejected proposal; a fallback; an escalation."""


FIVE = ["replan", "retry", "send_back", "fallback", "escalate"]


async def test_the_command_tells_of_a_run_with_all_five(server: DevServer, client: Client, tmp_path: Path) -> None:
    """In order, without any worker; 0 when explained, whatever became of the task; 2 for what is not there.

    With --json one document: the items, the differences of the plans, what was kept and changed, what it cost.
    """
    async with staged(client, tmp_path, tools(), EVERYTHING) as stage:
        handle = await stage.start("say everything")
        ended = await outcome(handle)
    explain = Processes(server.address, tmp_path).starter
    whole, step, unknown = (explain("explain", handle.id, *more) for more in ([], ["--step", "d"], ["--step", "dd"]))
    document = json.loads(explain("explain", handle.id, "--json").stdout)
    items = {(step, item["decision"]) for item in document["items"] for step in item["steps"]}
    recorded = {(fault.step_id, fault.decision) for fault in ended.faults}

    assert [done.returncode for done in (whole, step, unknown)] == [0, 0, 2]
    assert "escalated after" in whole.stdout and "3 plans, 3 of 6 steps finished" in whole.stdout
    assert "d (down, then say) of " in step.stdout
    assert "has no step 'dd': did you mean d? It has a, b, c, a-2, d and e." in unknown.stderr
    assert (document["schema"], document["task_id"], document["status"]) == (1, handle.id, "escalated")
    assert [item["decision"] for item in document["items"]] == FIVE
    assert {one for one in items if one[1] != "send_back"} == recorded - {("d", "retry")}
    assert {"what", "why", "decision", "cost", "events"} <= document["items"][0].keys()
    assert [item["cost"]["waited"] > 0 for item in document["items"]] == [False, True, False, True, False]
    assert (document["kept"], [one["step_id"] for one in document["changed"]]) == ({"1": ["b"]}, ["a-2"])
