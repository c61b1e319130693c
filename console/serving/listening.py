"""Serves an application on a port, until a signal ends it."""

import asyncio
import errno
import logging
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

import uvicorn

from client.problem import Problem
from console.serving.connections import ACCEPTED_AT_ONCE, MAX_HEAD, Connections
from runtime.repeated_lines import OncePer

BACKLOG = 2_048
"""Connections that the system holds until the server accepts them."""
DRAIN_SECONDS = 3
"""How long requests may go on after Ctrl-C; event streams are cut at once, and listeners connect again."""


async def serve(
    app: Any, host: str, port: int, most: int, *, on_ready: Callable[[str], None], on_stop: Callable[[], None]
) -> None:
    """Serve `app` with at most `most` connections; `on_ready` gets the address, `on_stop` is called at a signal.

    Raises:
        Problem: the port cannot be used.
    """
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        access_log=False,
        h11_max_incomplete_event_size=MAX_HEAD - 1,  # so many bytes may be there while the head is incomplete
        http=Connections(most).protocol,  # type: ignore[arg-type]  # it calls what it is given, whether a class or not
        ws="none",
        backlog=ACCEPTED_AT_ONCE,
        log_level="warning",
        proxy_headers=False,  # nothing depends on what a proxy says of the visitor's address
        server_header=False,
        timeout_graceful_shutdown=DRAIN_SECONDS,
    )
    listening = _listen(host, port)
    for name in ("asyncio", "uvicorn.error"):
        logging.getLogger(name).addFilter(OncePer())
    on_ready(f"http://{_address(host, listening.getsockname()[1])}")
    await _Server(config, on_stop).serve(sockets=[listening])


def _listen(host: str, port: int) -> socket.socket:
    """A socket on which clients can connect from now on. Raises Problem if the host or port cannot be used."""
    # Not by uvicorn, which logs an error of its own and raises SystemExit.
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        address = _address(host, port)
        if error.errno == errno.EADDRINUSE:
            reason, remedy = f"Another program listens at {address} already", "stop it, or choose another port"
        else:
            code = error.errno or 0
            why = os.strerror(code) if code > 0 else "no such host"  # below are the codes of getaddrinfo
            reason, remedy = f"Nothing can listen at {address} ({why})", "choose another address or port"
        raise Problem("usage", reason, remedy) from error


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class _Server(uvicorn.Server):
    """Stops at a signal, and then returns; uvicorn's own raises the signal again, which ends the process."""

    def __init__(self, config: uvicorn.Config, on_stop: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_stop = on_stop

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listening in sockets or ():
            listening.listen(BACKLOG)  # asyncio set it to the number of connections that it accepts at once

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._on_stop()
        super().handle_exit(sig, frame)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                with suppress(ValueError):
                    loop.remove_signal_handler(number)
