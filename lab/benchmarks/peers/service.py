"""The service whose steps are measured: it says when, fails where it is told to, and kills its caller once."""

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
UNAVAILABLE = OK.replace(b"200 OK", b"503 Service Unavailable")


@dataclass
class Service:
    """What one run asked for; times are monotonic seconds."""

    fails: int = 0
    """How often the first step is answered with 503."""
    kill_at: int = 0
    """The step after which the caller is killed, once; 0 for never."""
    look: Callable[[], None] = lambda: None
    """Called before the work begins and after it has ended, outside of what is timed."""
    port: int = 0
    begun: float = 0.0
    first: float = 0.0
    ended: float = 0.0
    killed: float = 0.0
    steps: Counter[str] = field(default_factory=Counter)
    """How often each step was made."""
    _caller: int = 0

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Answer until the block ends."""
        server = await asyncio.start_server(self._answer, "127.0.0.1", 0, backlog=1024)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield
        finally:
            server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            if answer := self._said(head.split(b" ", 2)[1].decode().strip("/")):
                writer.write(answer)
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass  # the caller is gone
        finally:
            writer.close()

    def _said(self, path: str) -> bytes:
        match path.split("/"):
            case ["begin", pid]:
                self._caller = int(pid)
                if not self.begun:
                    self.look()
                    self.begun = time.monotonic()
            case ["end"]:
                self.ended = time.monotonic()
                self.look()
            case ["step", *which]:
                return self._step("/".join(which))
        return OK

    def _step(self, which: str) -> bytes:
        now = time.monotonic()
        self.first = self.first or now
        if self.fails:
            self.fails -= 1
            return UNAVAILABLE
        self.steps.update([which])
        if self.kill_at and len(self.steps) >= self.kill_at and self._caller:
            self.kill_at, self.killed = 0, now
            with suppress(ProcessLookupError):
                os.kill(self._caller, signal.SIGKILL)
            return b""
        return OK
