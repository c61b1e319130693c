"""Runs a command line: a usage mistake or a Problem becomes one sentence or one JSON document, and an exit code."""

import errno
import io
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import fields
from difflib import get_close_matches
from itertools import takewhile
from pathlib import Path
from typing import Any, TextIO, get_args

import typer
from typer.completion import get_completion_inspect_parameters

from client import document
from client.problem import Problem, ProblemKind
from client.remedy import as_command
from console.exits import OF_PROBLEM, Exit
from console.options import Common
from console.render.command import starter
from extras import COMMAND_OF, NotHere
from runtime import process, tracing
from runtime.usage import mistake
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
    try:
        _require_text(arguments)
        typed = _with_command_first(arguments, commands)
        args = typed if _names_command(typed) else ["start", *typed]
        code = app(args, standalone_mode=False, complete_var=COMPLETION_VARIABLE)
    except typer.Abort:
        return Exit.DETACHED
    except typer.TyperException as error:
        if not error.format_message():
            return Exit.BAD_USAGE  # no arguments at all: the help was printed
        return _print_problem(_problem_of_usage(app, error, typed, commands), arguments)
    except Problem as problem:
        return _print_problem(problem, arguments)
    return int(code or 0)


def _names_command(args: Sequence[str]) -> bool:
    """Whether the first word is a command, or stands for one; the command is `start` if it is an option."""
    return not args or not args[0].startswith("-") or args[0] in OF_NO_COMMAND


def _with_command_first(args: list[str], commands: Sequence[str]) -> list[str]:
    """Move the options of Common that stand before a command behind it; other lines are returned as they are."""
    options = {f"--{field.name}": get_args(field.type)[0] for field in fields(Common)}
    at = 0
    while at < len(args) and (name := args[at].partition("=")[0]) in options:
        at += 1 if options[name] is bool or "=" in args[at] else 2  # a value may be spelt as a command is
    # `replan worker` is run without this module, so that its options cannot be moved.
    if 0 < at < len(args) and args[at] in commands and args[at] != "worker":
        return [args[at], *args[:at], *args[at + 1 :]]
    return args


def _problem_of_usage(
    app: typer.Typer, error: typer.TyperException, args: Sequence[str], commands: Sequence[str]
) -> Problem:
    """What is wrong with a command line, and what to do, by the likely cause."""
    name = args[0] if _names_command(args) else "start"
    if name not in commands and not name.startswith("-"):
        return _problem_of_command(args, commands)
    if name.startswith("-"):
        return Problem("usage", *mistake(error, STARTER)[:2])
    found = mistake(error, f"{STARTER} {name}")
    late = next((word for word in args[1:] if word in commands), None)
    is_start = not _names_command(args) and any(word.partition("=")[0] in ("--task", "--plan") for word in args)
    if not _names_command(args) and late and not is_start and (found.extra or found.option):
        at = args.index(late)
        line = starter(late, *args[:at], *args[at + 1 :])
        return Problem("usage", f"{args[0]} stands before the command {late}, which comes first", f"write `{line}`")
    if found.extra and name == "start":
        quoted = f"put a text of several words in quotes, as in `{starter('--task', _text_in(args))}`"
        other = found.extra.split()[0]
        also = f"; {other} as a command comes first, without the options of start" if other in commands else ""
        return Problem("usage", found.reason, quoted + also)
    if found.option and name == "mcp" and "--" not in args:
        remedy = f"a server's command comes after --, as in `{STARTER} mcp -- npx -y SERVER`; {found.remedy}"
        return Problem("usage", found.reason, remedy)
    if found.option and (elsewhere := " and ".join(_commands_with(app, found.option))):
        # The names that are similar are of this command, and the option is another one's.
        remedy = f"{MEANT[name, found.option]}; {found.remedy}" if (name, found.option) in MEANT else found.remedy
        return Problem("usage", f"No such option: {found.option} of {name}, only of {elsewhere}", remedy)
    return Problem("usage", found.reason, found.remedy)


def _problem_of_command(args: Sequence[str], commands: Sequence[str]) -> Problem:
    """What to say about a first word that is no command: it is misspelt, or begins the text of a task."""
    reason, lists = f"No such command {args[0]!r}", f"`{STARTER} --help` lists the commands"
    if extra := COMMAND_OF.get(args[0]):
        where, _, remedy = f"{NotHere(extra)}".partition(": ")
        return Problem("usage", f"The command {args[0]} is in {where}", remedy)
    if near := get_close_matches(args[0], commands):
        return Problem("usage", f"{reason}: did you mean {' or '.join(near)}?", lists)
    return Problem("usage", reason, f"a text goes after --task, as in `{starter('--task', _text_in(args))}`; {lists}")


def _text_in(args: Sequence[str]) -> str:
    """The text of a task that was typed without quotes: the words after `--task`, else the first ones."""
    parts = [part for word in args for part in (word.split("=", 1) if word.startswith("--task=") else [word])]
    behind = parts[parts.index("--task") + 1 :] if "--task" in parts else parts[1 if parts[:1] == ["start"] else 0 :]
    return " ".join(takewhile(lambda word: not word.startswith("-"), behind))


def _commands_with(app: typer.Typer, option: str) -> list[str]:
    """The first few commands that have an option."""
    group: Any = typer.main.get_command(app)
    context = typer.Context(group)
    # A command whose options the user wants to know is only now loaded; it may be another one with the option.
    loaded = ((name, group.resolve_command(context, [name, option])[1]) for name in getattr(group, "commands", ()))
    return [name for name, command in loaded if any(option in param.opts for param in command.params)][:3]


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
