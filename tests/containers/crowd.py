"""`python -m tests.containers.crowd NAME COUNT`: start tasks with two effects each, and print how they end."""

import asyncio
import json
import sys
from contextlib import suppress

from temporalio.client import Client
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError

from runtime.client import connect
from runtime.process import leave
from runtime.settings import DEFAULT_QUEUE
from tests.harness import outcome, plan, step
from workflows.account.outcome import Outcome
from workflows.account.task import Task
from workflows.agent import AgentWorkflow


async def main(name: str, count: int) -> None:
    client = await connect()
    tasks = []
    for number in range(count):
        word = f"{name}-{number}"
        steps = plan(step("first", "enter", word=word), step("second", "enter", "first", word=f"{word}-again"))
        task = Task(text="enter two words", plan=steps.steps, plan_only=True)
        tasks.append((word, asyncio.create_task(ended(client, word, task))))
    print(json.dumps({word: (await one).status for word, one in tasks}))


async def ended(client: Client, id: str, task: Task) -> Outcome:
    """The outcome of a task, which is started unless it was, however often the server goes away meanwhile."""
    while True:
        try:
            with suppress(WorkflowAlreadyStartedError):
                # Rejected also when it ended while the server was away: another run would be another task.
                policy = WorkflowIDReusePolicy.REJECT_DUPLICATE
                await client.start_workflow(
                    AgentWorkflow.run, task, id=id, task_queue=DEFAULT_QUEUE, id_reuse_policy=policy
                )
            return await outcome(client.get_workflow_handle_for(AgentWorkflow.run, id))
        except RPCError:
            await asyncio.sleep(1)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
    leave(0)
