"""`explain`: why a task did what it did, from its history alone; no worker is asked."""

import shutil
import sys
from typing import Annotated

import typer
from temporalio.client import Client

from client import document, tasks
from client.explain import explanation, page
from client.history import fetch
from client.remedy import as_command
from client.tasks import Handle
from console.exits import Exit
from console.options import Common, TaskId


async def explain_command(
    *,
    id: TaskId = None,
    step: Annotated[str | None, typer.Option(metavar="STEP", help="Only what concerns this step.")] = None,
    common: Common,
) -> int:
    client = await common.connected()
    return await explain(client, await tasks.find_task(client, id), common, step)


async def explain(client: Client, handle: Handle, common: Common, step: str | None) -> int:
    """Print why a task, or one step of it, did what it did."""
    explained = explanation.explain_task(await fetch.fetch_history(client, handle))
    chosen = explained.step(step) if step is not None else None
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    if common.json:
        print(document.of_anything(chosen.document() if chosen else explained.document(as_command)))
    else:
        lines = page.step_lines(chosen, width) if chosen else page.page_lines(explained, width)
        print("\n".join(lines))
    return Exit.COMPLETED
