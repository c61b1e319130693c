"""replan.effects under the function: a loop that is run again from its start; what was done is not called."""

import asyncio

import steps

from replan.effects import Effects

effects = Effects(f"sqlite:///{steps.FOLDER}/effects.db", session=steps.RUN)


@effects.idempotent
async def act(task: str, number: int) -> int:
    return await steps.step(task, number)


async def one(task: str, number: int) -> None:
    with effects.scope(key=f"{task}-{number}"):
        await act(task, number)


async def run(task: str) -> None:
    if steps.SHAPE == "fan":
        await asyncio.gather(*(one(task, number) for number in range(steps.SIZE)))
    else:
        for number in range(steps.SIZE):
            await one(task, number)


async def main() -> None:
    effects.open()
    await steps.begin()
    await asyncio.gather(*map(run, steps.tasks()))
    await steps.end()


asyncio.run(main())
