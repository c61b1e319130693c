"""The Temporal server of a trial: a real one on its file, which is killed and started again."""

import asyncio
import os
import signal
from pathlib import Path
from types import TracebackType

from runtime.dev_server import DevServer, ServerSpec, find_cli, free_port
from workflows import attributes

AWAY_SECONDS = 1.0


class Server:
    """Up inside `async with`; the same ports and the same file after each restart."""

    def __init__(self, folder: Path, port: int) -> None:
        """Keep the database in `folder`."""
        self.port = port
        self._spec = ServerSpec(folder, "127.0.0.1", port, free_port(), attributes=attributes.TYPES)
        self._running: DevServer | None = None
        self.restarts = 0

    @property
    def address(self) -> str:
        """For clients that no proxy stands before."""
        return self._spec.address

    async def __aenter__(self) -> "Server":
        self._running = DevServer(self._spec, await find_cli(lambda _: None))
        await self._running.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._running:
            await self._running.stop()

    async def restart(self) -> None:
        """SIGKILL, a moment without a server, and a new one on the same file."""
        if self._running and self._running.pid:
            os.kill(self._running.pid, signal.SIGKILL)
            await asyncio.sleep(AWAY_SECONDS)
            await self._running.start()
            self.restarts += 1
