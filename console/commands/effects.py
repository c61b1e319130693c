"""`effects`: list what a task changed in the world, with idempotency keys, from its history and a worker's ledgers."""

from collections.abc import Sequence

from client import document, tasks
from client.effects import EffectState, TaskEffect
from client.explain import words
from client.text import cut, one_line, printable
from client.workers import list_effects
from console.exits import Exit
from console.options import Common, TaskId
from console.render.terminal import print_lines
from workflows.json_values import canonical

MAX_RESULT = 400


async def effects_command(*, id: TaskId = None, common: Common) -> int:
    """Print every effect of a task that was applied or may have been, the oldest first.

    A worker reads its ledgers for that; Problem if no worker answers.
    """
    client = await common.connected()
    handle = await tasks.find_task(client, id)
    found = await list_effects(client, handle)
    if common.json:
        told = [effect.model_dump(mode="json") for effect in found.effects]
        unread = [one.model_dump(mode="json") for one in found.unread]
        fields = {"task_id": handle.id, "effects": told, "unread": unread, "deleted_runs": list(found.deleted_runs)}
        print(document.of_anything(fields))
        return Exit.COMPLETED
    lines = list[str]()
    for one in found.effects:
        lines += _lines(one, found.effects)
    for ledger in found.unread:
        lines.append(f"The ledger {ledger.where} cannot be read ({ledger.problem}): what it has is not listed.")
    for run in found.deleted_runs:
        lines.append(f"The history of its run {run} was deleted: of that, only what a ledger has is listed.")
    nothing = f"{handle.id} has changed nothing: neither its history nor a ledger has an effect of it."
    print_lines(map(printable, lines or [nothing]))
    return Exit.COMPLETED


def _lines(one: TaskEffect, all: Sequence[TaskEffect]) -> list[str]:
    effect = f" ({one.effect})" if one.effect else ""
    said = [f"{words.moment(one.at)}  {one.step}  {one.kind}{effect}  {_standing(one, all)}", f"    key {one.key}"]
    if one.result is not None:
        said.append(f"    {cut(one_line(canonical(one.result)), MAX_RESULT)}")
    return said


def _standing(one: TaskEffect, all: Sequence[TaskEffect]) -> str:
    if one.state is EffectState.UNKNOWN:
        return "outcome unknown"
    if one.state is EffectState.APPLIED:
        return f"applied, and took back {one.undoes}" if one.undoes else "applied"
    by = next((f"{other.step} ({other.kind})" for other in all if other.key == one.undone_by), one.undone_by)
    return f"undone at {words.moment(one.undone_at)} by {by}" if one.undone_at else f"undone by {by}"
