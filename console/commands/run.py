"""The commands that do something: `start`, `call`."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from console.options import Common, Jsonl, command


async def start(
    *,
    task: Annotated[str | None, typer.Option(help="What to do, in words.")] = None,
    plan: Annotated[Path | None, typer.Option(help="A hand-written plan: JSON, used instead of the planner's.")] = None,
    id: Annotated[str | None, typer.Option("--id", help="The id of the task; else made from its words.")] = None,
    again: Annotated[bool, typer.Option("--again", help="Start anew under the id of a task that has ended.")] = False,
    documents: Annotated[str | None, typer.Option(help="A folder below the worker's --documents.")] = None,
    tool_calls: Annotated[int, typer.Option(min=1, help="Calls of tools that the task may make.")] = 100,
    replans: Annotated[int, typer.Option(min=0, help="New plans that the task may make.")] = 2,
    deadline: Annotated[float | None, typer.Option(help="Seconds after which the task ends.")] = None,
    on_escalation: Annotated[
        Literal["end", "undo"],
        typer.Option(help="What becomes of its effects when it needs a person: stay, or undone."),
    ] = "end",
    detach: Annotated[bool, typer.Option("--detach", help="Start it and return at once.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the plan and what it would change, run nothing; JSON for --plan.")
    ] = False,
    jsonl: Jsonl = False,
    common: Common,
) -> int:
    """Start a task and follow it."""
    from console import start as starting
    from console import watching

    watching.check(common, jsonl=jsonl, follows=not (detach or dry_run))
    starting.check(id, detach=detach, dry_run=dry_run)
    limits = {"tool_calls": tool_calls, "replans": replans, "deadline": deadline}
    wanted = starting.wanted(task, plan, documents, limits, on_escalation)
    client = await common.connected()
    if dry_run:
        from console import dry_run as looking

        return await looking.dry_run(client, wanted, common)
    handle = await starting.start(client, wanted, id=id, queue=common.queue, again=again)
    if detach:
        return await watching.detached(client, handle, common)
    return await watching.follow(client, handle, common, jsonl=jsonl)


async def call(
    *,
    kind: Annotated[str, typer.Argument(metavar="KIND", help="The tool.")],
    arguments: Annotated[str, typer.Argument(metavar="JSON", help="Its arguments as JSON, or @FILE.")] = "{}",
    common: Common,
) -> int:
    """Run one step: the quickest way to try a tool."""
    from console import tools as asking

    read = asking.read_arguments(arguments)  # before anything is connected
    return await asking.call(await common.connected(), common, kind, read)


COMMANDS = {
    "start": (command(start), 'python starter.py start --task "search the documents for refund policy" --json'),
    "call": (command(call), """python starter.py call get_price '{"sku": "A-17"}'"""),
}
