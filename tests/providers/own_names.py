"""The providers' own names, with TLS, in front of servers on loopback: what is active only there can be tested."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from evals.fakes.model_api import ModelApi

PEM = Path(__file__).with_name("model_apis.pem")
"""The certificate of the providers' names, with its key."""
WITHOUT_PROXY = ("NO_PROXY", "no_proxy", "ALL_PROXY", "all_proxy")


@asynccontextmanager
async def own_names(**apis: ModelApi) -> AsyncIterator[Mapping[str, str]]:
    """A proxy that answers for `api.openai.com` (`openai=`) and `api.anthropic.com` (`anthropic=`), as servers do.

    Yields the variables that lead a process there; the servers must be running.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(PEM)
    ports = {f"api.{name}.com:443": int(api.url.rpartition(":")[2]) for name, api in apis.items()}

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            host = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode()
            if host not in ports:
                writer.write(b"HTTP/1.1 502 Bad Gateway\r\n\r\n")
                return
            writer.write(b"HTTP/1.1 200 Connected\r\n\r\n")
            await writer.start_tls(context)
            there_reader, there = await asyncio.open_connection("127.0.0.1", ports[host])
            tasks = [asyncio.create_task(copy(reader, there)), asyncio.create_task(copy(there_reader, writer))]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()
            there.close()
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        proxy = dict.fromkeys(("HTTPS_PROXY", "https_proxy"), f"http://127.0.0.1:{port}")
        yield {**proxy, "SSL_CERT_FILE": str(PEM), **dict.fromkeys(WITHOUT_PROXY, "")}


async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    """Hand on all bytes."""
    with suppress(ConnectionError, ssl.SSLError):
        while part := await source.read(2**16):
            target.write(part)
            await target.drain()
