"""`audit`: what any Temporal history says about retries and effects; it needs no worker, and changes nothing."""

import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from client import document
from client.problem import Problem
from client.tree import WIDTH
from client.wording import count
from console.exits import Exit
from console.files import require_writable, write_file
from console.options import Common, require_extra
from console.render.terminal import terminal_size
from extras.audit import rendering, sources
from extras.audit.report import Audit, AuditReport
from extras.audit.sources import Extent, Item

SAY_EVERY_SECONDS = 5.0
Watch = Callable[[int, Extent], None]
"""Shows progress: called with the number of histories read, and how much of the files or the list that is."""


async def audit_command(
    *,
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="FILES", help="Histories of any workflows: files, folders, zip archives, JSON lines; else --query."
        ),
    ] = None,
    query: Annotated[
        str | None,
        typer.Option(metavar="FILTER", help="Of the server, all workflows that this list filter finds; '' for all."),
    ] = None,
    limit: Annotated[int | None, typer.Option(metavar="N", min=1, help="With --query: at most so many.")] = None,
    html: Annotated[str | None, typer.Option(metavar="FILE", help="Write it as one HTML page, too.")] = None,
    common: Common,
) -> int:
    if (query is None) == (not files):
        reason = f"audit takes either files or --query, and has {'both' if files else 'neither'}"
        raise Problem("usage", reason, "name files with histories, or a filter")
    if query is None and limit is not None:
        raise Problem("usage", "--limit is for --query", "leave it out, or name fewer files")
    if html is not None:
        require_extra("--html", "report")
        require_writable(html, replaces=True)
    found = await _audit_workflows(common, query, limit) if query is not None else await _audit_files(files or [])
    if not found.histories and found.unread:
        name, reason = found.unread[0]
        remedy = "name files that the web UI, the `temporal` command or `export` wrote: docs/audit.md"
        raise Problem("bad_history", f"The file {name!r} {reason}", remedy)
    if html is not None:
        write_file(rendering.page(found), html, replaces=True)
    if common.json:
        print(document.of_anything(found.model_dump(mode="json")))
    else:
        print(rendering.printed(found, terminal_size(sys.stdout)[0] if sys.stdout.isatty() else WIDTH))
    return Exit.COMPLETED


async def _audit_files(files: list[Path]) -> AuditReport:
    extent = Extent()
    # Sorted out before the first of them is read, so that a wrong name does not show after an hour.
    items = sources.of_files(sources.files_of(files), extent)

    async def each() -> AsyncIterator[Item]:
        for item in items:
            yield item

    return await _audit_items(each(), extent)


async def _audit_workflows(common: Common, query: str, limit: int | None) -> AuditReport:
    client = await common.connected()
    total = await sources.count(client, query)
    extent = Extent(total=min(total, limit or total))
    return await _audit_items(sources.of_server(client, query, limit, extent), extent)


async def _audit_items(items: AsyncIterator[Item], extent: Extent) -> AuditReport:
    audit = Audit()
    with _watch() as watch:
        async for item in items:
            audit.take(item)
            watch(audit.histories, extent)
    return audit.report()


@contextmanager
def _watch() -> Iterator[Watch]:
    """Yield a function that shows on stderr how much has been read: a bar on a terminal, else a line now and then."""
    said_at = time.monotonic()

    def say(histories: int, extent: Extent) -> None:
        nonlocal said_at
        if time.monotonic() - said_at > SAY_EVERY_SECONDS:
            said_at = time.monotonic()
            part = f", {extent.done / extent.total:.0%}" if extent.total else ""
            print(f"{count(histories, 'history', 'histories')} read{part}", file=sys.stderr, flush=True)

    if not sys.stderr.isatty():
        yield say
        return
    what, number = TextColumn("Reading histories"), TextColumn("{task.fields[histories]}")
    columns = what, BarColumn(), number, TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None, histories=0)

        def show(histories: int, extent: Extent) -> None:
            nonlocal said_at
            if time.monotonic() - said_at > 0.1:  # not for each event
                said_at = time.monotonic()
                bar.update(task, completed=extent.done, total=extent.total or None, histories=histories)

        yield show
