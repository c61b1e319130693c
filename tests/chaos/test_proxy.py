"""The proxy between workers and server: it passes everything on, and cuts what it is told to cut."""

import asyncio

import pytest

from evals.chaos.stage import Proxy
from runtime.dev_server import free_port


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while part := await reader.read(1000):
        writer.write(part)
    writer.close()


async def test_what_is_sent_comes_through_until_it_is_cut() -> None:
    """A connection that is dropped is reset, none is accepted for a while, and then all is as before."""
    there = await asyncio.start_server(echo, "127.0.0.1", port := free_port())
    async with there, Proxy(free_port(), port) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"before")
        before = await reader.readexactly(6)
        dropping = asyncio.create_task(proxy.drop(0.3))
        with pytest.raises(ConnectionError):
            await reader.readexactly(1)
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", proxy.port)
        cut = await dropping
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"after")
        after = await reader.readexactly(5)
        writer.close()

    assert (before, cut, after) == (b"before", 1, b"after")
