"""Serves a gateway over HTTP in the foreground: the daemon of its state folder with one more door."""

from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from client.client import Client
from client.problem import Problem
from runtime import telemetry
from runtime.keys import BadKeys
from runtime.settings import LogStyle
from server.access import Access
from server.connections import most_connections
from server.gateway import http_door
from server.gateway.daemon import locked
from server.gateway.hosting import Daemon
from server.gateway.journal import CannotOpen
from server.gateway.queue_desk import QueueDesk
from server.gateway.session import Desk
from server.gateway.sessions import Session
from server.gateway.wire import Hello
from server.listening import serve


@dataclass(frozen=True)
class Place:
    """Where a gateway listens."""

    host: str
    port: int
    access: Access


async def serve_http(
    state: Path, hello: Hello, place: Place, *, client: Client | None, page: str | None, say: Callable[[str], None]
) -> None:
    """Serve until a signal. With `client`, the tools are those of the workers of the client's task queue.

    Raises:
        Problem: another gateway has the folder, there are no tools, or the journal, a key or the port cannot be used.
    """
    telemetry.configure(LogStyle.TEXT, None)
    with locked(state) as is_ours:
        if not is_ours:
            reason = f"A gateway runs in {state} already"
            raise Problem("usage", reason, "end its agents, or choose another folder with --state")
        try:
            daemon = Daemon(state, 0, client=client, page=page)
        except (CannotOpen, BadKeys) as error:
            reason, _, remedy = str(error).rstrip(".").rpartition(": ")
            raise Problem("misconfigured", reason, remedy) from error

        async def door() -> None:
            async with AsyncExitStack() as stack:
                desk: Desk
                if client is not None:
                    desk = queued = QueueDesk(client, daemon.calls)
                    await stack.enter_async_context(queued.looking())
                else:
                    desk = tools = daemon.tool_set(hello)
                    if not await tools.ready(float("inf")):
                        raise Problem("usage", f"The gateway has no tools: {tools.problem}", f"see {tools.log}")
                defaults = Session(hello.session, hello.doubt, hello.patience)
                app = http_door.make_app(
                    desk, place.access, defaults, durable_reads=hello.durable_reads, attended=hello.attended
                )
                how = "with a token" if place.access.token else "for this machine only"

                def ready(address: str) -> None:
                    say(f"ready  {address}{http_door.PATH}  {how}  {len(desk.offers)} tools")

                await serve(app, place.host, place.port, most_connections(), on_ready=ready, on_stop=lambda: None)

        await daemon.run(door)
