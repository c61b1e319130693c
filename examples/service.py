"""A service of its own: it takes orders over HTTP, lets Replan work on each, and decides itself what may be booked.

`python examples/service.py 8080`, then `curl -d "book a slot for the team at 14:30" localhost:8080`.
"""

import asyncio
import json
import sys

from replan import Client
from replan.events import Ended, PersonAsked

ALLOWED = {"book_slot"}


async def work(replan: Client, order: str) -> dict[str, object]:
    """Start a task, answer its requests, and return how it ended."""
    task = await replan.start(order, on_escalation="wait", approve="effects")
    async for event in task.follow():
        match event:
            case PersonAsked(request) if request.call and request.call.kind in ALLOWED:
                await task.answer("approve", request=request, by="the order service")
            case PersonAsked(request):
                why = "The order service cannot decide that."
                await task.answer("abort", request=request, by="the order service", reason=why)
            case Ended(outcome):
                return {"task": task.id, "status": outcome.status, "result": outcome.result, "reason": outcome.reason}
    raise AssertionError("a task that is followed ends")


async def serve(port: int) -> None:
    """Answer each request when its task has ended."""
    replan = await Client.connect()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        order = await reader.readexactly(int(head.partition("content-length:")[2].split()[0]))
        body = json.dumps(await work(replan, order.decode())).encode()
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(handle, "127.0.0.1", port) as server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
