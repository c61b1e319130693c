"""agent-once under the function: a loop that is run again from its start; what was done is not called."""

import asyncio

import steps
from once import NOT_HAPPENED, EffectPending, Once

once = Once(f"{steps.FOLDER}/once.db", stale_after=1)


@once.tool(verify=lambda key, args: NOT_HAPPENED)  # a step may be made again
async def act(task: str, number: int) -> int:
    return await steps.step(task, number)


async def one(task: str, number: int) -> None:
    while True:
        try:
            await act(task, number)
            return
        except EffectPending:  # the call of a process that was killed, until it is stale
            await asyncio.sleep(0.05)


async def run(task: str) -> None:
    if steps.SHAPE == "fan":
        await asyncio.gather(*(one(task, number) for number in range(steps.SIZE)))
    else:
        for number in range(steps.SIZE):
            await one(task, number)


async def main() -> None:
    await steps.begin()
    await asyncio.gather(*map(run, steps.tasks()))
    await steps.end()


asyncio.run(main())
