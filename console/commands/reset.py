"""`reset`: start a new run of a task, which continues from just before a step."""

import functools
from typing import Annotated

import typer
from temporalio.client import Client

from client import document, reset as resetting
from client.connection import ui_url_of
from client.problem import Problem
from client.reset import Fate, ResetResult, named
from client.tasks import Handle
from client.text import printable
from client.vouching import Voucher
from console.commands import show
from console.commands.undo import RollbackView
from console.confirm import Yes, find_task, undo_confirmed
from console.exits import Exit
from console.options import Common, Identity, TaskId, voucher_of
from console.render.command import starter


async def reset_command(
    *,
    id: TaskId = None,
    to: Annotated[str, typer.Option(metavar="STEP", help="The step to run again; `plan:N` asks the planner again.")],
    undo: Annotated[bool, typer.Option("--undo", help="First undo the effects after STEP that are applied.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Keep them, and tell the planner about them.")] = False,
    reason: Annotated[str | None, typer.Option(metavar="TEXT", help="Why, for the history.")] = None,
    identity: Identity = None,
    yes: Yes = False,
    common: Common,
) -> int:
    if undo and keep:
        raise Problem("usage", "`--undo` and `--keep` do not go together", "give one of them")
    voucher = voucher_of(identity)
    fate = Fate.UNDO if undo else Fate.KEEP if keep else None
    client = await common.connected()
    check = functools.partial(resetting.require_step, client, to=to)
    handle = await find_task(client, id, common, command="reset", yes=yes, check=check)
    return await reset(client, handle, common, to=to, why=reason, fate=fate, voucher=voucher)


async def reset(
    client: Client,
    handle: Handle,
    common: Common,
    *,
    to: str,
    why: str | None,
    fate: Fate | None = None,
    voucher: Voucher | None = None,
) -> int:
    """Start a new run of a task from just before its step `to` was first scheduled, and print what the run keeps."""
    reason = why or starter("reset", "--to", to)
    view = RollbackView(await common.at(handle), handle.id)
    done = await resetting.reset(
        client,
        handle,
        to=to,
        reason=reason,
        fate=fate,
        view=view,
        is_attended=show.is_attended(common),
        confirm=undo_confirmed(common),
        voucher=voucher,
    )
    _print_reset(client, handle.id, done, common)
    return Exit.COMPLETED


def _print_reset(client: Client, id: str, done: ResetResult, common: Common) -> None:
    kept, undone, point = [effect.step for effect in done.kept], [effect.step for effect in done.undone], done.point
    if common.json:
        ui_url = ui_url_of(client, id)
        fields = {"task_id": id, "run_id": done.run_id, "to": point.id, "event": point.task, "ui_url": ui_url}
        more = {"kept": kept, "undone": undone, "deleted_runs": list(done.deleted_runs)}
        print(document.of_anything({**fields, **more}))
        return
    where = f" and not only before {done.asked.id}, so that the planner is told" if point != done.asked else ""
    print(printable(f"{id} goes on from before {point.id}{where} (event {point.task})."))
    if kept:
        print(printable(f"What stays, and counts as done: {named(kept)}."))
    for run in done.deleted_runs:
        print(printable(f"The history of its run {run} was deleted: what that did was not looked at."))
    print(f"Follow: {starter('show', id, '--follow')}")
