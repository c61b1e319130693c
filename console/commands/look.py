"""The commands that look and change nothing: `list`, `show`, `explain`, `effects`, `transcript`, `tools`."""

from typing import Annotated

import typer

from console.options import Common, Jsonl, TaskId, command


async def tasks(
    *,
    status: Annotated[str | None, typer.Option(metavar="STATUS", help="Only those that stand so.")] = None,
    query: Annotated[str | None, typer.Option(metavar="FILTER", help="Only those that this filter finds.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many at most.")] = 20,
    common: Common,
) -> int:
    """List tasks, newest first, with what needs a person."""
    from console.commands import list_tasks

    wanted = list_tasks.status_named(status)
    return await list_tasks.tasks(await common.connected(), common, status=wanted, query=query, limit=limit)


async def show(
    *,
    id: TaskId = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Stay until the task ends.")] = False,
    result: Annotated[str | None, typer.Option(metavar="STEP", help="Only what this step returned, whole.")] = None,
    jsonl: Jsonl = False,
    common: Common,
) -> int:
    """Show a task: plans, steps, faults, result."""
    from client import tasks as finding
    from console.commands import show as results
    from console.commands import show as watching

    watching.check(common, jsonl=jsonl, follows=follow)
    client = await common.connected()
    handle = await finding.find_task(client, id)
    if result is not None:
        return await results.print_result(client, handle, await common.at(handle), result)
    if not follow:
        return await watching.show(client, handle, common)
    return await watching.follow(client, handle, common, jsonl=jsonl)


async def explain(
    *,
    id: TaskId = None,
    step: Annotated[str | None, typer.Option(metavar="STEP", help="Only what concerns this step.")] = None,
    common: Common,
) -> int:
    """Say why a task did what it did, from its history."""
    from client import tasks as finding
    from console.commands import explain as explaining

    client = await common.connected()
    return await explaining.explain(client, await finding.find_task(client, id), common, step)


async def effects(*, id: TaskId = None, common: Common) -> int:
    """List what a task did to the world, or may have, with keys; a worker looks into its ledgers."""
    from client import tasks as finding
    from console.commands import effects as listing

    client = await common.connected()
    handle = await finding.find_task(client, id)
    return await listing.effects(client, handle, await common.at(handle))


async def transcript(
    *,
    id: TaskId = None,
    full: Annotated[bool, typer.Option("--full", help="All of each turn, with the marks around foreign text.")] = False,
    common: Common,
) -> int:
    """Print what a task's model was told and what it said, turn by turn; a worker has it."""
    from client import tasks as finding
    from console.commands import transcript as printing

    client = await common.connected()
    handle = await finding.find_task(client, id)
    return await printing.transcript(client, handle, await common.at(handle), full=full)


async def tools(
    *,
    kind: Annotated[str | None, typer.Argument(metavar="KIND", help="One tool, with what it takes.")] = None,
    common: Common,
) -> int:
    """List what a live worker can do."""
    from console.commands import tools as asking

    return await asking.tools(await common.connected(), common, kind)


COMMANDS = {
    "list": (command(tasks), "python starter.py list --status escalated"),
    "show": (command(show), "python starter.py show book-a-slot --follow"),
    "explain": (command(explain), "python starter.py explain book-a-slot --step book"),
    "effects": (command(effects), "python starter.py effects book-a-slot"),
    "transcript": (command(transcript), "python starter.py transcript book-a-slot --full"),
    "tools": (command(tools), "python starter.py tools book_slot"),
}
