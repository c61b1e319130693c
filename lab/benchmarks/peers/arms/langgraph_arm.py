"""LangGraph's functional API with a checkpointer on SQLite: an entrypoint of tasks that are retried."""

import asyncio

import steps
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.func import entrypoint, task as task_of
from langgraph.types import RetryPolicy


@task_of(retry_policy=RetryPolicy(retry_on=steps.Unavailable))
async def act(task: str, number: int) -> int:
    return await steps.step(task, number)


async def main() -> None:
    async with AsyncSqliteSaver.from_conn_string(f"{steps.FOLDER}/checkpoints.db") as saver:

        @entrypoint(checkpointer=saver)
        async def work(task: str) -> int:
            if steps.SHAPE == "fan":
                await asyncio.gather(*(act(task, number) for number in range(steps.SIZE)))
            else:
                for number in range(steps.SIZE):
                    await act(task, number)
            return steps.SIZE

        async def run(task: str) -> None:
            thread = {"configurable": {"thread_id": task}}
            is_begun = (await work.aget_state(thread)).next
            await work.ainvoke(None if is_begun else task, thread, durability="sync")

        await steps.begin()
        await asyncio.gather(*map(run, steps.tasks()))
        await steps.end()


asyncio.run(main())
