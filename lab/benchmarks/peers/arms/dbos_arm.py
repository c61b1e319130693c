"""DBOS on SQLite, in WAL mode as everything here is: a workflow of steps that are retried."""

import asyncio

import steps
from dbos import DBOS, SetWorkflowID
from sqlalchemy import create_engine, event

engine = create_engine(f"sqlite:///{steps.FOLDER}/dbos.db")


@event.listens_for(engine, "connect")
def options(connection, record):
    """What DBOS sets itself, and WAL."""
    connection.isolation_level = "IMMEDIATE"
    for option in ("busy_timeout=30000", "foreign_keys=ON", "journal_mode=WAL", "synchronous=FULL"):
        connection.execute(f"PRAGMA {option}")


DBOS(
    config={
        "name": "peers",
        "system_database_url": f"sqlite:///{steps.FOLDER}/dbos.db",
        "system_database_engine": engine,
        "log_level": "ERROR",
    }
)


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


async def run(task: str) -> None:
    with SetWorkflowID(task):
        handle = await DBOS.start_workflow_async(work, task)
    await handle.get_result(polling_interval_sec=0.05)  # it polls after a restart


async def main() -> None:
    DBOS.launch()
    await steps.begin()
    await asyncio.gather(*map(run, steps.tasks()))
    await steps.end()


asyncio.run(main())
