"""`prune`: delete large payloads and conversations of closed tasks from the workers' store."""

from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer
from temporalio.client import Client

from client import document, workers
from client.wording import count
from console.exits import Exit
from console.options import Common


async def prune_command(
    *,
    days: Annotated[
        float, typer.Option("--older-than", metavar="DAYS", min=0, help="Only what is older; an hour at least.")
    ] = 30,
    common: Common,
) -> int:
    return await prune(await common.connected(), common, days)


async def prune(client: Client, common: Common, days: float) -> int:
    """Delete the payloads and conversations of closed tasks that were stored more than `days` ago."""
    before = datetime.now(UTC) - timedelta(days=days)
    all = await workers.prune(client, common.queue, before)
    if common.json:
        fields = {"pruned": all.payloads, "bytes": all.size, "turns": all.turns, "before": before.isoformat()}
        print(document.of_anything({**fields, "kept": all.kept, "ownerless": all.ownerless}))
        return Exit.COMPLETED
    what = f"{all.payloads} payloads, {all.size} bytes, and {all.turns} turns of conversations"
    print(f"pruned {what} that were stored before {before:%Y-%m-%d %H:%M} UTC")
    if all.kept:
        print(f"kept all of {count(all.kept, 'task')}, open or being undone")
    if all.ownerless:
        print(f"kept {all.ownerless} payloads that do not say whose they are: see docs/operations.md")
    return Exit.COMPLETED
