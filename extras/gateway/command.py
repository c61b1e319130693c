"""`mcp`: the gateway, an MCP server in front of any tools, through which effects are done once."""

import os
import secrets
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from client.problem import Problem, ProblemKind
from client.text import QUEUE
from console.exits import Exit
from console.options import Common, require_extra
from runtime import process, state_folder
from runtime.validation import expected
from workflows.commands import STARTER, option_of

if TYPE_CHECKING:  # of the extra
    from extras.gateway.serving import ListenAddress


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
        float,
        typer.Option(
            min=0, metavar="SECONDS", help="With --tasks: how long a call waits for a person before it says so."
        ),
    ] = 30.0,
    list_wait: Annotated[
        float,
        typer.Option(
            min=0, metavar="SECONDS", help="How long a list of tools waits for servers that are still starting."
        ),
    ] = 25.0,
    timeout: Annotated[  # noqa: ASYNC109  # of calls
        float | None,
        typer.Option(metavar="SECONDS", help="How long a call of COMMAND's server may take, 600 by default."),
    ] = None,
    tasks: Annotated[
        bool,
        typer.Option(
            "--tasks",
            help="Make each effect a task of workers that run: for approvals, and retries without the agent.",
        ),
    ] = False,
    attended: Annotated[bool, typer.Option("--attended", help="A person is at the agent, and is asked there.")] = False,
    state: Annotated[
        Path | None,
        typer.Option(envvar=state_folder.VARIABLE, metavar="DIR", help="The folder of the store and of sockets."),
    ] = None,
    idle: Annotated[
        float | None,
        typer.Option(min=1, metavar="SECONDS", help="How long its process stays when nobody needs it, 60 by default."),
    ] = None,
    http: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Serve agents over HTTP at /mcp; with REPLAN_TOKEN or REPLAN_PEOPLE on any address.",
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

    from extras.gateway import bridge
    from extras.gateway.wire import Hello, TaskServer

    names_server = bool(common.address or common.namespace or common.profile or common.queue != QUEUE)
    uses_tasks = tasks or names_server
    if not (command or tools or uses_tasks):
        reason, remedy = "The gateway has no tools", "write `-- COMMAND` of a server, --tools FILE, or --tasks"
        raise Problem("usage", reason, f"{remedy} for those of the workers that run")
    folder = (state or state_folder.default()).absolute()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # What makes the calls takes them from the environment, and has another working directory.
        if common.keys:
            os.environ["REPLAN_KEYS"] = _absolute(common.keys)
        task_server = None
        if uses_tasks:
            task_server = TaskServer(
                address=common.address,
                namespace=common.namespace,
                profile=common.profile,
                queue=common.queue,
                page=os.environ.get("REPLAN_PAGE"),
            )
        hello = Hello.model_validate(
            {
                "version": process.version(),
                "process": secrets.token_hex(8),
                "session": session or f"stdio-{secrets.token_hex(4)}",
                "doubt": doubt,
                "patience": patience,
                "list_wait": list_wait,
                "timeout": timeout,
                "attended": attended,
                "tools": [_absolute(name) for name in tools or ()],
                "command": command or (),
                "cwd": str(Path.cwd()),
                "tasks": task_server,
            }
        )
    except ValidationError as error:
        wrong = error.errors(include_url=False)[0]
        reason = f"{option_of(str(wrong['loc'][0]))} {expected(wrong)}, not {wrong['input']!r}"
        raise Problem("usage", reason, f"`{STARTER} mcp --help` shows what it takes") from error
    except OSError as error:
        raise Problem("usage", f"{folder} cannot be made ({error.strerror})", "choose another --state") from error
    if http is not None:
        from extras.gateway import serving

        await serving.serve_http(folder, hello, _listening(http), say=_say)
        _say("stopped")
        return Exit.COMPLETED
    if prepare:
        from extras.gateway import preparing

        try:
            return preparing.prepare(folder, hello, idle, lambda line: print(line, file=sys.stderr))
        except bridge.CannotServe as why:
            remedy = "mend that, and start the agent again"
            raise Problem("unreachable", f"The gateway cannot serve: {why}", remedy, ProblemKind.UNREACHABLE) from why
    return bridge.serve({**hello.model_dump(mode="json"), "session": session, "state": str(folder), "idle": idle})


def _say(line: str) -> None:
    print(line, flush=True)


def _listening(http: str) -> "ListenAddress":
    """Where to listen, and who may connect. Raises Problem if `http` is no HOST:PORT, or is open without a token."""
    from console.serving.access import Access, is_loopback
    from extras.gateway.serving import ListenAddress
    from runtime.people_file import VARIABLE

    host, _, port = http.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not (host and port.isdecimal() and int(port) < 65_536):
        raise Problem("usage", f"--http {http} is no HOST:PORT", "write for example --http 127.0.0.1:8700")
    people = os.environ.get(VARIABLE)
    access = Access.of_environment(Path(people) if people else None)
    if not is_loopback(host) and access.is_open:
        reason = f"--http {http} would let everybody who reaches it call the tools"
        raise Problem("usage", reason, f"set REPLAN_TOKEN or {VARIABLE} too, or listen on 127.0.0.1")
    return ListenAddress(host, int(port), access)


def _absolute(name: str) -> str:
    """The absolute path of a file, since the holder has another working directory; `name` itself if no file exists."""
    return str(Path(name).absolute()) if Path(name).exists() else name
