"""Running a command line: usage mistakes and problems become one sentence, or one JSON document, and an exit code."""

import asyncio
import errno
import io
import os
import sys
from collections.abc import Coroutine
from typing import Any

import typer
from typer.completion import get_completion_inspect_parameters

from console import document, events
from console.problem import Exit, Problem

UNREAD = 128 + 13
"""The exit code when nobody reads the output any more (`| head -1`, a closed terminal): that of SIGPIPE."""

ASKED_BY_SHELL = "_STARTER.PY_COMPLETE"
"""The variable by which `completion.bash` asks what could follow."""


def main(app: typer.Typer, arguments: list[str]) -> int:
    """Run a command line and return its exit code; quietly 141 when nobody reads the output any more."""
    try:
        code = _run(app, arguments)
        if sys.stdout is not None:  # it was closed before we began (`>&-`)
            sys.stdout.flush()
        return code
    except SystemExit as left:
        if left.code != 1:
            raise
        return _unread()  # Typer's and rich's answer to a closed pipe; ours are returned, not raised
    except OSError as error:
        if error.errno not in (errno.EPIPE, errno.EIO):
            raise
        return _unread()


def _unread() -> int:
    """Let what is still in the buffers go nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.__stdout__, sys.__stderr__):
        if stream is not None:
            os.dup2(nowhere, stream.fileno())
    return UNREAD


def _run(app: typer.Typer, arguments: list[str]) -> int:
    """`start` is meant where the first word is an option."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that knows no ✓ shows a question mark
    if ASKED_BY_SHELL in os.environ:
        get_completion_inspect_parameters()  # Typer teaches its protocol to Click only on the way to these
    commands = [command.name or getattr(command.callback, "__name__", "") for command in app.registered_commands]
    named = not arguments or not arguments[0].startswith("-") or arguments[0] in ("--help", "-h", "--show-completion")
    try:
        code = app(arguments if named else ["start", *arguments], standalone_mode=False)
    except typer.Abort:
        return Exit.DETACHED
    except typer.TyperException as error:
        said = error.format_message()  # unlike str(), it names the option
        if not said:
            return Exit.BAD_USAGE  # no arguments at all: the help was the answer
        command = "start" if not named else arguments[0] if arguments[0] in commands else ""
        remedy = f"python starter.py {command} --help shows what it takes".replace("  ", " ")
        return _report(Problem("usage", said.rstrip(".?"), remedy), arguments)
    except Problem as problem:
        return _report(problem, arguments)
    return int(code or 0)


def _report(problem: Problem, arguments: list[str]) -> int:
    if "--json" in arguments:
        print(document.of_problem(problem))
    elif "--jsonl" in arguments:
        print(events.of_problem(problem))
    else:
        print(problem, file=sys.stderr)
    return problem.exit


def run(work: Coroutine[Any, Any, int]) -> int:
    """Run a command; Ctrl-C detaches from the task and leaves it running."""
    from temporalio.service import RPCError, RPCStatusCode

    try:
        return asyncio.run(work)
    except KeyboardInterrupt:
        return Exit.DETACHED
    except RPCError as error:
        if error.status is RPCStatusCode.INVALID_ARGUMENT:
            remedy = "check the id, the queue and the size of what is sent"
            raise Problem("refused", "The server does not take this (invalid_argument)", remedy) from error
        reason = f"The server did not answer ({error.status.name.lower()})"
        remedy = "see whether it runs (`python starter.py doctor`), and try again; the task goes on meanwhile"
        raise Problem("unreachable", reason, remedy, Exit.UNREACHABLE) from error
