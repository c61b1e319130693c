"""`report`: what many tasks did, added up from the server's list and their histories; no worker is asked."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from client import document
from client.client import Client
from client.problem import Problem
from client.report.report import MAX_TASKS
from client.text import printable
from client.tree import WIDTH
from console.arguments import read_duration
from console.commands.list_tasks import nothing
from console.exits import Exit
from console.files import require_writable, write_file
from console.options import Common, require_extra
from console.render import report_page
from console.render.report import printed
from console.render.terminal import terminal_size

ALL = "all"
MAX_SINCE = timedelta(days=3660)


async def report_command(
    *,
    since: Annotated[
        str, typer.Option(metavar="TIME", help="Tasks that ran within this time, e.g. 90m, 24h or 7d; or all.")
    ] = "24h",
    query: Annotated[
        str | None, typer.Option(metavar="FILTER", help="Only tasks that this Temporal list filter finds.")
    ] = None,
    html: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write it as one HTML page, too, with charts.")
    ] = None,
    limit: Annotated[
        int, typer.Option(min=1, metavar="N", help="At most so many tasks, those that ended last.")
    ] = MAX_TASKS,
    common: Common,
) -> int:
    within = read_since(since)
    if html is not None:
        require_extra("--html", "report")
        require_writable(html, replaces=True)
    client = Client(await common.connected(), queue=common.queue)
    with progress_bar() as progress:
        found = await client.report(since=within, query=query, limit=limit, progress=progress)
    if html is not None:
        write_file(report_page.page(found), html, replaces=True)
    if common.json:
        print(document.of_anything({**found.model_dump(mode="json"), "html": html}))
    else:
        width = terminal_size(sys.stdout)[0] if sys.stdout.isatty() else WIDTH
        print(printed(found, width) if found.tasks else _nothing(within, query))
        if html is not None:
            print(f"\nWith charts: {printable(html)}")
    return Exit.COMPLETED


def read_since(text: str) -> timedelta | None:
    """The time within which tasks ran; None for ALL. Raises Problem for what is no duration of at most MAX_SINCE."""
    if text == ALL:
        return None
    seconds = read_duration("--since", text) or 0.0
    if not 0 < seconds <= MAX_SINCE.total_seconds():
        reason = f"--since must be more than 0 and at most 10 years, not {text!r}"
        raise Problem("usage", reason, "write as in 24h, or all")
    return timedelta(seconds=seconds)


@contextmanager
def progress_bar() -> Iterator[Callable[[int, int], None] | None]:
    """Yield a function that shows on stderr how many of all tasks have been read; None if stderr is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    columns = TextColumn("Reading tasks"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda read, total: bar.update(task, completed=read, total=total)


def _nothing(within: timedelta | None, query: str | None) -> str:
    if within is None:
        return nothing(None, query)
    found = " that the query finds" if query else ""
    return f"No task{found} ran in this time: `--since {ALL}` reports on all that the server still has."
