"""`python -m benchmarks.ledger`: what the ledger adds to an effect, in one run on SQLite as it is used."""

import asyncio
import itertools
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer
from pydantic import JsonValue
from rich.console import Console
from rich.progress import Progress
from rich.table import Table as Rows
from sqlalchemy import Column, Integer, MetaData, String, Table, insert
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from activities.effects.ledger import LedgerEntry, apply_in_transaction
from activities.storage.store import open_store, sqlite_url, writing
from benchmarks import report
from benchmarks.report import Figure, Figures, Goal, Machine, Report, Verdict
from runtime.process import leave

CALLS = 500
TRANSFERS = Table("transfers", MetaData(), Column("id", Integer, primary_key=True), Column("words", String(200)))
"""The table that the effect writes to."""
ALONE, ONCE, REPLAY = "alone", "once", "replay"
TITLES = {
    ALONE: "the effect alone",
    ONCE: "the effect and its row in the ledger",
    REPLAY: "a replay, which only reads the recorded result",
}
CALL = "call_ms"
LIMIT = 2.0
"""Milliseconds that the ledger may add to an effect."""


def _added(figures: Figures) -> float | None:
    alone, once = figures[ALONE][CALL], figures[ONCE][CALL]
    return round(once.median - alone.median, 3) if alone and once else None


GOAL = Goal(f"what the ledger adds to an effect at the median, at most {LIMIT:g} ms a step", LIMIT, _added)


class LedgerReport(Report):
    """What a call took, alone and with the ledger."""

    load_before: float
    load_after: float
    calls: int
    pragmas: dict[str, str]
    """SQLite's settings; 2 for `synchronous` is FULL."""
    arms: dict[str, dict[str, Figure | None]]
    """Milliseconds of a call."""
    added_ms: float | None
    goals: tuple[Verdict, ...]

    @classmethod
    def of(
        cls,
        samples: Mapping[str, Sequence[float]],
        calls: int,
        pragmas: Mapping[str, str],
        loads: tuple[float, float],
    ) -> "LedgerReport":
        """Sum the samples up."""
        arms = {arm: {CALL: Figure.of(samples.get(arm, ()))} for arm in TITLES}
        return cls(
            machine=Machine.this(),
            load_before=loads[0],
            load_after=loads[1],
            calls=calls,
            pragmas=dict(pragmas),
            arms=arms,
            added_ms=_added(arms),
            goals=(GOAL.judged(arms),),
        )

    def table(self) -> Rows:
        """Medians, in brackets the smallest and the largest."""
        table = Rows("one call, ms", "median", "more than alone")
        alone = self.arms[ALONE][CALL]
        for arm, title in TITLES.items():
            figure = self.arms[arm][CALL]
            more = f"{figure.median - alone.median:+.2f}" if figure and alone and arm != ALONE else ""
            spread = f"{figure.median:.2f} ({figure.low:.2f}-{figure.high:.2f})" if figure else ""
            table.add_row(title, spread, more)
        return table


def main(
    json: Annotated[Path | None, typer.Option(help="Write the figures to this file.")] = None,
    calls: Annotated[int, typer.Option(min=1, help="How often each is measured.")] = CALLS,
    folder: Annotated[Path | None, typer.Option(help="Where the database lies for the time being.")] = None,
) -> None:
    """Measure an effect alone, with the ledger, and a replay of it, and say whether the goal is met."""
    found = asyncio.run(run(calls, folder))
    where = f"{found.calls} calls each on {found.machine}; load {found.load_before:g} -> {found.load_after:g}"
    report.show(found.table(), [where], found.goals)
    report.write(found, json)
    leave(0)


async def run(calls: int, folder: Path | None = None) -> LedgerReport:
    """Measure in a new database in `folder`, which is removed afterwards."""
    before = report.load()
    with (
        tempfile.TemporaryDirectory(prefix="replan-ledger-", dir=folder) as place,
        Progress(console=Console(stderr=True)) as bar,
    ):
        task = bar.add_task("calls", total=calls)
        engine = await open_store(sqlite_url(Path(place)))
        try:
            async with writing(engine).begin() as tx:
                await tx.run_sync(TRANSFERS.metadata.create_all)
            samples = await measure(engine, calls, lambda: bar.update(task, advance=1))
            pragmas = {name: await _pragma(engine, name) for name in ("journal_mode", "synchronous")}
        finally:
            await engine.dispose()
    return LedgerReport.of(samples, calls, pragmas, (before, report.load()))


async def measure(engine: AsyncEngine, calls: int, progress: Callable[[], None]) -> Mapping[str, list[float]]:
    """Milliseconds of each call; the arms in turn, each of them first as often as the others."""
    samples: dict[str, list[float]] = defaultdict(list)
    engine = writing(engine)
    for arm in TITLES:  # the first statements of a process pay for caches and connections
        await _call(engine, arm, 0)
    orders = itertools.cycle(itertools.permutations(TITLES))
    for number, order in zip(range(1, calls + 1), orders, strict=False):
        for arm in order:
            began = time.perf_counter()
            await _call(engine, arm, number)
            samples[arm].append((time.perf_counter() - began) * 1000)
        progress()
    return samples


async def _call(engine: AsyncEngine, arm: str, number: int) -> None:
    """One call in a transaction of its own; a replay repeats call 0."""
    async with engine.begin() as tx:
        if arm == ALONE:
            await _effect(tx)
            return
        key = "replayed" if arm == REPLAY else f"step-{number}"
        entry = LedgerEntry(f"0b5f6c1e-8d1a-4c2b-9f0a-6f3c1d2e4a5b/{key}", "a-task", "step", "transfer", "d" * 24)
        await apply_in_transaction(tx, entry, lambda: _effect(tx))


async def _effect(tx: AsyncConnection) -> JsonValue:
    """Write one row, and return a result like that of a booking."""
    id = await tx.scalar(insert(TRANSFERS).values(words="14:00 for the team").returning(TRANSFERS.c.id))
    return {"id": id, "at": "2026-03-02T14:00:00Z", "name": "the team"}


async def _pragma(engine: AsyncEngine, name: str) -> str:
    async with engine.connect() as connection:
        return str((await connection.exec_driver_sql(f"PRAGMA {name}")).scalar_one())


if __name__ == "__main__":
    typer.run(main)
