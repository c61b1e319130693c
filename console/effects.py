"""`effects`: what a task did to the world, with keys, from a worker's ledger."""

from temporalio.client import Client

from console import document, tools
from console.cells import cut, one_line
from console.options import Common
from console.outcome import Handle
from console.problem import Exit, Problem
from workflows.inspect import Inquiry
from workflows.plan import canonical

MAX_RESULT = 400
"""Cells of a result in a line."""


async def effects(client: Client, handle: Handle, common: Common) -> int:
    """Print the effects of the task's transactional steps, the oldest first.

    Raises:
        Problem: no worker answers, or it is too old to have a ledger.
    """
    found = (await tools.ask(client, common, Inquiry(about="effects", task_id=handle.id))).effects
    if found is None:
        remedy = "restart it on the version of this console"
        raise Problem("old_worker", "The worker is too old to list effects", remedy, Exit.FAILED)
    if common.json:
        cards = [card.model_dump(mode="json") for card in found]
        print(document.of_anything({"task_id": handle.id, "effects": cards}))
        return Exit.COMPLETED
    for card in found:
        print(f"{card.at:%Y-%m-%d %H:%M:%S}  {card.step}  {card.kind}  key {card.key}")
        print(f"  {cut(one_line(canonical(card.result)), MAX_RESULT)}")
    if not found:
        print(f"The ledger of this worker's store has no effect of {handle.id}.")
    return Exit.COMPLETED
