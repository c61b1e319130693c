"""Tasks as aligned lines: fitted to a terminal, whole in a file."""

from collections.abc import Sequence
from datetime import UTC, datetime

from pydantic import BaseModel, ConfigDict
from rich.cells import cell_len, set_cell_size

from console.shown import starter
from console.tree import one_line
from console.workflow_task import FailingTask
from workflows.task import TaskStatus

HEADING = ("STATUS", "STARTED", "ID", "REPLANS", "LAST FAULT", "TASK")
GAP = "  "
MIN_ID = 20
MIN_TEXT = 12
MIN_FAULT = 10
"""Columns that a terminal keeps for an id, for the task's words and for its last fault."""


class Listed(BaseModel):
    """A task in a list."""

    model_config = ConfigDict(frozen=True)

    task_id: str
    run_id: str
    task: str
    status: TaskStatus
    reason: str | None
    """The question or the sentence of one that needed a person."""
    started_at: datetime
    ended_at: datetime | None
    replans: int | None
    """None, like the three below, where the namespace does not have our search attributes, or before it began."""
    last_fault: str | None
    planner: str | None
    strategy: str | None
    ui_url: str | None
    failing: FailingTask | None = None
    """Why it runs and cannot go on."""


def table(listed: Sequence[Listed], width: int | None, now: datetime) -> list[str]:
    """A line for each task below a heading, cut to `width` columns; whole, with dates for ages, without one."""
    cells = [
        HEADING if width is None else (HEADING[0], "AGE", *HEADING[2:]),
        *(_cells(one, None if width is None else now) for one in listed),
    ]
    widths = [max(cell_len(row[column]) for row in cells) for column in range(len(HEADING))]
    if width is not None:
        widths = _fitted(widths, width)
    lines = [_cut(line, width) if width else line for line in (_line(row, widths) for row in cells)]
    below = [_below(one, width) for one in listed]
    return [lines[0], *(line for pair in zip(lines[1:], below, strict=True) for line in pair if line)]


def _cells(one: Listed, now: datetime | None) -> tuple[str, ...]:
    when = f"{one.started_at.astimezone(UTC):%Y-%m-%d %H:%M:%SZ}" if now is None else age(one.started_at, now)
    replans = "" if one.replans is None else str(one.replans)
    return one.status, when, one_line(one.task_id), replans, one_line(one.last_fault or ""), one_line(one.task)


def age(then: datetime, now: datetime) -> str:
    """How long ago, in one unit."""
    seconds = max(0, int((now - then).total_seconds()))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def _fitted(widths: Sequence[int], width: int) -> list[int]:
    """Widths that fit: the task's words are cut first, then the fault's code, then the id.

    The beginning of an id is enough for every command.
    """
    status, when, id, replans, fault, text = widths
    free = width - status - when - replans - len(GAP) * (len(widths) - 1)
    fault = min(fault, max(MIN_FAULT, free - id - min(text, MIN_TEXT)))
    id = min(id, max(MIN_ID, free - fault - min(text, MIN_TEXT)))
    return [status, when, id, replans, fault, max(0, min(text, free - fault - id))]


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    return GAP.join(set_cell_size(_cut(cell, wide), wide) for cell, wide in zip(row, widths, strict=True)).rstrip()


def _below(one: Listed, width: int | None) -> str:
    if not (one.reason or one.failing):
        return ""
    shows = f"`{starter('show', one.task_id)}`"
    line = f"    ! {one.failing.short}: {shows}" if one.failing else f"    ? {one_line(one.reason or '')}"
    return line if width is None else _cut(line, width)


def _cut(text: str, width: int) -> str:
    return text if cell_len(text) <= width else set_cell_size(text, width - 1).rstrip() + "…" if width else ""
