"""`serve`: the API for programs and the page for people who answer, over HTTP."""

import asyncio
import logging
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from client.client import Client
from client.problem import Problem
from console.exits import Exit
from console.options import Common, require_extra
from runtime.repeated_lines import OncePer

if TYPE_CHECKING:  # of the extra
    import uvicorn

LOOPBACK = "127.0.0.1"
PORT = 8300
MAX_STREAMS = 1_000
"""The most event streams, unless the limit of open files allows fewer."""
BACKLOG = 2_048
"""Connections that the system holds until the server accepts them."""
DRAIN_SECONDS = 3
"""How long requests may go on after Ctrl-C; event streams are cut at once, and listeners connect again."""


async def serve_command(
    *,
    host: Annotated[
        str, typer.Option(envvar="REPLAN_HOST", metavar="IP", help="The address to listen on; with --token any.")
    ] = LOOPBACK,
    port: Annotated[int, typer.Option(envvar="REPLAN_PORT", min=0, max=65535, help="0 takes a free one.")] = PORT,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="REPLAN_TOKEN", metavar="TOKEN", help="What programs and people must know; best in REPLAN_TOKEN."
        ),
    ] = None,
    identity_header: Annotated[
        str | None,
        typer.Option(
            envvar="REPLAN_IDENTITY_HEADER",
            metavar="NAME",
            help="The header in which a proxy that sends the token says who is signed in.",
        ),
    ] = None,
    common: Common,
) -> int:
    require_extra("`serve`", "web")
    from server.access import Access, is_loopback  # of the extra, like what follows

    access = Access(token or None, identity_header or None)
    if not is_loopback(host) and access.token is None:
        reason = f"--host {host} would let everybody who reaches it start tasks and approve calls"
        raise Problem("usage", reason, "set REPLAN_TOKEN too, or leave --host out")
    import uvicorn

    from server.app import make_app
    from server.connections import ACCEPTED_AT_ONCE, Connections, most_connections

    most = most_connections()
    client = Client(await common.connected(), queue=common.queue)
    app = make_app(client, access, max_streams=min(MAX_STREAMS, most // 2))  # half of them is for all other requests
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        access_log=False,
        http=Connections(most).protocol,  # type: ignore[arg-type]  # it calls what it is given, whether a class or not
        ws="none",
        backlog=ACCEPTED_AT_ONCE,
        log_level="warning",
        proxy_headers=False,  # nothing depends on what a proxy says of the visitor's address
        server_header=False,
        timeout_graceful_shutdown=DRAIN_SECONDS,
    )
    try:
        listening = config.bind_socket()
        listening.listen(BACKLOG)  # or who connects at the word `ready` is refused for a moment
    except SystemExit as error:  # uvicorn's way to say it
        raise Problem("usage", f"--port {port} of {host} cannot be used", "choose another --port") from error
    for name in ("asyncio", "uvicorn.error"):
        logging.getLogger(name).addFilter(OncePer())
    shown = f"[{host}]" if ":" in host else host
    place = f"http://{shown}:{listening.getsockname()[1]}"
    how = "with a token" if access.token else "for this machine only"
    print(f"ready  {place}  {how}  queue {common.queue}  API {place}/openapi.json", flush=True)
    await _server(config, app.state.streams.close).serve(sockets=[listening])
    print("stopped", flush=True)
    return Exit.COMPLETED


def _server(config: "uvicorn.Config", on_stop: Callable[[], None]) -> "uvicorn.Server":
    import uvicorn

    class Server(uvicorn.Server):
        """Stops at a signal, and then returns; uvicorn's own raises the signal again, which ends the process."""

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            for listening in sockets or ():
                listening.listen(BACKLOG)  # asyncio set it to the number of connections that it accepts at once

        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            on_stop()
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

    return Server(config)
