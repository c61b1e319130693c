"""The agent's end of a connection to an MCP server, which can be cut at every moment as a crash cuts it."""

import asyncio
import os
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
from mcp import Client
from mcp.client._transport import TransportStreams
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter
from pydantic_core import from_json

MAX_LINE = 64 * 2**20
HANDSHAKE_SECONDS = 120.0
CLOSE_SECONDS = 5.0


class Pipes:
    """A process and its two pipes, as a transport of the SDK's client; being ours, the pipes can be broken."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], cwd: Path, errors: Path) -> None:
        self._command, self._environment, self._cwd, self._errors = command, environment, cwd, errors
        self._process: Process | None = None
        self._calls = set[Any]()
        self._transports: Sequence[asyncio.BaseTransport] = ()
        self.breaks_at_answer = False
        """Whether the connection ends when the answer to a call was written, before the agent acts on it."""

    def kill(self) -> None:
        """Kill the process at the other end."""
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()

    def hang_up(self) -> None:
        """Close both pipes, as the death of the agent's process does."""
        for transport in self._transports:
            transport.close()

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[TransportStreams]:
        """Start the process."""
        (their_in, our_out), (our_in, their_out) = os.pipe(), os.pipe()
        try:
            with self._errors.open("ab") as errors:
                self._process = await asyncio.create_subprocess_exec(
                    *self._command, stdin=their_in, stdout=their_out, stderr=errors, env=self._environment,
                    cwd=self._cwd, start_new_session=True,
                )  # fmt: skip
        finally:
            os.close(their_in)
            os.close(their_out)
        loop = asyncio.get_running_loop()
        lines = asyncio.StreamReader(limit=MAX_LINE)
        reading, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(lines), os.fdopen(our_in, "rb", 0)
        )
        writing, _ = await loop.connect_write_pipe(asyncio.Protocol, os.fdopen(our_out, "wb", 0))
        self._transports = (writing, reading)
        to_client, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        write, from_client = anyio.create_memory_object_stream[SessionMessage](0)
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._read, lines, to_client)
                group.start_soon(self._write, from_client, writing)
                yield read, write
                group.cancel_scope.cancel()
        finally:
            self.hang_up()
            for stream in (to_client, read, write, from_client):
                stream.close()

    async def _read(self, lines: asyncio.StreamReader, to_client: Any) -> None:
        with suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            async with to_client:
                while line := await lines.readline():
                    message = from_json(line)
                    if self.breaks_at_answer and message.get("id") in self._calls and "method" not in message:
                        self.hang_up()
                        return
                    await to_client.send(
                        SessionMessage(jsonrpc_message_adapter.validate_python(message, by_name=False))
                    )

    async def _write(self, from_client: Any, writing: asyncio.WriteTransport) -> None:
        async for sent in from_client:
            message = sent.message.model_dump(mode="json", by_alias=True, exclude_unset=True)
            if message.get("method") == "tools/call":
                self._calls.add(message["id"])
            writing.write(sent.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")

    async def gone(self, seconds: float) -> None:
        """Wait for the end of the process, and kill it if it does not come."""
        if self._process is not None:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), seconds)
            self.kill()


class Connection:
    """A connected client of the SDK, in a task of its own, and the pipes under it."""

    def __init__(self, pipes: Pipes) -> None:
        self.pipes = pipes
        self._is_over = asyncio.Event()
        self._client: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._keep())

    async def _keep(self) -> None:
        # The scopes of the client nest, so that connections which end in any order need a task each.
        try:
            async with Client(self.pipes.opened()) as client:
                self._client.set_result(client)
                await self._is_over.wait()
        except Exception as error:
            if not self._client.done():
                self._client.set_exception(error)

    async def client(self) -> Client:
        """The client, once it is connected. Raises whatever kept it from that."""
        return await asyncio.shield(self._client)

    async def close(self) -> None:
        """Forget the connection, whatever is left of it."""
        self._is_over.set()
        done, _ = await asyncio.wait([self._task], timeout=CLOSE_SECONDS)
        if not done:
            self._task.cancel()
            await asyncio.wait([self._task], timeout=CLOSE_SECONDS)


async def connected(command: Sequence[str], environment: Mapping[str, str], cwd: Path, errors: Path) -> Connection:
    """The agent's way to its tools: the one place that knows what lies under the SDK's client.

    Raises:
        Exception: the process ended before it was connected.
    """
    connection = Connection(Pipes(command, environment, cwd, errors))
    try:
        async with asyncio.timeout(HANDSHAKE_SECONDS):
            await connection.client()
    except BaseException:
        connection.pipes.kill()
        await connection.close()
        raise
    return connection
