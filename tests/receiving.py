"""A receiver of notifications: a web server on loopback that keeps what is posted to it."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from evals.fakes.http_server import reply


@dataclass
class Mailbox:
    url: str = ""
    posted: list[dict[str, Any]] = field(default_factory=list)
    """The JSON of each request."""
    headers: list[dict[str, str]] = field(default_factory=list)
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def types(self) -> list[str]:
        """The type and the request of each notification."""
        return [f"{one['type']} {one['data']['request']}" for one in self.posted]

    async def has(self, count: int, seconds: float = 40) -> "Mailbox":
        """Wait until so many were posted."""
        async with asyncio.timeout(seconds):
            while len(self.posted) < count:
                self._news.clear()
                await self._news.wait()
        return self

    async def _keep(self, reader: asyncio.StreamReader) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        pairs = [line.split(": ", 1) for line in head.splitlines()[1:] if line]
        headers = {name.lower(): value for name, value in pairs}
        body = await reader.readexactly(int(headers["content-length"]))
        self.headers.append(headers)
        self.posted.append(json.loads(body))
        self._news.set()


@asynccontextmanager
async def receiver(*answers: int | None, port: int = 0, location: str = "/") -> AsyncIterator[Mailbox]:
    """Run a receiver: the n-th request gets the n-th status, further ones get the last; none gets no answer."""
    mailbox, remaining = Mailbox(), list(answers or (204,))

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await mailbox._keep(reader)
        status = remaining.pop(0) if len(remaining) > 1 else remaining[0]
        if status is None:
            await reader.read()  # until the client goes away
        else:
            writer.write(reply(status, location=location))
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", port)
    async with server:
        mailbox.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook/of-the-team?token=hidden"
        yield mailbox
