"""The event loop of tools: what one tool does there does not hold up the others."""

import asyncio
import threading

from activities.boundary.tool_loop import ToolLoop


async def test_names_are_looked_up_while_all_threads_of_the_loop_are_busy() -> None:
    """Tools use `asyncio.to_thread` for slow work; the HTTP clients of other tools look up names meanwhile."""
    done = threading.Event()

    async def look_up() -> int:
        loop = asyncio.get_running_loop()
        others = [loop.run_in_executor(None, done.wait) for _ in range(40)]  # more than the loop has threads
        try:
            async with asyncio.timeout(20):
                return len(await loop.getaddrinfo("localhost", 80))
        finally:
            done.set()
            await asyncio.gather(*others)

    async with ToolLoop() as loop:
        found = await loop.run(look_up)

    assert found > 0
