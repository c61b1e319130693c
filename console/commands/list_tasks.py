"""`list`: list tasks from the records of the server; no worker is asked."""

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.cells import cell_len, set_cell_size
from temporalio.client import Client

from client import document, sessions
from client.explain.prose import moment
from client.filters import within
from client.lines import wrap
from client.listing import Listed, list_tasks, status_named
from client.text import cut, one_line
from client.tree import age
from client.wording import pause_text, subject_of, suggested
from console.completion import states
from console.exits import Exit
from console.options import Common
from console.render.command import starter
from console.render.terminal import output_width
from workflows.account.records import StepStatus
from workflows.account.task import TaskStatus
from workflows.commands import STARTER
from workflows.faults.fault import Code
from workflows.web_ui import SIGNS

HEADING = ("STATUS", "STARTED", "ID", "REPLANS", "LAST FAULT", "TASK")
GAP = "  "
MIN_ID = 20
MIN_TEXT = 12
MIN_FAULT = 10
"""MIN_ID, MIN_TEXT and MIN_FAULT are the smallest widths of the columns ID, TASK and LAST FAULT, in cells."""
MAX_ROWS = 4
"""The most rows of a terminal for what a task asks."""


async def list_command(
    *,
    status: Annotated[
        str | None, typer.Option(metavar="STATUS", help="Only tasks with this status.", autocompletion=states)
    ] = None,
    query: Annotated[
        str | None, typer.Option(metavar="FILTER", help="Only tasks that this Temporal list filter finds.")
    ] = None,
    session: Annotated[
        str | None, typer.Option("--session", metavar="NAME", help="Only calls of this session of `mcp`.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 20,
    common: Common,
) -> int:
    task_status = status_named(status)
    client = await common.connected()
    if session is not None:
        await sessions.tasks_of(client, session)
        query = within(sessions.filter_of(session), query)
    return await tasks(client, common, status=task_status, query=query, limit=limit)


def table(listed: Sequence[Listed], width: int | None, now: datetime) -> list[str]:
    """A heading and a line for each task: cut to `width` columns, with ages; uncut, with start times, if it is None."""
    heading = HEADING if width is None else (HEADING[0], "AGE", *HEADING[2:])
    cells = [heading, *(_cells(task, None if width is None else now) for task in listed)]
    widths = [max(cell_len(row[column]) for row in cells) for column in range(len(HEADING))]
    if width is not None:
        widths = _fitted(widths, width)
    lines = list[str]()
    for row in cells:
        padded = (set_cell_size(cut(cell, wide), wide) for cell, wide in zip(row, widths, strict=True))
        lines.append(cut(GAP.join(padded).rstrip(), width or sys.maxsize))
    rows = (_more(task, width, now) for task in listed)
    return [lines[0], *(line for first, more in zip(lines[1:], rows, strict=True) for line in (first, *more))]


def _cells(task: Listed, now: datetime | None) -> tuple[str, ...]:
    when = moment(task.started_at) if now is None else age(task.started_at, now)
    replans = "" if task.replans is None else str(task.replans)
    # The need of an approval is no fault of a task that waits for it: the request below the line says it.
    fault = "" if task.request and task.last_fault == Code.NEEDS_APPROVAL else one_line(task.last_fault or "")
    return task.status, when, one_line(task.task_id), replans, fault, one_line(task.task)


def _fitted(widths: Sequence[int], width: int) -> list[int]:
    """Column widths that fit into `width`: first the task's text is cut, then the fault's code, then the task's id."""
    # The beginning of an id is enough for every command.
    status, when, id, replans, fault, text = widths
    free = width - status - when - replans - len(GAP) * (len(widths) - 1)
    fault = min(fault, max(MIN_FAULT, free - id - min(text, MIN_TEXT)))
    id = min(id, max(MIN_ID, free - fault - min(text, MIN_TEXT)))
    return [status, when, id, replans, fault, max(0, min(text, free - fault - id))]


def _more(task: Listed, width: int | None, now: datetime) -> list[str]:
    """The lines below the line of a task: a problem or a request, and its command; one line if `width` is None."""
    if task.failing:
        sign, about, command = "!", task.failing.short, starter("show", task.task_id)
    elif task.paused and (task.status is TaskStatus.PAUSED or not task.request):
        what = one_line(", ".join(pause.activity or "the task" for pause in task.paused))
        sign, about = SIGNS[StepStatus.PAUSED], f"{what} {pause_text(task.paused[0])}"
        command = starter("show", task.task_id)
    elif task.request:
        sign = f"? since {age(task.request.since, now)},"
        question = f"{one_line(task.request.reason)}{suggested(task.request.options)}"
        incident = f" (incident {one_line(task.request.cause)})" if task.request.cause else ""
        about = f"{subject_of(task.request)}{incident}: {question}"
        command = starter("answer", task.task_id)
    elif task.reason:
        sign, about, command = "?", one_line(task.reason), ""
    else:
        return []
    if width is None:
        parts = [about, f"`{command}`"] if task.failing else [f"`{command}`" if command else "", about]
        return [f"    {sign} {': '.join(filter(None, parts))}"]
    return [*_wrapped(f"    {sign} {about}", width), *(_wrapped(f"      {command}", width) if command else ())]


def _wrapped(line: str, width: int) -> list[str]:
    """At most MAX_ROWS rows; an ellipsis stands for the words that are left out."""
    first, *others = wrap(line, width - 4)  # with room for the indent and the ellipsis
    rows = [first, *(f"  {row}" for row in others)]
    if len(rows) > MAX_ROWS:
        rows = [*rows[: MAX_ROWS - 1], f"{rows[MAX_ROWS - 1]} …"]
    return [cut(row, width) for row in rows]


async def tasks(client: Client, common: Common, *, status: TaskStatus | None, query: str | None, limit: int) -> int:
    """Print at most `limit` tasks that `status` and the list filter `query` select; returns the exit code."""
    listed, note = await list_tasks(client, status=status, query=query, limit=limit)
    if note:  # on stderr, so that stdout stays one document or one table
        print(f"note: {note}", file=sys.stderr)
    if common.json:
        print(document.of_anything({"tasks": listed}))
    elif not listed:
        print(nothing(status, query))
    else:
        print("\n".join(table(listed, output_width(), datetime.now(UTC))))
    return Exit.COMPLETED


def nothing(status: TaskStatus | None, query: str | None) -> str:
    """The sentence for a list without tasks."""
    if status or query:
        return f"There is no {f'{status} ' if status else ''}task here{' that the query finds' if query else ''}."
    return f'There is no task here yet: start one with `{STARTER} --task "..."`.'
