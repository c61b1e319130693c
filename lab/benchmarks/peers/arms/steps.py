"""What every arm shares: the work to do, and a step of it, which is a request to a service. It needs Python alone."""

import asyncio
import os
from collections.abc import Iterator

PORT, FOLDER, RUN = int(os.environ["PORT"]), os.environ["FOLDER"], os.environ["RUN"]
"""Where the service is, where an arm keeps what it needs after a crash, and a name for what it starts."""
SHAPE, SIZE, TASKS = os.environ["SHAPE"], int(os.environ["SIZE"]), int(os.environ["TASKS"])
"""`chain` or `fan`, the steps of a task, and how many tasks run at once."""


class Unavailable(Exception):
    """The service answers 503: it may do so a moment later."""


def tasks() -> Iterator[str]:
    """The names of the tasks."""
    for number in range(TASKS):
        yield f"{RUN}-{number}"


async def step(task: str, number: int) -> int:
    """One step: a request to the service. Raises Unavailable."""
    await _ask(f"step/{task}/{number}")
    return number


async def begin(pid: int = 0) -> None:
    """The work begins now: all is imported, open and connected. The service may kill this process, or the one named."""
    await _ask(f"begin/{pid or os.getpid()}")


async def end() -> None:
    """All of the work is done."""
    await _ask("end")


async def _ask(path: str) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", PORT)
    try:
        writer.write(
            f"POST /{path} HTTP/1.1\r\nHost: service\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode()
        )
        answer = await reader.read()
    finally:
        writer.close()
    if b" 200 " not in answer[:20]:
        raise Unavailable("503: the service is not available")
