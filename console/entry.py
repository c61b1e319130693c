"""Running a command line: usage mistakes and problems become one sentence, or one JSON document, and an exit code."""

import asyncio
import io
import sys
from collections.abc import Coroutine
from typing import Any

import typer

from console import document
from console.problem import Exit, Problem


def main(app: typer.Typer, arguments: list[str]) -> int:
    """Run a command line and return its exit code; `start` is meant where the first word is an option."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that knows no ✓ shows a question mark
    commands = [command.name or getattr(command.callback, "__name__", "") for command in app.registered_commands]
    named = not arguments or not arguments[0].startswith("-") or arguments[0] in ("--help", "-h")
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
        remedy = "see whether it runs, and try again; the task goes on meanwhile"
        raise Problem("unreachable", reason, remedy, Exit.UNREACHABLE) from error
