"""The commands that say how a task goes on: `cancel`, `reset`."""

from typing import Annotated

import typer

from console.options import Common, TaskId, command


async def cancel(*, id: TaskId = None, common: Common) -> int:
    """Ask a task to stop; what is done stays done."""
    from console import finding, stopping

    client = await common.connected()
    return await stopping.cancel(client, await finding.task(client, id), common)


async def reset(
    *,
    id: TaskId = None,
    to: Annotated[str, typer.Option(metavar="STEP", help="The step that is to be done again; `plan:N` asks anew.")],
    reason: Annotated[str | None, typer.Option(metavar="TEXT", help="Why, for the history.")] = None,
    common: Common,
) -> int:
    """Go on from just before a step, where nothing in the world would be changed twice."""
    from console import finding, resetting

    client = await common.connected()
    return await resetting.reset(client, await finding.task(client, id), common, to=to, why=reason)


COMMANDS = {
    "cancel": (command(cancel), "python starter.py cancel book-a-slot"),
    "reset": (command(reset), "python starter.py reset book-a-slot --to price"),
}
