"""The connections between the workers and the server, which can be cut."""

import asyncio
import socket
import struct
from contextlib import suppress
from types import TracebackType

CHUNK = 64 * 1024
LOOK_SECONDS = 0.05
AT_ONCE = struct.pack("ii", 1, 0)
"""SO_LINGER that makes a close a reset."""


class Proxy:
    """Passes every byte on between its own port on loopback and the server's, inside `async with`."""

    def __init__(self, port: int, target: int) -> None:
        """Listen on `port`; connect to `target` for each connection."""
        self.port = port
        self._target = target
        self._listening: asyncio.Server | None = None
        self._open = set[asyncio.StreamWriter]()
        self.cut = 0
        """How many connections were cut so far."""

    @property
    def address(self) -> str:
        """What workers connect to."""
        return f"127.0.0.1:{self.port}"

    async def __aenter__(self) -> "Proxy":
        await self._listen()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._refuse()

    async def used(self) -> None:
        """Wait until there is a connection."""
        while not self._open:  # noqa: ASYNC110  # of the workers' own accord
            await asyncio.sleep(LOOK_SECONDS)

    async def drop(self, seconds: float) -> int:
        """Cut every connection and refuse new ones for a while; how many were cut."""
        cut = self._refuse()
        await asyncio.sleep(seconds)
        await self._listen()
        return cut

    async def _listen(self) -> None:
        self._listening = await asyncio.start_server(self._join, "127.0.0.1", self.port)

    def _refuse(self) -> int:
        if self._listening:
            self._listening.close()
        open, self._open = self._open, set()
        for writer in open:
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
            writer.transport.abort()
        self.cut += len(open) // 2
        return len(open) // 2

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:  # the server is down
            writer.transport.abort()
            return
        self._open |= {writer, back}
        await asyncio.gather(_pass_on(reader, back), _pass_on(there, writer))
        self._open -= {writer, back}


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy until one side ends, then end the other."""
    with suppress(OSError):
        while part := await reader.read(CHUNK):
            writer.write(part)
            await writer.drain()
    writer.close()
