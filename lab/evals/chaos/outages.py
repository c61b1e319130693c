"""The Temporal server is stopped for longer than heartbeats are waited for; the store is restored from a backup."""

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace

from client.workers import find_lost_rows
from evals.chaos.placed import Cell, Expected
from evals.chaos.races import Race
from evals.chaos.stage import Stage
from evals.chaos.world import read_notes

OUTAGES = 2
"""How many cells `outages` returns."""
CALLS = 5
STOP_SECONDS = 60.0
"""Longer than heartbeats are waited for, and than a worker's request waits for an answer before it is given up."""
BEGIN_SECONDS = 30.0
POLL_SECONDS = 0.05
LOOK_SECONDS = 10.0
ONCE = Expected(statuses=("completed",), effects=(1,))


async def outages(stage: Stage, seed: int, changed: Callable[[], None]) -> list[Cell]:
    """Make both outages; `changed` is called after each."""
    cells = list[Cell]()
    for outage in (server_stop(stage, seed), restored_store(stage, seed)):
        cells.append(await outage)
        changed()
    return cells


async def server_stop(stage: Stage, seed: int) -> Cell:
    """Stop the server while unkeyed calls run: they end meanwhile, and the ledger alone knows their results."""
    cell = Cell(effect="unkeyed, without", point="server stopped", expected=ONCE)
    tasks = [Race.of(stage, f"stopped-{seed}-{number}", "pay_slowly", "stopped") for number in range(CALLS)]
    async with stage.fleet("stopped", 1):
        for task in tasks:
            await task.runner.start(task.job)
        if not await _comes(lambda: sum(note.kind == "pay_slowly" for note in read_notes(stage.notes)) >= CALLS):
            cell.remark = "given up: the calls did not begin"
        await stage.server.freeze(STOP_SECONDS)
        for task in tasks:
            async with task.recorded(cell):
                await task.wait_closed()
    return cell


async def restored_store(stage: Stage, seed: int) -> Cell:
    """Put an older copy of the store back while no worker runs: finished calls stay finished, their rows are missed."""
    cell = Cell(effect="unkeyed, without", point="store restored", expected=ONCE)
    file, copy = stage.folder / "restored.db", stage.folder / "older.db"
    own = replace(stage, databases=replace(stage.databases, store=f"sqlite+aiosqlite:///{file}"))
    task = Race.of(own, f"restored-{seed}", "pay_blindly")
    async with task.recorded(cell):
        async with own.fleet(task.queue, 0) as fleet:
            # It dies in the step that follows the payment.
            worker = await fleet.add("--dev", "--break", "get_rate=die@before_claim:1")
            with closing(sqlite3.connect(file)) as store:
                store.execute("VACUUM INTO ?", [str(copy)])
            await task.runner.start(task.job)
            if not await _comes(lambda: not worker.is_alive):
                cell.remark = "given up: the worker did not die"
        for part in (file, *file.parent.glob(f"{file.name}-*")):
            part.unlink(missing_ok=True)
        copy.rename(file)
        async with own.fleet(task.queue, 1):
            await task.wait_closed()
            lost = (await find_lost_rows(stage.client, task.queue, CALLS, LOOK_SECONDS)).tasks
            if dict(lost) != {task.job.id: ["s1"]}:
                cell.remark = f"the tasks without their rows are {dict(lost)}"
    return cell


async def _comes(is_true: Callable[[], bool]) -> bool:
    """Wait until something is true; False if that takes longer than BEGIN_SECONDS."""
    for _ in range(int(BEGIN_SECONDS / POLL_SECONDS)):
        if is_true():
            return True
        await asyncio.sleep(POLL_SECONDS)
    return False
