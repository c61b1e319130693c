"""`transcript`: what a task's model was told and what it said, turn by turn, as a worker's store has it."""

import sys
from collections.abc import Sequence

from temporalio.client import Client

from console import document, finding, tools, turns
from console.cells import printable, wrapped
from console.options import Common
from console.outcome import Handle
from console.paint import Paint
from console.problem import Exit, Problem
from console.screen import size
from console.shown import starter
from workflows.inspect import Inquiry, TurnCard


async def transcript(client: Client, handle: Handle, common: Common, *, full: bool) -> int:
    """Print the newest conversation of a task, with those of earlier tasks that it carries on.

    Raises:
        Problem: no worker answers, or it is too old to keep conversations.
    """
    run = await finding.first_run(handle)
    cards = await _cards(client, common, run)
    names = await _names(client, {*(card.task for card in cards)} - {run}) | {run: handle.id}
    if common.json:
        told = [card.model_dump(mode="json") for card in cards]
        print(document.of_anything({"task_id": handle.id, "run": run, "tasks": names, "turns": told}))
        return Exit.COMPLETED
    _print(_lines(handle.id, cards, names, full=full))
    return Exit.COMPLETED


async def _cards(client: Client, common: Common, run: str) -> list[TurnCard]:
    """All turns, page by page."""
    cards = list[TurnCard]()
    while True:
        found = await tools.ask(client, common, Inquiry(about="transcript", run=run, skip=len(cards)))
        if found.transcript is None:
            remedy = "restart it on the version of this console"
            raise Problem("old_worker", "The worker is too old to keep conversations", remedy, Exit.FAILED)
        cards += found.transcript
        if not found.more:
            return cards


async def _names(client: Client, runs: set[str]) -> dict[str, str]:
    """The ids of tasks by their first runs, as far as the server has not forgotten them."""
    if not runs:
        return {}
    query = f"{finding.TASKS} AND RunId IN ({', '.join(repr(run) for run in sorted(runs))})"
    return {one.run_id: one.id async for one in client.list_workflows(query)}


def _lines(id: str, cards: Sequence[TurnCard], names: dict[str, str], *, full: bool) -> list[str]:
    if not turns.is_conversation(cards):
        why = "no model has planned it, or none has answered yet"
        where = "has no conversation in the store of its worker"
        return [printable(f"{id} {where}: {why}. `{starter('show', id)}` has its plans.")]
    first = names.get(cards[0].task, cards[0].task)
    carried = f"; it carries on {first}" if first != id else ""
    return [printable(f"{id}  {turns.tally(cards)}{carried}"), *turns.lines(cards, names, full=full)]


def _print(lines: Sequence[str]) -> None:
    """On a terminal wrapped and in colours, elsewhere as they are."""
    paint, live = Paint.of(sys.stdout), sys.stdout.isatty()
    width = size(sys.stdout)[0]
    for line in lines:
        print(paint.turn(wrapped(line, width) if live else line))
