"""The commands that look and change nothing: `show`, `tools`."""

from typing import Annotated

import typer

from console.options import Common, TaskId, command


async def show(
    *,
    id: TaskId = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Stay until the task ends.")] = False,
    common: Common,
) -> int:
    """Show a task: plans, steps, faults, result."""
    from console import finding, watching

    client = await common.connected()
    handle = await finding.task(client, id)
    return await (watching.follow if follow else watching.show)(client, handle, common)


async def tools(
    *,
    kind: Annotated[str | None, typer.Argument(metavar="KIND", help="One tool, with what it takes.")] = None,
    common: Common,
) -> int:
    """List what a live worker can do."""
    from console import tools as asking

    return await asking.tools(await common.connected(), common, kind)


COMMANDS = {
    "show": (command(show), "python starter.py show book-a-slot --follow"),
    "tools": (command(tools), "python starter.py tools book_slot"),
}
