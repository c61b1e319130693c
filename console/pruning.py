"""`prune`: delete what closed tasks left in the workers' store."""

from datetime import UTC, datetime, timedelta

from temporalio.client import Client

from console import document, tools
from console.finding import TASKS
from console.options import Common
from console.problem import Exit, Problem
from workflows.inspect import Inquiry


async def prune(client: Client, common: Common, days: float) -> int:
    """Delete the payloads that were stored more than `days` ago, and before any open task began.

    Raises:
        Problem: no worker answers, or it is too old to prune.
    """
    before = datetime.now(UTC) - timedelta(days=days)
    async for task in client.list_workflows(f"{TASKS} AND ExecutionStatus = 'Running'"):
        before = min(before, task.start_time)
    found = (await tools.ask(client, common, Inquiry(about="prune", before=before))).pruned
    if found is None:
        remedy = "restart it on the version of this console"
        raise Problem("old_worker", "The worker is too old to prune", remedy, Exit.FAILED)
    fields = {"pruned": found.payloads, "bytes": found.size, "turns": found.turns, "before": before.isoformat()}
    what = f"{found.payloads} payloads, {found.size} bytes, and {found.turns} turns of conversations"
    line = f"pruned {what} that were stored before {before:%Y-%m-%d %H:%M} UTC"
    print(document.of_anything(fields) if common.json else line)
    return Exit.COMPLETED
