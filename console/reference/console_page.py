"""docs/console.md: every command as its `--help` says it, its exit codes, and what it prints for programs."""

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from typer.main import get_command

from console.app import GROUPS, app
from console.entry import UNREAD
from console.options import Common
from console.problem import Exit
from console.reference.entry import cell, filled
from console.reference.keys import EVENTS, OTHERS, TASK

INTRODUCTION = """\
# The console

<!-- Generated: python -m console.reference console > docs/console.md -->

`python starter.py COMMAND` is a client of the Temporal server: it may run on another machine than the worker. A task's
id is its workflow id. Where a command takes an `ID`, its beginning is enough, and without one the newest task is meant.
`start` is also reached by a bare `--task` or `--plan`.

Every command takes these:
"""
EXITS: Mapping[Exit, str] = {
    Exit.COMPLETED: "completed, or done what was asked",
    Exit.FAILED: "the task failed, or what was asked was refused",
    Exit.BAD_USAGE: "bad usage, an unknown id, a plan or a task that was refused",
    Exit.NEEDS_PERSON: "it needs a person",
    Exit.OVER_BUDGET: "over budget",
    Exit.CANCELLED: "cancelled",
    Exit.UNREACHABLE: "the server or a worker does not answer",
    Exit.DETACHED: "detached by Ctrl-C; the task goes on",
}
DOCUMENT = """\
## The JSON document

`start`, `show` and `call` print one with `--json`. A key may be added, none goes. A command that cannot do what was
asked prints `{"schema": 1, "error": {"code", "reason", "remedy"}}` with one of
[these codes](errors.md#problems-of-a-command)."""
JSONL = """\
With `--jsonl`, `start` and `show --follow` print one event a line, each with `schema` and `event`:

| event | when, and what it has |
|---|---|"""
COMPLETION = """\
## Completion

Tab completes commands and options of `python starter.py`, in bash after this line, and in zsh after
`autoload -U bashcompinit && bashcompinit` and this line:

```sh
source console/completion.bash
```"""


def page() -> str:
    """The page, from the live commands."""
    parts = (*_common(), *_exits(), *_commands(), *_document(), *_others(), JSONL, *_events())
    return "\n".join((INTRODUCTION, *parts)) + "\n"


def _common() -> Iterator[str]:
    names = {field.name for field in fields(Common)}
    first = next(iter(_root().commands.values()))
    yield from _table("option", [one for one in first.params if one.name in names])


def _root() -> Any:
    return get_command(app)  # Any: Typer keeps the classes of its commands private


def _exits() -> Iterator[str]:
    yield from ("## Exit codes\n", "| code | meaning |", "|---|---|")
    yield from (f"| {exit:d} | {EXITS[exit]} |" for exit in Exit)
    yield f"| {UNREAD} | nobody reads the output any more |\n"


def _commands() -> Iterator[str]:
    commands = _root().commands
    for group, members in GROUPS.items():
        yield f"## {group}\n"
        for name in members:
            yield from _command(name, commands[name])


def _command(name: str, command: Any) -> Iterator[str]:
    shared = {field.name for field in fields(Common)}
    own = [one for one in command.params if one.name not in shared]
    arguments = [one for one in own if one.param_type_name == "argument"]
    explained = [one for one in arguments if one.name != "id"]  # the introduction says what an ID is
    options = [one for one in own if one.param_type_name == "option"]
    takes = [one.metavar if one.required else f"[{one.metavar}]" for one in arguments]
    usage = " ".join(["python starter.py", name, *takes, *(["[OPTIONS]"] if options else [])])
    yield from (f"### {name}\n", filled(f"`{usage}`: {command.help}"), "")
    yield from (f"```sh\n{command.epilog.removeprefix('Example: ')}\n```", "")
    yield from _table("argument", explained)
    yield from _table("option", options)


def _table(heading: str, parameters: list[Any]) -> Iterator[str]:
    if not parameters:
        return
    yield from (f"| {heading} | meaning |", "|---|---|")
    for one in parameters:
        written, meaning = one.get_help_record(_root().make_context("starter.py", [], resilient_parsing=True))
        spelt = one.metavar if heading == "argument" else written.replace(" range>", ">")
        yield f"| `{cell(spelt)}` | {cell(meaning).replace('  [', ' [')} |"
    yield ""


def _document() -> Iterator[str]:
    yield DOCUMENT
    for place, keys in TASK.items():
        yield from (f"\n| `{place}` | |" if place else "\n| key | |", "|---|---|")
        yield from (f"| `{name}` | {cell(words)} |" for name, words in keys.items())


def _others() -> Iterator[str]:
    yield from ("\nOther commands print other keys beside `schema`:\n", "| command | keys |", "|---|---|")
    for command, keys in OTHERS.items():
        yield f"| `{command}` | {', '.join(_key(name, inner) for name, inner in keys.items())} |"
    yield ""


def _key(name: str, inner: Any) -> str:
    return f"`{name}` ({', '.join(f'`{one}`' for one in inner)} each)" if inner else f"`{name}`"


def _events() -> Iterator[str]:
    yield from (f"| `{event}` | {cell(words)} |" for event, words in EVENTS.items())
    yield from ("", COMPLETION)
