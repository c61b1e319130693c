"""`python -m benchmarks.ledger`: what the ledger adds to an effect of a task, and what a call without a task costs.

Both on databases as they are used: every commit is on the disk.
"""

import asyncio
import itertools
import math
import secrets
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated

import typer
from pydantic import BaseModel, ConfigDict, JsonValue
from rich.console import Console
from rich.progress import Progress
from rich.table import Table as Rows
from sqlalchemy import Column, Integer, MetaData, String, Table, insert
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from activities.effects.ledger import LedgerEntry, apply_in_transaction
from activities.storage.store import open_store, sqlite_url, writing
from benchmarks import report
from benchmarks.report import Figure, Figures, Goal, Machine, Report, Verdict
from evals.fakes import postgresql
from replan.effects import Effects
from runtime.dev_server import free_port
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
SQLITE = "SQLite"
WARM_UP = 20
"""Calls before the measured ones: the first statements of a process pay for caches and connections."""
LIMIT = 2.0
"""Milliseconds that the ledger may add to an effect."""


def _added(figures: Figures) -> float | None:
    alone, once = figures[ALONE][CALL], figures[ONCE][CALL]
    return round(once.median - alone.median, 3) if alone and once else None


GOAL = Goal(f"what the ledger adds to an effect at the median, at most {LIMIT:g} ms a step", LIMIT, _added)


CLAIM_LIMIT = 3.0
"""Milliseconds that a claimed call may take longer than the bare function, on SQLite."""


class Percentiles(BaseModel):
    """Milliseconds of calls."""

    model_config = ConfigDict(frozen=True)

    p50: float
    p99: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Percentiles":
        """Those of at least one value."""
        ordered = sorted(values)
        place = math.ceil(len(ordered) * 0.99) - 1
        return cls(p50=round(statistics.median(ordered), 3), p99=round(ordered[place], 3))

    def __str__(self) -> str:
        return f"{self.p50:.2f}, {self.p99:.2f}"


class ClaimedCall(BaseModel):
    """A function of `replan.effects`, and the same one without it."""

    model_config = ConfigDict(frozen=True)

    store: str
    is_async: bool
    bare: Percentiles
    claimed: Percentiles

    @property
    def title(self) -> str:
        return f"{'async def' if self.is_async else 'def'}, {self.store}"

    @property
    def added_ms(self) -> float:
        """At the median."""
        return round(self.claimed.p50 - self.bare.p50, 3)


def _judged(claims: Sequence[ClaimedCall]) -> Verdict:
    """Whether claimed calls on SQLite are fast enough."""
    added = max((claim.added_ms for claim in claims if claim.store == SQLITE), default=None)
    text = f"what a claim adds to a call on {SQLITE} at the median, at most {CLAIM_LIMIT:g} ms"
    return Verdict.of(text, CLAIM_LIMIT, added)


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
    claims: tuple[ClaimedCall, ...] = ()
    """Calls without a task."""
    goals: tuple[Verdict, ...]

    @classmethod
    def of(
        cls,
        samples: Mapping[str, Sequence[float]],
        calls: int,
        pragmas: Mapping[str, str],
        loads: tuple[float, float],
        claims: Sequence[ClaimedCall] = (),
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
            claims=tuple(claims),
            goals=(GOAL.judged(arms), *([_judged(claims)] if claims else [])),
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

    def claimed_table(self) -> Rows:
        """Medians and 99th percentiles."""
        table = Rows("a call without a task, ms (p50, p99)", "bare", "claimed", "more at p50")
        for claim in self.claims:
            table.add_row(claim.title, str(claim.bare), str(claim.claimed), f"{claim.added_ms:+.2f}")
        return table


def main(
    json: Annotated[Path | None, typer.Option(help="Write the figures to this file.")] = None,
    calls: Annotated[int, typer.Option(min=1, help="How often each is measured.")] = CALLS,
    folder: Annotated[Path | None, typer.Option(help="Where the database lies for the time being.")] = None,
) -> None:
    """Measure an effect alone, with the ledger, and a replay of it, and say whether the goal is met."""
    found = asyncio.run(run(calls, folder))
    where = f"{found.calls} calls each on {found.machine}; load {found.load_before:g} -> {found.load_after:g}"
    Console().print(found.claimed_table())
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
        claims = [claim async for claim in measure_claims(calls, Path(place))]
    return LedgerReport.of(samples, calls, pragmas, (before, report.load()), claims)


async def measure_claims(calls: int, place: Path) -> AsyncIterator[ClaimedCall]:
    """Both sorts of functions on SQLite, and on PostgreSQL where it is installed."""
    async with AsyncExitStack() as stack:
        stores = {SQLITE: f"sqlite:///{place / 'effects.db'}"}
        if binaries := postgresql.find_postgresql():
            log, login = place / "postgresql.log", {"user": "replan", "password": secrets.token_hex(16)}
            cluster = postgresql.running(binaries, free_port(), **login, options=(), log=log)
            stores["PostgreSQL"] = (await stack.enter_async_context(cluster)).url("postgres")
        for store, url in stores.items():
            for is_async in (False, True):
                yield await asyncio.to_thread(_claims, store, url, calls, is_async=is_async)


def _claims(store: str, url: str, calls: int, *, is_async: bool) -> ClaimedCall:
    """Call a function as it is and as an effect in turn; it does nothing, so that the difference is what is added."""
    samples: dict[str, list[float]] = defaultdict(list)
    with Effects(url, session=f"benchmark {is_async}") as effects:
        bare, claimed = _nothing, effects.unkeyed(name="nothing")(_nothing)
        waiting = effects.unkeyed(name="waiting")(_wait_for_nothing)

        async def call_async() -> None:
            for number in range(calls + WARM_UP):
                for arm, function in ((ALONE, _wait_for_nothing), (ONCE, waiting)):
                    began = time.perf_counter()
                    await function(number)
                    samples[arm].append((time.perf_counter() - began) * 1000)

        if is_async:
            asyncio.run(call_async())
        for number in range(0 if is_async else calls + WARM_UP):
            for arm, function in ((ALONE, bare), (ONCE, claimed)):
                began = time.perf_counter()
                function(number)
                samples[arm].append((time.perf_counter() - began) * 1000)
    alone, once = (Percentiles.of(samples[arm][WARM_UP:]) for arm in (ALONE, ONCE))
    return ClaimedCall(store=store, is_async=is_async, bare=alone, claimed=once)


def _nothing(number: int) -> dict[str, int]:
    return {"number": number}


async def _wait_for_nothing(number: int) -> dict[str, int]:
    return _nothing(number)


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
