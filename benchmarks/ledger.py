"""`python -m benchmarks.ledger`: what the ledger adds to an effect, in one run on SQLite as it is used."""

import asyncio
import itertools
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Annotated

import typer
from pydantic import JsonValue
from rich.console import Console
from rich.progress import Progress
from sqlalchemy import Column, Integer, MetaData, String, Table, insert
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from activities.ledger import Entry, once
from activities.store import open_store, sqlite_url, writing
from benchmarks import machine
from benchmarks.ledger_report import ALONE, ONCE, REPLAY, LedgerReport
from runtime.ending import leave

CALLS = 500
TRANSFERS = Table("transfers", MetaData(), Column("id", Integer, primary_key=True), Column("words", String(200)))
"""What a tool keeps."""

Call = Callable[[int], Awaitable[None]]
"""One call, by its number."""


def main(
    json: Annotated[Path | None, typer.Option(help="Write the figures to this file.")] = None,
    calls: Annotated[int, typer.Option(min=1, help="How often each is measured.")] = CALLS,
    folder: Annotated[Path | None, typer.Option(help="Where the database lies for the time being.")] = None,
) -> None:
    """Measure an effect alone, with the ledger, and a replay of it, and say whether the goal is met."""
    report = asyncio.run(run(calls, folder))
    show(report)
    if json:
        json.write_text(report.model_dump_json(indent=2, by_alias=True))
    leave(0)


async def run(calls: int, folder: Path | None = None) -> LedgerReport:
    """Measure in a database of its own in `folder`, which is removed afterwards."""
    before = machine.load()
    with (
        tempfile.TemporaryDirectory(prefix="replan-ledger-", dir=folder) as place,
        Progress(console=Console(stderr=True)) as bar,
    ):
        shown = bar.add_task("calls", total=calls)
        engine = await open_store(sqlite_url(Path(place)))
        try:
            async with writing(engine).begin() as tx:
                await tx.run_sync(TRANSFERS.metadata.create_all)
            samples = await measure(engine, calls, lambda: bar.update(shown, advance=1))
            pragmas = {name: await _pragma(engine, name) for name in ("journal_mode", "synchronous")}
        finally:
            await engine.dispose()
    return LedgerReport.of(samples, calls, pragmas, (before, machine.load()))


async def measure(engine: AsyncEngine, calls: int, progress: Callable[[], None]) -> Mapping[str, list[float]]:
    """Milliseconds of each call, the three in turn, each of them first as often as the others."""
    samples: dict[str, list[float]] = defaultdict(list)
    arms: dict[str, Call] = {ALONE: _Alone(engine), ONCE: _Once(engine), REPLAY: _Once(engine, replayed=True)}
    for call in arms.values():  # the first statements of a process pay for caches and connections
        await call(0)
    orders = itertools.cycle(itertools.permutations(arms))
    for number, order in zip(range(1, calls + 1), orders, strict=False):
        for name in order:
            began = time.perf_counter()
            await arms[name](number)
            samples[name].append((time.perf_counter() - began) * 1000)
        progress()
    return samples


async def _effect(tx: AsyncConnection) -> JsonValue:
    """What a tool does: one row, and a result like that of a booking."""
    id = await tx.scalar(insert(TRANSFERS).values(words="14:00 for the team").returning(TRANSFERS.c.id))
    return {"id": id, "at": "2026-03-02T14:00:00Z", "name": "the team"}


class _Alone:
    """The effect in its own transaction."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = writing(engine)

    async def __call__(self, number: int) -> None:
        async with self._engine.begin() as tx:
            await _effect(tx)


class _Once:
    """The same with the ledger: for the first time, or as a replay of the call that was made at first."""

    def __init__(self, engine: AsyncEngine, *, replayed: bool = False) -> None:
        self._engine = writing(engine)
        self._replayed = replayed

    async def __call__(self, number: int) -> None:
        key = "replayed" if self._replayed else f"step-{number}"
        entry = Entry(f"0b5f6c1e-8d1a-4c2b-9f0a-6f3c1d2e4a5b/{key}", "a-task", "step", "transfer", "d" * 24)
        async with self._engine.begin() as tx:
            await once(tx, entry, lambda: _effect(tx))


async def _pragma(engine: AsyncEngine, name: str) -> str:
    async with engine.connect() as connection:
        return str((await connection.exec_driver_sql(f"PRAGMA {name}")).scalar_one())


def show(report: LedgerReport) -> None:
    """Print the table and the verdict; plain text where stdout is no terminal."""
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(report.table())
    console.print(
        f"{report.calls} calls each on {report.machine}; load {report.load_before:g} -> {report.load_after:g}"
    )
    for verdict in report.goals:
        console.print(str(verdict), highlight=False, markup=False)


if __name__ == "__main__":
    typer.run(main)
