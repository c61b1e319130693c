"""The worker of the recipe for Temporal: `temporal_program.py ADDRESS QUEUE`."""

import asyncio
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import with_temporal
from temporalio import workflow
from temporalio.client import Client
from temporalio.common import RetryPolicy
from temporalio.worker import UnsandboxedWorkflowRunner, Worker


@workflow.defn(name="Order")
class Order:
    """Mails three times."""

    @workflow.run
    async def run(self) -> list[str]:
        """Mail one after the other."""
        times = {
            "start_to_close_timeout": timedelta(seconds=2),
            "retry_policy": RetryPolicy(initial_interval=timedelta(milliseconds=100)),
        }
        return [
            await workflow.execute_activity("send_mail", args=[to, "receipt"], result_type=str, **times)
            for to in ("ann", "bob", "cid")
        ]


async def main():
    client = await Client.connect(sys.argv[1])
    runner = UnsandboxedWorkflowRunner()
    async with Worker(
        client,
        task_queue=sys.argv[2],
        workflows=[Order],
        activities=[with_temporal.send_mail],
        activity_executor=ThreadPoolExecutor(2),
        workflow_runner=runner,
    ):
        await asyncio.Event().wait()


asyncio.run(main())
