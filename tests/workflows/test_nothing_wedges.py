"""What would hold up a workflow for ever on a bare server is a typed fault, or waits for its fix and goes on."""

import asyncio
import uuid
from collections import Counter
from typing import Any

import pytest
from temporalio import workflow
from temporalio.api.enums.v1 import EventType

from replan import Refused, tool
from tests.harness import DONE, Proposals, outcome, plan, staged, step
from tests.workflows.history import events
from tests.workflows.props import Stages, echo, played
from workflows.account.outcome import Outcome
from workflows.account.progress import Progress
from workflows.account.records import StepStatus
from workflows.account.task import Task, TaskStatus
from workflows.agent import AgentWorkflow
from workflows.plans.proposal import MAX_STEPS

MEGABYTE = 1024 * 1024


async def failed_tasks(handle: Any) -> int:
    """How many workflow tasks failed."""
    types = Counter(event.event_type for event in await events(handle))
    return types[EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED] + types[EventType.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT]


async def test_an_observation_of_ten_megabytes_is_a_stale_view(stages: Stages) -> None:
    """It is refused at its boundary, and the new plan is made from what the refusal had seen."""
    look = played("look", "x" * 10 * MEGABYTE)
    taken = Refused("It is taken.", code="conflict", observed={"free": ["b"]})
    take = played("take", taken, declare=tool.idempotent(observe=look))
    script: Proposals = [plan(step("a", "take", word="a")), plan(step("b", "echo", word="b")), DONE]
    ended, handle = await stages.ended([look, take, echo], script)

    assert (ended.status, ended.replans, ended.revisions[1].looked) == (TaskStatus.COMPLETED, 1, ())
    assert await failed_tasks(handle) == 0


@pytest.mark.parametrize(
    "size", [3 * MEGABYTE, pytest.param(5 * MEGABYTE, marks=pytest.mark.full)], ids=["3 MB", "5 MB"]
)
async def test_a_result_over_the_servers_limits_is_a_typed_fault(stages: Stages, size: int) -> None:
    """On a bare server 3 MB is an error without a cause, and 5 MB looks like a timeout and is tried again."""
    produce = played("produce", "x" * size)
    ended, handle = await stages.ended([produce], [plan(step("a", "produce")), DONE])

    assert (ended.code, ended.steps[0].attempts, await failed_tasks(handle)) == ("too_large", 1, 0)


@pytest.mark.parametrize(
    ("count", "why"),
    [(MAX_STEPS + 1, f"more than {MAX_STEPS}"), pytest.param(3_000, "propose less at once", marks=pytest.mark.full)],
)
async def test_thousands_of_parallel_steps_are_refused_before_anything_is_scheduled(
    stages: Stages, count: int, why: str
) -> None:
    """2,100 pending activities fail the workflow task again and again; a plan has 50 steps at the most."""
    task = Task(text="many", plan=tuple(step(f"s{number}", "echo") for number in range(count)))
    async with stages([echo], [DONE]) as stage:
        handle = await stage.client.start_workflow(
            AgentWorkflow.run, task, id=f"many-{uuid.uuid4().hex[:8]}", task_queue=stage.queue
        )
        ended = await outcome(handle)

    assert (ended.status, ended.code, ended.steps) == (TaskStatus.FAILED, "plan_refused", ())
    assert why in ended.reason and await failed_tasks(handle) == 0


@workflow.defn(name="AgentWorkflow")
class BrokenWorkflow:
    """A deploy with a bug: it fails where the first step has finished."""

    @workflow.init
    def __init__(self, given: Task | Progress) -> None:
        """Wrap the real one."""
        self._real = AgentWorkflow(given)

    @workflow.query
    def progress(self) -> Progress:
        """As the real one."""
        return self._real.progress()

    @workflow.run
    async def run(self, given: Task | Progress) -> Outcome:
        """Run until there is a result, then meet the bug."""
        real = asyncio.create_task(self._real.run(given))
        await workflow.wait_condition(lambda: bool(self._real.progress().results) or real.done())
        raise KeyError("a bug in the deploy")


async def test_a_bug_in_the_workflow_waits_for_its_fix_and_goes_on(stages: Stages) -> None:
    """Nothing is killed: the task stands still under the broken deploy and completes under the mended one."""
    calls = list[str]()
    count = played("count", None, called=calls)
    script: Proposals = [plan(step("a", "count", word="a"), step("b", "count", "a", word="b")), DONE]
    async with stages([count], script, workflow=BrokenWorkflow) as stage:
        handle = await stage.start()
        async with asyncio.timeout(30):
            while not await failed_tasks(handle):
                await asyncio.sleep(0.1)
    async with staged(stages.client, stages.folder / "mended", [count], script, queue=stage.queue):
        ended = await outcome(handle)

    assert (ended.status, [one.status for one in ended.steps]) == (TaskStatus.COMPLETED, [StepStatus.COMPLETED] * 2)
    assert calls == ["count a", "count b"]
