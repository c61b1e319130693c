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
        print(document.of_anything(found.document(handle.id)))
        return Exit.COMPLETED
    lines = list[str]()
    for effect in found.effects:
        lines += _lines(effect, found.effects)
    for ledger in found.unread:
        lines.append(f"The ledger {ledger.where} cannot be read ({ledger.problem}): what it has is not listed.")
    for run in found.deleted_runs:
        lines.append(f"The history of its run {run} was deleted: of that, only what a ledger has is listed.")
    nothing = f"{handle.id} has changed nothing: neither its history nor a ledger has an effect of it."
    print_lines(map(printable, lines or [nothing]))
    return Exit.COMPLETED


def _lines(effect: TaskEffect, all: Sequence[TaskEffect]) -> list[str]:
    kind_of_effect = f" ({effect.effect})" if effect.effect else ""
    lines = [
        f"{words.moment(effect.at)}  {effect.step}  {effect.kind}{kind_of_effect}  {_standing(effect, all)}",
        f"    key {effect.key}",
    ]
    if effect.result is not None:
        lines.append(f"    {cut(one_line(canonical(effect.result)), MAX_RESULT)}")
    return lines


def _standing(effect: TaskEffect, all: Sequence[TaskEffect]) -> str:
    if effect.state is EffectState.UNKNOWN:
        return "outcome unknown"
    if effect.state is EffectState.APPLIED:
        return f"applied, and took back {effect.undoes}" if effect.undoes else "applied"
    by = next((f"{other.step} ({other.kind})" for other in all if other.key == effect.undone_by), effect.undone_by)
    return f"undone at {words.moment(effect.undone_at)} by {by}" if effect.undone_at else f"undone by {by}"
