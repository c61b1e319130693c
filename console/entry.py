"""Running a command line: usage mistakes and problems become one sentence, or one JSON document, and an exit code."""

import asyncio
import errno
import io
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TextIO

import typer
from typer.completion import get_completion_inspect_parameters

from client.problem import Problem, ProblemKind
from console.exits import OF_PROBLEM, Exit
from console.render import document

UNREAD = 128 + 13
"""The exit code when nobody reads the output any more (`| head -1`, a closed terminal): that of SIGPIPE."""

ASKED_BY_SHELL = "_STARTER.PY_COMPLETE"
"""The variable by which `completion.bash` asks what could follow."""


FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""What a disk, a quota or a limit says that takes no more."""


def main(app: typer.Typer, arguments: list[str]) -> int:
    """Run a command line and return its exit code; quietly 141 when nobody reads the output any more."""
    _open_closed()
    try:
        code = _run(app, arguments)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return Exit.DETACHED
    except SystemExit as left:
        if left.code != 1:
            raise
        return _unread()  # Typer's and rich's answer to a closed pipe; ours are returned, not raised
    except OSError as error:
        if error.errno in FULL:
            return _full(error)
        if error.errno not in (errno.EPIPE, errno.EIO):
            raise
        return _unread()


def _open_closed() -> None:
    """What is written to a stream that was closed before we began (`>&-`) goes nowhere."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115  # as long as the process


def _unread() -> int:
    _drop(sys.__stdout__, sys.__stderr__)
    return UNREAD


def _full(error: OSError) -> int:
    _drop(sys.__stdout__)
    _complain(f"The output cannot be written ({error.strerror}): make room, or send it elsewhere.")
    return Exit.FAILED


def _drop(*streams: TextIO | None) -> None:
    """Let what is still in the buffers go nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in streams:
        if stream is not None:
            os.dup2(nowhere, stream.fileno())


def _complain(sentence: str) -> None:
    """Say it where somebody can hear it; the exit code says the rest."""
    try:
        print(sentence, file=sys.stderr, flush=True)
    except OSError:
        _drop(sys.__stderr__)


def _run(app: typer.Typer, arguments: list[str]) -> int:
    """`start` is meant where the first word is an option."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that knows no ✓ shows a question mark
    if ASKED_BY_SHELL in os.environ:
        get_completion_inspect_parameters()  # Typer teaches its protocol to Click only on the way to these
    commands = [command.name or getattr(command.callback, "__name__", "") for command in app.registered_commands]
    named = not arguments or not arguments[0].startswith("-") or arguments[0] in ("--help", "-h", "--show-completion")
    try:
        _require_text(arguments)
        code = app(arguments if named else ["start", *arguments], standalone_mode=False)
    except typer.Abort:
        return Exit.DETACHED
    except typer.TyperException as error:
        said = error.format_message()  # unlike str(), it names the option
        if not said:
            return Exit.BAD_USAGE  # no arguments at all: the help was the answer
        command = "start" if not named else arguments[0] if arguments[0] in commands else ""
        remedy = f"python starter.py {command} --help shows what it takes".replace("  ", " ")
        late = next((word for word in arguments if word in commands), None)
        if not named and late and "unexpected extra argument" in said:
            remedy = f"the command comes first, as in `python starter.py {late} {arguments[0]} ...`"
        return _report(Problem("usage", said.replace(": Value error, ", ": ").rstrip(".?"), remedy), arguments)
    except Problem as problem:
        return _report(problem, arguments)
    return int(code or 0)


def _require_text(arguments: list[str]) -> None:
    """Raises Problem when something else than UTF-8 was typed, which a server does not take."""
    for word in arguments:
        try:
            word.encode()
        except UnicodeEncodeError as error:
            raise Problem("usage", f"The argument {word!r} is no UTF-8", "type it in another way") from error


def _report(problem: Problem, arguments: list[str]) -> int:
    if "--json" in arguments:
        print(document.of_problem(problem))
    elif "--jsonl" in arguments:
        from console.render import views  # imports the SDK, half a second

        print(views.of_problem(problem))
    else:
        _complain(str(problem))
    return OF_PROBLEM[problem.kind]


def run(work: Callable[[], Coroutine[Any, Any, int]]) -> int:
    """Run a command; Ctrl-C detaches from the task and leaves it running."""
    from temporalio.service import RPCError, RPCStatusCode

    begun = work()
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # asyncio takes over no other
        return asyncio.run(begun)
    except KeyboardInterrupt:
        return Exit.DETACHED
    except RPCError as error:
        if error.status is RPCStatusCode.INVALID_ARGUMENT:
            remedy = "check the id, the queue and the size of what is sent"
            raise Problem("refused", "The server does not take this (invalid_argument)", remedy) from error
        reason = f"The server did not answer ({error.status.name.lower()})"
        remedy = "see whether it runs (`python starter.py doctor`), and try again; the task goes on meanwhile"
        raise Problem("unreachable", reason, remedy, ProblemKind.UNREACHABLE) from error
    finally:
        begun.close()  # where Ctrl-C came before its first step
