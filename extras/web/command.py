"""`serve`: the API for programs and the page for people who answer, over HTTP."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from client.client import Client
from client.problem import Problem
from console.exits import Exit
from console.options import Common, require_extra
from runtime.people_file import KEY_VARIABLE, VARIABLE
from workflows.commands import WORKER

if TYPE_CHECKING:
    from extras.web.provider import IdentityProvider

LOOPBACK = "127.0.0.1"
PORT = 8300
WEB_UI = "REPLAN_WEB_UI_ORIGIN"
"""The variable with the origin of a Temporal web UI, for which `serve` is the codec endpoint (/codec)."""
PROVIDER = "REPLAN_PROVIDER"
"""The variable with the issuer of an identity provider with which people sign in."""
MAX_STREAMS = 1_000
"""The most event streams, unless the limit of open files allows fewer."""


async def serve_command(
    *,
    host: Annotated[
        str, typer.Option(envvar="REPLAN_HOST", metavar="IP", help="The address to listen on; with a token any.")
    ] = LOOPBACK,
    port: Annotated[int, typer.Option(envvar="REPLAN_PORT", min=0, max=65535, help="0 takes a free one.")] = PORT,
    people: Annotated[
        Path | None,
        typer.Option(
            "--people", envvar=VARIABLE, metavar="FILE", help="Who has a token, a name of a proxy, or a role."
        ),
    ] = None,
    door_key: Annotated[
        Path | None,
        typer.Option(envvar=KEY_VARIABLE, metavar="FILE", help="The key that vouches for the people of --people."),
    ] = None,
    common: Common,
) -> int:
    require_extra("`serve`", "web")
    from console.serving.access import Access, is_loopback  # of the extra, like what follows

    provider = _provider() if os.environ.get(PROVIDER) else None
    access = Access.of_environment(people, door_key, has_provider=provider is not None)
    if not is_loopback(host) and access.is_open:
        reason = f"--host {host} would let everybody who reaches it start tasks and approve calls"
        raise Problem("usage", reason, "set REPLAN_TOKEN too, give --people, or leave --host out")
    origin = os.environ.get(WEB_UI, "").rstrip("/")
    if origin and not _is_origin(origin):
        reason = f"{WEB_UI}={origin} is no origin, so no browser would be let in"
        raise Problem("usage", reason, "give scheme, host and port alone, e.g. http://localhost:8233")
    from console.serving.connections import most_connections
    from console.serving.listening import serve
    from extras.web.app import make_app

    most = most_connections()
    client = Client(await common.connected(), queue=common.queue)
    # Half of the connections is for all requests that are no streams.
    app = make_app(client, access, max_streams=min(MAX_STREAMS, most // 2), web_ui=origin, provider=provider)
    how = "for this machine only" if access.is_open else "with a token"

    def ready(url: str) -> None:
        print(f"ready  {url}  {how}  queue {common.queue}  API {url}/openapi.json", flush=True)
        print(f"links to it in notifications and Temporal's web UI: REPLAN_PAGE={url} {WORKER}", flush=True)

    await serve(app, host, port, most, on_ready=ready, on_stop=app.state.streams.close)
    print("stopped", flush=True)
    return Exit.COMPLETED


def _provider() -> "IdentityProvider":
    """The identity provider that the environment names. Raises Problem if it is none."""
    require_extra(PROVIDER, "provider")
    from extras.web.provider import IdentityProvider

    return IdentityProvider.of_environment()


def _is_origin(text: str) -> bool:
    """Whether a text is the origin of a page as browsers send it."""
    parts = urlsplit(text)
    return parts.scheme in ("http", "https") and f"{parts.scheme}://{parts.netloc}" == text == text.lower()
