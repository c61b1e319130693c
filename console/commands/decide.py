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
    from client import tasks
    from console.commands import cancel as stopping

    client = await common.connected()
    return await stopping.cancel(client, await tasks.find_task(client, id), common, undo=undo)


async def undo(*, id: TaskId = None, common: Common) -> int:
    """Take back what a closed task did, the newest first; as often as you like, nothing is undone twice."""
    from client import tasks
    from console.commands import undo as undoing

    client = await common.connected()
    return await undoing.undo(client, await tasks.find_task(client, id), common)


async def reset(
    *,
    id: TaskId = None,
    to: Annotated[str, typer.Option(metavar="STEP", help="The step that is to be done again; `plan:N` asks anew.")],
    undo: Annotated[bool, typer.Option("--undo", help="First undo the effects after STEP that stand.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Let them stay, and tell the planner of them.")] = False,
    reason: Annotated[str | None, typer.Option(metavar="TEXT", help="Why, for the history.")] = None,
    common: Common,
) -> int:
    """Re-run from before STEP; refused if an effect could be applied twice."""
    from client import tasks
    from client.problem import Problem
    from client.reset import Fate
    from console.commands import reset as resetting

    if undo and keep:
        raise Problem("usage", "`--undo` and `--keep` do not go together", "give one of them")
    fate = Fate.UNDO if undo else Fate.KEEP if keep else None
    client = await common.connected()
    return await resetting.reset(client, await tasks.find_task(client, id), common, to=to, why=reason, fate=fate)


COMMANDS = {
    "cancel": (command(cancel), "python starter.py cancel book-a-slot"),
    "undo": (command(undo), "python starter.py undo book-a-slot"),
    "reset": (command(reset), "python starter.py reset book-a-slot --to price"),
}
