"""Asks a person at a terminal to confirm the task that a command changes, if no id was given, and calls that undo."""

import asyncio
import sys
import termios
from collections.abc import Awaitable, Callable
from typing import Annotated

import typer
from temporalio.client import Client

from client import tasks
from client.explain.prose import moment
from client.problem import Problem, ProblemKind
from client.sessions import SessionPlan
from client.tasks import Handle
from client.text import cut, one_line
from client.undo import Confirm, PlannedUndo, with_code
from client.wording import count
from console.options import Common
from console.render.command import starter
from console.render.requests import undo_lines
from console.render.terminal import print_lines

Yes = Annotated[bool, typer.Option("--yes", help="Without an ID: do it to the newest task, without a question.")]
"""The option of each command that calls `find_task`."""
YES = ("y", "yes")
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
    """The task that `command` is to change; without an `id`, the newest task, if a person at a terminal confirms it.

    With `yes`, nobody is asked. `check` is called before the question; it raises Problem if the command would reject
    this task whatever the answer is.

    Raises:
        Problem: there is no such task, or nobody can confirm it, or the answer is no.
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
    description = await handle.describe()
    text = cut(one_line(await tasks.memo_field(description, tasks.TASK_MEMO, str) or "?"), MAX_TEXT)
    print_lines([f"The newest task is {one_line(handle.id)}, started {moment(description.start_time)}: {text}"])
    await _require_yes(f"{command.capitalize()} it?", named)
    return handle


async def confirm_session(name: str, plan: SessionPlan, common: Common) -> None:
    """Ask a person to confirm what would be undone over all tasks of a session. Raises Problem without a yes."""
    named = f"session {one_line(name)!r}"
    if not common.is_interactive:
        reason = f"{count(len(plan.tasks), 'task')} of {named} would be undone, and nobody can be asked"
        shown = starter("effects", "--session", name)
        raise Problem("not_confirmed", reason, f"`{shown}` lists what they changed, and --yes undoes it")
    lines = [f"To undo {named}, {count(len(plan.whole.calls), 'call')} would be made:", *undo_lines(plan.whole)]
    without = [task for task, planned in plan.tasks if not planned.calls]
    stays = [f"    no call undoes what {one_line(task.id)} changed" for task in without]
    over = [f"    {one_line(id)} runs, and is passed over" for id in plan.running]
    print_lines([*lines, *stays, *over])
    await _require_yes("Undo all of it?", "run the command again to see it")


async def answered_yes(planned: PlannedUndo) -> bool:
    """Return True, for calls that a person has already seen and confirmed."""
    return True


def undo_confirmed(common: Common, code: str | None = None) -> Confirm | None:
    """What confirms a rollback's calls: `code` if it is theirs, without it a person; None if nobody can be asked."""
    if code is not None:
        return with_code(code)
    return _confirm_at_terminal if common.is_interactive else None


async def _confirm_at_terminal(planned: PlannedUndo) -> bool:
    print_lines([f"To undo this, {count(len(planned.calls), 'call')} would be made:", *undo_lines(planned)])
    await _require_yes("Make all of them?", "run the command again to see them")
    return True


async def _require_yes(question: str, remedy: str) -> None:
    """Ask a person at the terminal. Raises Problem with this `remedy` if the answer is not in YES."""
    termios.tcflush(sys.stdin, termios.TCIFLUSH)  # a key that was typed before the question does not answer it
    print(f"{question} Type y or n, then Enter: ", end="", flush=True)
    if (await _typed_line()).strip().casefold() not in YES:
        raise Problem("not_confirmed", "Nothing was changed, since the answer was no", remedy, ProblemKind.FAILED)


async def _typed_line() -> str:
    loop, typed = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(sys.stdin, typed.set)  # unlike `input`, it lets Ctrl-C through
    try:
        await typed.wait()
        return sys.stdin.readline()
    finally:
        loop.remove_reader(sys.stdin)
