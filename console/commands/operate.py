"""The commands of whoever runs the whole: `doctor`, `export`, `prune`."""

from typing import Annotated

import typer

from console.options import Common, TaskId, command


async def doctor(*, common: Common) -> int:
    """Check server, worker, store and tools; each with its remedy."""
    from console.commands import doctor as examining

    return await examining.doctor(common)


async def export(
    *,
    id: TaskId = None,
    file: Annotated[str, typer.Argument(metavar="FILE", help="Where to; `-` is standard output.")] = "-",
    redact: Annotated[bool, typer.Option("--redact", help="Placeholders for values: it can be given away.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite FILE if it exists.")] = False,
    common: Common,
) -> int:
    """Write a task's history to a file that replays, with the explanation beside it."""
    from client import tasks
    from console.commands import export as exporting

    exporting.require_writable(file, force=force)
    client = await common.connected()
    return await exporting.export(client, await tasks.find_task(client, id), common, file, redact=redact, force=force)


async def prune(
    *,
    days: Annotated[
        float, typer.Option("--older-than", metavar="DAYS", min=0, help="Only what is older; an hour at least.")
    ] = 30,
    common: Common,
) -> int:
    """Delete large payloads and conversations that closed tasks left in the store; histories stay without them."""
    from console.commands import prune as pruning

    return await pruning.prune(await common.connected(), common, days)


COMMANDS = {
    "doctor": (command(doctor), "python starter.py doctor --queue replan"),
    "export": (command(export), "python starter.py export book-a-slot report.json --redact"),
    "prune": (command(prune), "python starter.py prune --older-than 30"),
}
