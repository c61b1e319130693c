"""`cancel`: ask a task to stop and, with `--undo`, to undo what it has done."""

from typing import Annotated

import typer
from temporalio.client import Client

from client import document, undo as undoing
from client.pauses import pauses
from client.remedy import as_command
from client.tasks import Handle
from client.text import printable
from client.vouching import Voucher
from console.confirm import Yes, find_task, undo_confirmed
from console.exits import Exit
from console.options import Common, Identity, TaskId, voucher_of
from console.render.command import starter


async def cancel_command(
    *,
    id: TaskId = None,
    undo: Annotated[bool, typer.Option("--undo", help="Undo what it has done.")] = False,
    identity: Identity = None,
    yes: Yes = False,
    common: Common,
) -> int:
    voucher = voucher_of(identity)
    client = await common.connected()
    handle = await find_task(client, id, common, command="cancel", yes=yes)
    return await cancel(client, handle, common, voucher, undo=undo)


async def cancel(
    client: Client, handle: Handle, common: Common, voucher: Voucher | None = None, *, undo: bool = False
) -> int:
    """Ask a running task to stop; returns 3 if its workflow task fails, so that it cannot stop yet, else 0."""
    found = await undoing.cancel(client, handle, undo=undo, confirm=undo_confirmed(common), voucher=voucher)
    paused = [pause for pause in pauses(client, await handle.describe()) if pause.activity is None]
    sentence = f"{printable(handle.id)} was asked to stop{' and to undo what it has done' if undo else ''}."
    line = f"{sentence} See what is done: {starter('show', handle.id)}"
    failing = found and found.document(as_command)
    fields = {"task_id": handle.id, "cancel_requested": True, "undo": undo, "failing": failing, "paused": paused}
    if found is not None:
        line = f"{sentence} It cannot do that yet. {printable(found.problem().sentence(as_command))}"
    for pause in paused:
        line += f" It is paused, and stops when it is resumed: {pause.resume}"
    print(document.of_anything(fields) if common.json else line)
    return Exit.NEEDS_PERSON if found else Exit.COMPLETED
