"""A web server on loopback that sends prepared answers, byte for byte."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

SILENCE = None
"""An answer for `serving`: the server reads the request and sends nothing."""


def reply(status: int, body: bytes = b"", **headers: str) -> bytes:
    """A complete HTTP answer. Each keyword is a header: `retry_after=` writes the header `retry-after`."""
    sent = {"content-length": str(len(body)), "connection": "close", **headers}
    lines = [f"HTTP/1.1 {status} Whatever", *(f"{name.replace('_', '-')}: {value}" for name, value in sent.items())]
    return "\r\n".join([*lines, "", ""]).encode() + body


@asynccontextmanager
async def serving(*answers: bytes | None) -> AsyncIterator[str]:
    """Run a server: the n-th request gets the n-th answer, further requests get the final answer. Yields its URL."""
    remaining = list(answers)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        answer = remaining.pop(0) if len(remaining) > 1 else remaining[0]
        if answer is SILENCE:
            await reader.read()  # until the client goes away
        else:
            writer.write(answer)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@dataclass
class Visits:
    """The address of a server of `streaming`, and what it has received and sent so far."""

    url: str
    requests: list[bytes] = field(default_factory=list)
    """The head (request line and headers) of each request."""
    sent: int = 0
    """How many bytes of answers were sent to clients."""

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])


@asynccontextmanager
async def streaming(
    answer: Callable[[bytes], AsyncIterator[bytes]], tls: ssl.SSLContext | None = None
) -> AsyncIterator[Visits]:
    """Run a server that answers a request with what `answer` yields for the request's head, until the client leaves."""
    visits = Visits("")

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, ssl.SSLError):
            visits.requests.append(await reader.readuntil(b"\r\n\r\n"))
            async for part in answer(visits.requests[-1]):
                writer.write(part)
                await writer.drain()
                visits.sent += len(part)
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0, ssl=tls)
    async with server:
        visits.url = f"{'https' if tls else 'http'}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield visits


async def endlessly(head: bytes, part: bytes, pause: float = 0.0) -> AsyncIterator[bytes]:
    """Yield `head`, then `part` without end, with `pause` seconds after each part."""
    yield head
    while True:
        yield part
        await asyncio.sleep(pause)
