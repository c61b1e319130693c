"""Finds the task that a command changes: a task that was not named is changed only if a person confirms it."""

import asyncio
import sys
import termios
from collections.abc import Awaitable, Callable
from typing import Annotated

import typer
from temporalio.client import Client

from client import tasks
from client.explain.words import moment
from client.problem import Problem, ProblemKind
from client.tasks import Handle
from client.text import cut, one_line, starter
from console.options import Common
from console.render.terminal import print_lines

Yes = Annotated[bool, typer.Option("--yes", help="Without an ID: do it to the newest task, without a question.")]
"""The option of each command that calls `find_task`."""
MAX_TEXT = 200
"""The most terminal cells for the text of the task in the question; the rest is cut off."""


async def find_task(
    client: Client,
    id: str | None,
    common: Common,
    *,
    command: str,
    yes: bool,
    check: Callable[[Handle], Awaitable[object]] | None = None,
) -> Handle:
    """The task that `command` is to change; without an id the newest, which a person at a terminal has to confirm.

    `check` is called before the question, to raise Problem for what the command would refuse whatever the answer is.

    Raises:
        Problem: there is no such task, or nobody can confirm it, or the answer is not `yes`.
    """
    handle = await tasks.find_task(client, id)
    if id is not None or yes:
        return handle
    named = f"`{starter(command, handle.id)}` names it"
    if not common.is_interactive:
        reason = f"No id was given, and the newest task, {one_line(handle.id)!r}, may be another one by now"
        raise Problem("not_confirmed", reason, f"{named}, --yes takes the newest")
    if check is not None:
        await check(handle)
    seen = await handle.describe()
    text = cut(one_line(await tasks.memo_field(seen, tasks.TASK_MEMO, str) or "?"), MAX_TEXT)
    print_lines([f"The newest task is {one_line(handle.id)}, started {moment(seen.start_time)}: {text}"])
    termios.tcflush(sys.stdin, termios.TCIFLUSH)  # a key that was typed before the question does not answer it
    print(f"{command.capitalize()} it? Type yes, then Enter: ", end="", flush=True)
    if (await _typed_line()).strip() != "yes":
        raise Problem("not_confirmed", "Nothing was changed: the answer was not yes", named, ProblemKind.FAILED)
    return handle


async def _typed_line() -> str:
    loop, typed = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(sys.stdin, typed.set)  # unlike `input`, it lets Ctrl-C through
    try:
        await typed.wait()
        return sys.stdin.readline()
    finally:
        loop.remove_reader(sys.stdin)
