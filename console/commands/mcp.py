"""`mcp`: the gateway, an MCP server in front of any tools, through which effects are done once."""

import os
import secrets
import sys
from pathlib import Path
from typing import Annotated

import typer

from client.problem import Problem, ProblemKind
from console.exits import Exit
from console.options import Common, require_extra
from runtime import process, state_folder


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
    durable_reads: Annotated[bool, typer.Option("--durable-reads", help="Make reads tasks, too.")] = False,
    state: Annotated[
        Path | None, typer.Option(envvar=state_folder.VARIABLE, metavar="DIR", help="The folder of the daemon.")
    ] = None,
    idle: Annotated[
        float, typer.Option(min=1, metavar="SECONDS", help="How long the daemon stays when nobody needs it.")
    ] = 3600.0,
    prepare: Annotated[
        bool, typer.Option("--prepare", help="Fetch and start everything, list the tools, and end.")
    ] = False,
    common: Common,
) -> int:
    """Serve MCP on stdin and stdout, in an agent's configuration, in place of a server's own command."""
    require_extra("`mcp`", "mcp")
    require_extra("`mcp`", "web")
    from pydantic import ValidationError

    from server.gateway import preparing, proxy
    from server.gateway.wire import Hello

    if not command and not tools:
        reason = "The gateway has no tools"
        raise Problem("usage", reason, "write `-- COMMAND` of a server, or --tools FILE")
    if common.address or common.namespace or common.profile:
        reason = "The daemon of the gateway chooses its server once, for all agents of its folder"
        raise Problem("usage", reason, "set TEMPORAL_ADDRESS and leave --address, --namespace and --profile out")
    folder = (state or state_folder.default()).absolute()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        hello = Hello.model_validate(
            {
                "version": process.version(),
                "process": secrets.token_hex(8),
                "session": session or f"stdio-{secrets.token_hex(4)}",
                "doubt": doubt,
                "patience": patience,
                "durable_reads": durable_reads,
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
    try:
        if prepare:
            return await preparing.prepare(folder, hello, idle, lambda line: print(line, file=sys.stderr))
        await proxy.Proxy(folder, hello, proxy.Pipes(), idle).run()
    except proxy.CannotServe as why:
        remedy = "mend that, and start the agent again"
        raise Problem("unreachable", f"The gateway cannot serve: {why}", remedy, ProblemKind.UNREACHABLE) from why
    return Exit.COMPLETED


def _absolute(name: str) -> str:
    """A file as an absolute path, since the daemon has another folder; a module's name stays."""
    return str(Path(name).absolute()) if Path(name).exists() else name
