"""Bare Temporal: a loop over activities, with the retries of the SDK and the worker options that Replan sets."""

import asyncio
import os
from datetime import timedelta

import steps
from temporalio import activity, workflow
from temporalio.client import Client, WorkflowHandle
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.worker import Worker


@activity.defn
async def act(task: str, number: int) -> int:
    return await steps.step(task, number)


@workflow.defn(sandboxed=False)
class Work:
    @workflow.run
    async def run(self, task: str) -> None:
        def one(number: int):
            return workflow.execute_activity(act, args=[task, number], start_to_close_timeout=timedelta(seconds=10))

        if steps.SHAPE == "fan":
            await asyncio.gather(*map(one, range(steps.SIZE)))
        else:
            for number in range(steps.SIZE):
                await one(number)


async def main() -> None:
    client = await Client.connect(os.environ["TEMPORAL_ADDRESS"])

    async def started(task: str) -> WorkflowHandle:
        try:
            return await client.start_workflow(
                Work.run,
                task,
                id=task,
                task_queue=steps.RUN,
                id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
                id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
            )
        except WorkflowAlreadyStartedError:
            return client.get_workflow_handle(task)

    async with Worker(
        client,
        task_queue=steps.RUN,
        workflows=[Work],
        activities=[act],
        max_eager_activity_reservations_per_workflow_task=20,
        sticky_queue_schedule_to_start_timeout=timedelta(seconds=2),
    ):
        await steps.begin()
        handles = await asyncio.gather(*map(started, steps.tasks()))
        await asyncio.gather(*(handle.result() for handle in handles))
        await steps.end()


asyncio.run(main())
