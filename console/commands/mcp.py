"""`mcp`: the gateway, an MCP server in front of any tools, through which effects are done once."""

import os
import secrets
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from client.problem import Problem, ProblemKind
from console.exits import Exit
from console.options import Common, require_extra
from runtime import process, state_folder

if TYPE_CHECKING:  # of the extra
    from server.gateway.serving import Place


async def mcp_command(
    *,
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="COMMAND", help="The command of an MCP server and its arguments, after `--`."),
    ] = None,
    tools: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE", help="A tools file, or Python tools, as for the worker; repeatable."),
    ] = None,
    session: Annotated[
        str | None,
        typer.Option(
            envvar="REPLAN_MCP_SESSION",
            metavar="NAME",
            help="The calls among which equal ones are the same, also when the agent was started again.",
        ),
    ] = None,
    doubt: Annotated[
        str, typer.Option(metavar="ask|repeat|replay", help="What is done with a call that may be a repetition.")
    ] = "ask",
    patience: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="How long a call waits for a person before it says so.")
    ] = 30.0,
    list_wait: Annotated[
        float,
        typer.Option(
            min=0, metavar="SECONDS", help="How long a list of tools waits for servers that are still starting."
        ),
    ] = 25.0,
    durable_reads: Annotated[bool, typer.Option("--durable-reads", help="Make reads tasks, too.")] = False,
    attended: Annotated[
        bool, typer.Option("--attended", help="A person is at the agent, and is asked there, if its client can.")
    ] = False,
    state: Annotated[
        Path | None, typer.Option(envvar=state_folder.VARIABLE, metavar="DIR", help="The folder of the daemon.")
    ] = None,
    idle: Annotated[
        float, typer.Option(min=1, metavar="SECONDS", help="How long the daemon stays when nobody needs it.")
    ] = 3600.0,
    http: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Serve agents over HTTP at /mcp; without COMMAND and --tools, for the workers of --queue.",
        ),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(envvar="REPLAN_TOKEN", metavar="TOKEN", help="What agents must know over HTTP, as for `serve`."),
    ] = None,
    identity_header: Annotated[
        str | None,
        typer.Option(
            envvar="REPLAN_IDENTITY_HEADER", metavar="NAME", help="The header in which a proxy says who is signed in."
        ),
    ] = None,
    page: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="Where people answer; else a page on this machine, or with --queue `replan answer`."
        ),
    ] = None,
    prepare: Annotated[
        bool, typer.Option("--prepare", help="Fetch and start everything, list the tools, and end.")
    ] = False,
    common: Common,
) -> int:
    """Serve MCP on stdin and stdout in place of a server's own command, or over HTTP: each effect is done once."""
    require_extra("`mcp`", "mcp")
    require_extra("`mcp`", "web")
    from pydantic import ValidationError

    from client.client import Client
    from server.gateway import preparing, proxy
    from server.gateway.wire import Hello

    is_of_queue = http is not None and not (command or tools)
    if not (command or tools or http):
        reason = "The gateway has no tools"
        raise Problem("usage", reason, "write `-- COMMAND` of a server, --tools FILE, or --http HOST:PORT")
    if not is_of_queue and (common.address or common.namespace or common.profile):
        reason = "The daemon of the gateway chooses its server once, for all agents of its folder"
        raise Problem("usage", reason, "set TEMPORAL_ADDRESS and leave --address, --namespace and --profile out")
    if page and not http:
        raise Problem("usage", "--page is for --http", "leave --page out: the daemon serves a page")
    folder = (state or state_folder.default()).absolute()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # The daemon and its workers take them from the environment, and have another working directory.
        if common.keys:
            os.environ["REPLAN_KEYS"] = _absolute(common.keys)
        if common.codec:
            os.environ["REPLAN_CODEC"] = common.codec
        hello = Hello.model_validate(
            {
                "version": process.version(),
                "process": secrets.token_hex(8),
                "session": session or f"stdio-{secrets.token_hex(4)}",
                "doubt": doubt,
                "patience": patience,
                "list_wait": list_wait,
                "durable_reads": durable_reads,
                "attended": attended,
                "tools": [_absolute(name) for name in tools or ()],
                "command": command or (),
                "cwd": str(Path.cwd()),
                "environment": dict(os.environ),
            }
        )
    except ValidationError as error:
        raise Problem("usage", proxy.refused(error), "see `mcp --help`") from error
    except OSError as error:
        raise Problem("usage", f"{folder} cannot be made ({error.strerror})", "choose another --state") from error
    if http is not None:
        from server.gateway.serving import serve_http

        place = _place(http, token, identity_header)
        client = Client(await common.connected(), queue=common.queue) if is_of_queue else None
        await serve_http(folder, hello, place, client=client, page=page, say=lambda line: print(line, flush=True))
        print("stopped", flush=True)
        return Exit.COMPLETED
    try:
        if prepare:
            return await preparing.prepare(folder, hello, idle, lambda line: print(line, file=sys.stderr))
        await proxy.Proxy(folder, hello, proxy.Pipes(), idle).run()
    except proxy.CannotServe as why:
        remedy = "mend that, and start the agent again"
        raise Problem("unreachable", f"The gateway cannot serve: {why}", remedy, ProblemKind.UNREACHABLE) from why
    return Exit.COMPLETED


def _place(http: str, token: str | None, identity_header: str | None) -> "Place":
    """Where to listen, and who may connect. Raises Problem if `http` is no HOST:PORT, or is open without a token."""
    from server.access import Access, is_loopback
    from server.gateway.serving import Place

    host, _, port = http.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not (host and port.isdecimal() and int(port) < 65_536):
        raise Problem("usage", f"--http {http} is no HOST:PORT", "write for example --http 127.0.0.1:8700")
    access = Access(token or None, identity_header or None)
    if not is_loopback(host) and access.token is None:
        reason = f"--http {http} would let everybody who reaches it call the tools"
        raise Problem("usage", reason, "set REPLAN_TOKEN too, or listen on 127.0.0.1")
    return Place(host, int(port), access)


def _absolute(name: str) -> str:
    """The absolute path of a file, since the daemon has another working directory; `name` itself if no file exists."""
    return str(Path(name).absolute()) if Path(name).exists() else name
