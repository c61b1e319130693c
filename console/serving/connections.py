"""Limits of connections: how many there are, and how long a client may keep the server waiting.

A connection costs a file descriptor, even without a request, and before any token is checked. So a connection on which
the server waits for its client (for a request, for the rest of it, or for a response to be read) is ended after a
while, and at once if another client needs the place. Clients are not distinguished by address, since all clients of a
proxy have the same address.
"""

import asyncio
import logging
import secrets
import socket
from collections.abc import Callable
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from client.problem import Problem
from console.serving.problems import MEDIA_TYPE, body_of
from runtime.process import raise_file_limit

MOST = 2_000
"""The most connections, unless the limit of open files allows fewer."""
LEAST = 16
"""With fewer connections than this, the server does not start."""
ACCEPTED_AT_ONCE = 32
"""Connections that asyncio accepts before this module sees the first of them."""
REFUSED_AT_ONCE = 16
"""Clients that can get a 503 for lack of a place at the same time; further clients are cut off without a response."""
FILES = 48 + ACCEPTED_AT_ONCE + REFUSED_AT_ONCE
"""File descriptors for everything but accepted connections, including connections that are being refused."""
MAX_HEAD = 16 * 1024
"""The most bytes of a request's first line and headers; a longer head is answered with 400."""
PATIENCE_SECONDS = 30.0
RETRY_SECONDS = 5
"""Seconds after which a refused client may come back."""
FULL = "All connections are in use"

log = logging.getLogger("uvicorn.error")


def most_connections() -> int:
    """Raise this process's limit of open files as far as needed and allowed; return how many connections that allows.

    Raises:
        Problem: the limit allows fewer than LEAST connections.
    """
    files = raise_file_limit(MOST + FILES)
    if files < LEAST + FILES:
        reason = f"This process may open {files} files, and `serve` needs {LEAST + FILES}"
        raise Problem("misconfigured", reason, "raise the limit, for example with `ulimit -n 1024`")
    return min(MOST, files - FILES)


class Connections:
    """The connections of a server."""

    def __init__(self, most: int, patience: float = PATIENCE_SECONDS) -> None:
        """`most` is the limit of connections, `patience` how many seconds in a row the server waits for a client."""
        self._most, self._patience = most, patience
        self._open = set["Connection"]()
        self._waiting = dict["Connection", float]()
        """Since when (time of the loop) the server waits for the client of a connection; the longest wait first."""
        self.refusals = 0
        """How many clients are being refused."""
        self._timer: asyncio.TimerHandle | None = None

    def protocol(self, **options: Any) -> asyncio.Protocol:
        """Make the protocol of a connection that was just accepted; uvicorn calls this method as its setting `http`.

        Without a free place, the connection that waits longest for its client is ended; if none waits, the new
        connection is refused.
        """
        if len(self._open) >= self._most:
            log.warning(FULL)
            if not self._waiting:
                return _Refusal(self)
            self._end(next(iter(self._waiting)))
        connection = Connection(self, **options)
        self._open.add(connection)
        return connection

    def note(self, connection: "Connection") -> None:
        """Update the record of whether the server waits for the client of this connection, and since when."""
        if connection not in self._open:
            return
        if not connection.waits_for_client:
            self._waiting.pop(connection, None)
        elif connection not in self._waiting:
            self._waiting[connection] = asyncio.get_running_loop().time()
            self._timer = self._timer or self._start_timer(self._waiting[connection] + self._patience)

    def forget(self, connection: "Connection") -> None:
        self._open.discard(connection)
        self._waiting.pop(connection, None)

    def _end(self, connection: "Connection") -> None:
        self.forget(connection)
        if connection.transport is not None:
            connection.transport.abort()  # a close would wait until the client reads what was written

    def _start_timer(self, moment: float) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_at(moment, self._end_expired)

    def _end_expired(self) -> None:
        now, self._timer = asyncio.get_running_loop().time(), None
        while self._waiting:
            connection, since = next(iter(self._waiting.items()))
            if since + self._patience > now:
                self._timer = self._start_timer(since + self._patience)
                return
            self._end(connection)


class Connection(H11Protocol):
    """A connection that knows whether the server waits for the client; each request's state has it as `connection`."""

    def __init__(self, connections: Connections, **options: Any) -> None:
        super().__init__(**options)
        self._connections = connections
        self.app_state = {**self.app_state, "connection": self}
        self.id = secrets.token_hex(8)
        """A random id, unique also after a restart."""
        self.is_lost = False
        self.on_lost = list[Callable[[], None]]()
        """What is called when the connection is lost."""

    async def taken(self) -> bool:
        """Wait until the operating system has all written bytes; False if the connection was lost before that."""
        self.transport.set_write_buffer_limits(0)  # else a rest may wait in this process unnoticed
        had_to_wait = self.flow.write_paused
        await self.flow.drain()
        return not (had_to_wait and self.is_lost)

    @property
    def waits_for_client(self) -> bool:
        """Whether the connection makes no progress until the client sends or reads something."""
        cycle = self.cycle
        return cycle is None or cycle.response_complete or cycle.more_body or self.flow.write_paused

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        # asyncio does so only for sockets that name their protocol: a response in several parts waits 40 ms without it.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connections.note(self)

    def data_received(self, data: bytes) -> None:
        # h11 measures a head only while it is incomplete, so one that comes as a whole is handed on in parts.
        while data and not self.transport.is_closing():
            is_head = self.conn.their_state is h11.IDLE
            part = max(1, MAX_HEAD - len(self.conn.trailing_data[0])) if is_head else len(data)
            super().data_received(data[:part])
            data = data[part:]
        if self.cycle is not None and not self.cycle.more_body and self.conn.trailing_data[0]:
            # Who sends a request before the response to the one before would never be waited for.
            self.cycle.keep_alive = False
        self._connections.note(self)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._connections.note(self)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._connections.note(self)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._connections.note(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        self._connections.forget(self)
        super().connection_lost(exc)
        for callback in self.on_lost:
            callback()


class _Refusal(asyncio.Protocol):
    """A connection for which there is no place: its client gets a 503, or nothing if REFUSED_AT_ONCE get one now."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # of a TCP socket
        self._connections.refusals += 1
        if self._connections.refusals > REFUSED_AT_ONCE:
            transport.abort()
            return
        body = body_of(503, "too_busy", FULL, f"try again in {RETRY_SECONDS} s").encode()
        head = (
            f"HTTP/1.1 503 Service Unavailable\r\nretry-after: {RETRY_SECONDS}\r\ncontent-type: {MEDIA_TYPE}\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        transport.write(head.encode() + body)
        transport.write_eof()
        # Closed at once, a request that is still on its way would take the response with it.
        asyncio.get_running_loop().call_later(1, transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.refusals -= 1
