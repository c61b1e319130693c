"""The commands that say how a task goes on, or back: `cancel`, `undo`, `reset`."""

from typing import Annotated

import typer

from console.options import Common, TaskId, command


async def cancel(
    *,
    id: TaskId = None,
    undo: Annotated[bool, typer.Option("--undo", help="And to take back what it has done.")] = False,
    common: Common,
) -> int:
    """Ask a task to stop; what is done stays done, unless it is to be undone."""
    from console import finding, stopping

    client = await common.connected()
    return await stopping.cancel(client, await finding.task(client, id), common, undo=undo)


async def undo(*, id: TaskId = None, common: Common) -> int:
    """Take back what a closed task did, the newest first; as often as you like, nothing is undone twice."""
    from console import finding, undoing

    client = await common.connected()
    return await undoing.undo(client, await finding.task(client, id), common)


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
    "undo": (command(undo), "python starter.py undo book-a-slot"),
    "reset": (command(reset), "python starter.py reset book-a-slot --to price"),
}
