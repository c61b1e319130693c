"""Runs a command line: a usage mistake or a Problem becomes one sentence or one JSON document, and an exit code."""

import errno
import io
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TextIO

import typer
from typer.completion import get_completion_inspect_parameters

from client import document
from client.problem import Problem, ProblemKind
from client.remedy import as_command
from console.exits import OF_PROBLEM, Exit
from console.render.command import starter
from runtime import process, tracing
from runtime.validation import EXPECTED, expected
from workflows.commands import STARTER

BROKEN_PIPE = 128 + 13
"""The exit code if the reader of the output is gone (`| head -1`, a closed terminal): as after SIGPIPE."""

COMPLETION_VARIABLE = "_REPLAN_COMPLETE"
"""The environment variable with which `completion.bash` asks for completions."""
OF_NO_COMMAND = ("--help", "-h", "--version", "--show-completion")
"""The options that belong to no command."""
WAITS = (
    "it waits for the result of its one call; Ctrl-C leaves the task running, and"
    f" `{STARTER} start --plan FILE --detach` starts a plan with this step and returns at once"
)
MEANT: Mapping[tuple[str, str], str] = {("call", "--detach"): WAITS}
"""By command and an option that it does not have, why not, and what to do instead."""
NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""The errors of a write that has no space: a full disk, a used up quota, a file size limit."""


def main(app: typer.Typer, arguments: list[str]) -> int:
    """Run a command line and return its exit code; 141 without a message if the reader of the output is gone."""
    _open_closed()
    logging.getLogger("opentelemetry").setLevel(logging.ERROR)  # it would warn of each try to export
    try:
        code = _run(app, arguments)
        sys.stdout.flush()  # here, so that a full disk or a closed pipe is reported below
        return code
    except KeyboardInterrupt:
        return Exit.DETACHED
    except SystemExit as left:
        if COMPLETION_VARIABLE in os.environ:
            sys.stdout.flush()
            return int(left.code or 0)  # for `process.leave`: Python's own exit would wait for a server that is silent
        if left.code != 1:
            raise  # Typer and rich raise 1 for a closed pipe; our exit codes are returned
    except OSError as error:
        if error.errno in NO_SPACE:
            _discard(sys.__stdout__)
            _print_error(f"The output cannot be written ({error.strerror}): make room, or send it elsewhere.")
            return Exit.FAILED
        if error.errno not in (errno.EPIPE, errno.EIO):
            raise
    finally:
        if not tracing.flush():
            _print_error("The spans of this command were not exported in time: check OTEL_EXPORTER_OTLP_ENDPOINT.")
    _discard(sys.__stdout__, sys.__stderr__)
    return BROKEN_PIPE


def _open_closed() -> None:
    """Replace an output stream that was closed at the start (`>&-`) by a stream that discards everything."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115  # as long as the process


def _discard(*streams: TextIO | None) -> None:
    """Let the streams write to the null device, so that flushing their buffers at the exit cannot fail."""
    null = os.open(os.devnull, os.O_WRONLY)
    for stream in streams:
        if stream is not None:
            os.dup2(null, stream.fileno())


def _print_error(sentence: str) -> None:
    try:
        print(sentence, file=sys.stderr, flush=True)
    except OSError:
        _discard(sys.__stderr__)


def _run(app: typer.Typer, arguments: list[str]) -> int:
    """Run the command and return its exit code; the command is `start` if the first word is an option."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal without ✓ shows a question mark
    if COMPLETION_VARIABLE in os.environ:
        get_completion_inspect_parameters()  # has the side effect that Typer registers its completion with Click
    commands = [command.name or getattr(command.callback, "__name__", "") for command in app.registered_commands]
    named = not arguments or not arguments[0].startswith("-") or arguments[0] in OF_NO_COMMAND
    try:
        _require_text(arguments)
        words = arguments if named else ["start", *arguments]
        code = app(words, standalone_mode=False, complete_var=COMPLETION_VARIABLE)
    except typer.Abort:
        return Exit.DETACHED
    except typer.TyperException as error:
        message = _message(error)
        if not message:
            return Exit.BAD_USAGE  # no arguments at all: the help was printed
        command = "start" if not named else arguments[0] if arguments[0] in commands else ""
        remedy = f"{STARTER} {command} --help shows what it takes".replace("  ", " ")
        if not command and not get_close_matches(arguments[0], commands):
            remedy = f"a text goes after --task, as in `{starter('--task', arguments[0])}`; --help lists the commands"
        if option := getattr(error, "option_name", ""):
            # The names that are similar are of this command, and the option is another one's.
            if elsewhere := " and ".join(_commands_with(app, option)):
                message = f"No such option: {option} of {command}, only of {elsewhere}"
            remedy = f"{MEANT[command, option]}; {remedy}" if (command, option) in MEANT else remedy
        late = next((word for word in arguments if word in commands), None)
        if not named and late and "unexpected extra argument" in message:
            remedy = f"the command comes first, as in `{STARTER} {late} {arguments[0]} ...`"
        return _print_problem(Problem("usage", message.rstrip(".?"), remedy), arguments)
    except Problem as problem:
        return _print_problem(problem, arguments)
    return int(code or 0)


def _commands_with(app: typer.Typer, option: str) -> list[str]:
    """The first few commands that have an option."""
    group: Any = typer.main.get_command(app)
    context = typer.Context(group)
    # A command whose options the user wants to know is only now loaded; it may be another one with the option.
    loaded = ((name, group.resolve_command(context, [name, option])[1]) for name in getattr(group, "commands", ()))
    return [name for name, command in loaded if any(option in param.opts for param in command.params)][:3]


def _message(error: typer.TyperException) -> str:
    from pydantic import ValidationError  # not at the top: --help does not need it

    if isinstance(error, typer.BadParameter) and isinstance(error.__cause__, ValidationError) and error.param:
        wrong = error.__cause__.errors(include_url=False)[0]
        if wrong["type"] in EXPECTED:
            named = " ".join(filter(None, [error.param.opts[0], error.param.metavar]))
            return f"{named} {expected(wrong)}, not {wrong['input']!r}"
    return error.format_message().replace(": Value error, ", ": ")  # unlike str(), with the option


def _require_text(arguments: list[str]) -> None:
    """Raise Problem for an argument that is not UTF-8, which a server rejects."""
    for word in arguments:
        try:
            word.encode()
        except UnicodeEncodeError as error:
            raise Problem("usage", f"The argument {word!r} is not UTF-8", "type it in another way") from error


def _print_problem(problem: Problem, arguments: list[str]) -> int:
    if "--json" in arguments:
        print(document.of_problem(problem, as_command))
    elif "--jsonl" in arguments:
        print(document.of_event("error", error=problem.fields(as_command)))
    else:
        _print_error(problem.sentence(as_command))
    return OF_PROBLEM[problem.kind]


def run(work: Callable[[], Coroutine[Any, Any, int]]) -> int:
    """Run the coroutine of a command and return its exit code; Ctrl-C detaches from the task and leaves it running."""
    begun = work()
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # asyncio cancels on Ctrl-C only with this handler
        return process.run(begun)
    except KeyboardInterrupt:
        return Exit.DETACHED
    except Exception as error:
        problem = _problem_of(error)
        if problem is None:
            raise
        raise problem from error
    finally:
        begun.close()  # no warning about a coroutine that Ctrl-C kept from starting


def _problem_of(error: Exception) -> Problem | None:
    """What to say about an error of any command; None if only the command itself knows."""
    from temporalio.service import RPCError, RPCStatusCode  # not at the top: they take half a second

    from runtime.payloads import NoKey

    if isinstance(error, NoKey):
        from client.encrypted import no_key

        return no_key(error)
    if not isinstance(error, RPCError):
        return None
    if error.status is RPCStatusCode.INVALID_ARGUMENT:
        remedy = "check the id, the queue and the size of what is sent"
        return Problem("refused", "The server rejects this (invalid_argument)", remedy)
    reason = f"The server did not answer ({error.status.name.lower()})"
    remedy = f"see whether it runs (`{starter('doctor')}`), and try again; the task continues meanwhile"
    return Problem("unreachable", reason, remedy, ProblemKind.UNREACHABLE)
