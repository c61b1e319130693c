"""DBOS on SQLite: a workflow of steps that are retried."""

import asyncio

import steps
from dbos import DBOS, SetWorkflowID

DBOS(config={"name": "peers", "system_database_url": f"sqlite:///{steps.FOLDER}/dbos.db", "log_level": "ERROR"})


@DBOS.step(retries_allowed=True)
async def act(task: str, number: int) -> int:
    return await steps.step(task, number)


@DBOS.workflow()
async def work(task: str) -> None:
    if steps.SHAPE == "fan":
        await asyncio.gather(*(act(task, number) for number in range(steps.SIZE)))
    else:
        for number in range(steps.SIZE):
            await act(task, number)


async def main() -> None:
    DBOS.launch()
    await steps.begin()
    handles = []
    for task in steps.tasks():
        with SetWorkflowID(task):
            handles.append(await DBOS.start_workflow_async(work, task))
    await asyncio.gather(*(handle.get_result() for handle in handles))
    await steps.end()


asyncio.run(main())
