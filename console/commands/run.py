"""The commands that do something: `start`, `call`."""

from pathlib import Path
from typing import Annotated

import typer

from console.options import Common, command


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
    detach: Annotated[bool, typer.Option("--detach", help="Start it and return at once.")] = False,
    common: Common,
) -> int:
    """Start a task and follow it."""
    from console import start as starting
    from console import watching

    limits = {"tool_calls": tool_calls, "replans": replans, "deadline": deadline}
    wanted = starting.wanted(task, plan, documents, limits)
    client = await common.connected()
    handle = await starting.start(client, wanted, id=id, queue=common.queue, again=again)
    return await (watching.detached if detach else watching.follow)(client, handle, common)


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
