"""`python -m tests.containers.crowd NAME COUNT`: start tasks with two effects each, and print how they end."""

import asyncio
import json
import sys

from runtime.client import connect
from runtime.settings import DEFAULT_QUEUE
from tests.harness import outcome, plan, step
from workflows.account.task import Task
from workflows.agent import AgentWorkflow


async def main(name: str, count: int) -> None:
    """Print a JSON object: task id to status."""
    client = await connect()
    handles = []
    for number in range(count):
        word = f"{name}-{number}"
        steps = plan(step("first", "enter", word=word), step("second", "enter", "first", word=f"{word}-again"))
        task = Task(text="enter two words", plan=steps.steps, plan_only=True)
        handles.append(await client.start_workflow(AgentWorkflow.run, task, id=word, task_queue=DEFAULT_QUEUE))
    ended = await asyncio.gather(*map(outcome, handles))
    print(json.dumps({handle.id: one.status for handle, one in zip(handles, ended, strict=True)}))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
