"""`explain`: why a task did what it did, from its history alone; no worker is asked."""

import shutil
import sys

from temporalio.client import Client

from console import document
from console.explaining import explanation, one_step, page, runs
from console.options import Common
from console.outcome import Handle
from console.problem import Exit


async def explain(client: Client, handle: Handle, common: Common, step: str | None) -> int:
    """Print why a task, or one step of it, did what it did.

    Raises:
        Problem: the task never planned such a step.
    """
    explained = explanation.of(await runs.history(client, handle))
    chosen = one_step.of(explained, step) if step is not None else None
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    if common.json:
        print(document.of_anything(one_step.document(chosen) if chosen else explanation.document(explained)))
    else:
        print(
            "\n".join(page.set_rows(one_step.rows(chosen) if chosen else page.rows(explained), explained.story, width))
        )
    return Exit.COMPLETED
