"""A web server on this machine that answers what a test prepared, byte for byte."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

SILENCE = None
"""The answer of a server that takes the request and never says a word."""


def reply(status: int, body: bytes = b"", **headers: str) -> bytes:
    """A whole HTTP answer; `retry_after` means the header `retry-after`."""
    given = {"content-length": str(len(body)), "connection": "close", **headers}
    lines = [f"HTTP/1.1 {status} Whatever", *(f"{name.replace('_', '-')}: {value}" for name, value in given.items())]
    return "\r\n".join([*lines, "", ""]).encode() + body


@asynccontextmanager
async def serving(*answers: bytes | None) -> AsyncIterator[str]:
    """Serve the n-th answer to the n-th request, the last one again and again; yields the server's URL."""
    left = list(answers)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        said = left.pop(0) if len(left) > 1 else left[0]
        if said is SILENCE:
            await reader.read()  # until the client has had enough
        else:
            writer.write(said)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
