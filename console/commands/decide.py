"""The commands that say how a task goes on: `cancel`."""

from console.options import Common, TaskId, command


async def cancel(*, id: TaskId = None, common: Common) -> int:
    """Ask a task to stop; what is done stays done."""
    from console import finding, stopping

    client = await common.connected()
    return await stopping.cancel(client, await finding.task(client, id), common)


COMMANDS = {
    "cancel": (command(cancel), "python starter.py cancel book-a-slot"),
}
