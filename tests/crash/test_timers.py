"""Timers that fire while no worker lives, and a follower that asks before the next worker has caught up."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowHandle, WorkflowHistory
from temporalio.service import RPCError

from evals.chaos.tasks import replay_failures
from runtime.client import connect
from runtime.dev_server import DevServer
from tests.crash.test_crash import Workers
from tests.gate import sampled
from tests.harness import DONE, outcome, plan, step
from tests.workflows.test_agent_long import EARLY
from workflows.account.outcome import Outcome
from workflows.account.task import Task, TaskStatus
from workflows.agent import AgentWorkflow
from workflows.limits.budget import Limits
from workflows.plans.proposal import StepReturn

Handle = WorkflowHandle[AgentWorkflow, Outcome]
TIMERS = {
    "settle": (1, TaskStatus.COMPLETED),
    "store away": (1, TaskStatus.COMPLETED),
    "deadline": (1, TaskStatus.OVER_BUDGET),
    "planner away": (1, TaskStatus.COMPLETED),
}
"""What a task waits for: how many timers that starts before the worker is killed, and how the task ends."""


def _task(what: str, file: Path) -> Task:
    """A task whose only step makes it wait."""
    kind = {"settle": "lose", "store away": "wait_for_store"}.get(what, "note")
    patience = {"patience": 9} if what == "deadline" else {}
    steps = (step("one", kind, file=str(file), word=file.name, **patience),)
    limits = Limits(deadline=4) if what == "deadline" else Limits()
    return Task(text=what, plan=steps, plan_only=True, limits=limits)


async def _count(handle: Handle, kind: EventType.ValueType) -> int:
    return [event.event_type for event in (await handle.fetch_history()).events].count(kind)


async def _reached(handles: Sequence[Handle], kind: EventType.ValueType, times: int) -> None:
    """Wait until each history holds so many events of a kind."""
    for handle in handles:
        while await _count(handle, kind) < times:
            await asyncio.sleep(0.1)


@asynccontextmanager
async def _followed(handles: Sequence[Handle]) -> AsyncIterator[None]:
    """A follower of each task, whose query is open whenever there is nobody to answer it."""

    async def follow(handle: Handle) -> None:
        while True:
            with suppress(RPCError):
                await handle.query(AgentWorkflow.progress, rpc_timeout=timedelta(seconds=20))
            await asyncio.sleep(0.05)

    followers = [asyncio.create_task(follow(handle)) for handle in handles]
    try:
        yield
    finally:
        for one in followers:
            one.cancel()
        await asyncio.gather(*followers, return_exceptions=True)


async def _histories(handles: Sequence[Handle]) -> AsyncIterator[WorkflowHistory]:
    for one in handles:
        yield await one.fetch_history()


@pytest.mark.parametrize("times", [6, pytest.param(30, marks=pytest.mark.full)])
@pytest.mark.parametrize("what", sampled({what: [what] for what in TIMERS}, "store away"))
@pytest.mark.timeout(240)
async def test_a_timer_that_fires_with_nobody_there_is_replayed_alike(
    client: Client, server: DevServer, tmp_path: Path, what: str, times: int
) -> None:
    """The worker is killed during the timer, a query waits for the next one: the task ends, and its history replays."""
    workers, timers, ending = Workers(server.address, tmp_path, [DONE]), *TIMERS[what]
    with workers.one(*(["--dev", "--break", "plan=circuit_open"] if what == "planner away" else [])) as first:
        handles = [
            await client.start_workflow(
                AgentWorkflow.run,
                _task(what, tmp_path / f"word{number}"),
                id=f"timer-{uuid.uuid4().hex[:12]}",
                task_queue=workers.queue,
            )
            for number in range(times)
        ]
        await _reached(handles, EventType.EVENT_TYPE_TIMER_STARTED, timers)
        await _reached(handles, EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED, 1)
        first.kill()
    async with _followed(handles):
        await _reached(handles, EventType.EVENT_TYPE_TIMER_FIRED, timers)
        with workers.one():
            ended = [await asyncio.wait_for(outcome(handle), 100) for handle in handles]

    assert [one.status for one in ended] == [ending] * times
    assert await replay_failures(_histories(handles)) == []


@pytest.mark.full
@pytest.mark.timeout(240)
@pytest.mark.parametrize("own_server", [EARLY], indirect=True)
async def test_a_suggestion_of_a_new_run_is_replayed_alike(own_server: DevServer, tmp_path: Path) -> None:
    """The server suggests continue-as-new at a workflow task of which a query has told the next worker already."""
    client = await connect(address=own_server.address, plain=True)
    workers = Workers(own_server.address, tmp_path, [plan(step("one", "hang", word="x")), DONE, DONE])
    with workers.one() as first:
        handles = [
            await client.start_workflow(
                AgentWorkflow.run, Task(text="a task"), id=f"early-{number}", task_queue=workers.queue
            )
            for number in range(10)
        ]
        runs: list[Handle] = [client.get_workflow_handle(one.id, run_id=one.first_execution_run_id) for one in handles]
        await _reached(runs, EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED, 2)
        first.kill()
    async with _followed(runs):
        await asyncio.sleep(2)
        for run in handles:  # as a second worker would, whose workflow tasks all went to the first
            await client.get_async_activity_handle(
                workflow_id=run.id, run_id=run.first_execution_run_id, activity_id="one"
            ).complete(StepReturn(result={"calls": 1}))
        with workers.one():
            ended = [await asyncio.wait_for(outcome(handle), 100) for handle in handles]

    assert [one.status for one in ended] == [TaskStatus.COMPLETED] * len(handles)
    assert await replay_failures(_histories(runs)) == []
