"""`prune`: delete what closed tasks left in the workers' store."""

from datetime import UTC, datetime, timedelta

from temporalio.client import Client

from client.problem import Exit, Problem
from console.commands import tools
from console.options import Common
from console.render import document
from workflows.inspect import Pruned, PruneInquiry


async def prune(client: Client, common: Common, days: float) -> int:
    """Delete the payloads and conversations of closed tasks that were stored more than `days` ago.

    Raises:
        Problem: no worker answers, or it is too old to prune.
    """
    before = datetime.now(UTC) - timedelta(days=days)
    all = Pruned(payloads=0, size=0)
    inquiry = PruneInquiry(older_than=before, by=client.identity)
    while True:
        found = (await tools.ask(client, common, inquiry)).pruned
        if found is None:
            remedy = "restart it on the version of this console"
            raise Problem("old_worker", "The worker is too old to prune", remedy, Exit.FAILED)
        all = _sum(all, found)
        if found.after is None:
            break
        inquiry = inquiry.model_copy(update={"after": found.after})
    _say(all, before, common)
    return Exit.COMPLETED


def _sum(one: Pruned, other: Pruned) -> Pruned:
    counts = {name: getattr(one, name) + getattr(other, name) for name in ("payloads", "size", "turns", "kept")}
    return Pruned.model_validate({**counts, "ownerless": other.ownerless})


def _say(all: Pruned, before: datetime, common: Common) -> None:
    if common.json:
        fields = {"pruned": all.payloads, "bytes": all.size, "turns": all.turns, "before": before.isoformat()}
        print(document.of_anything({**fields, "kept": all.kept, "ownerless": all.ownerless}))
        return
    what = f"{all.payloads} payloads, {all.size} bytes, and {all.turns} turns of conversations"
    print(f"pruned {what} that were stored before {before:%Y-%m-%d %H:%M} UTC")
    if all.kept:
        print(f"kept all of {all.kept} task{'' if all.kept == 1 else 's'}, open or being undone")
    if all.ownerless:
        print(f"kept {all.ownerless} payloads and turns that do not say whose they are: see docs/operations.md")
