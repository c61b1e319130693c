"""`python -m evals.chaos --tasks 300 --seed 7`: kills things while tasks run, and counts what happened."""

import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import BaseModel, computed_field
from rich.console import Console
from rich.progress import Progress, TaskID
from rich.table import Table

from benchmarks.report import Machine
from evals.chaos.account import Account
from evals.chaos.fleet import WorkerUnavailable
from evals.chaos.outages import OUTAGES, outages
from evals.chaos.placed import Cell, PlacedKills, placed_kills
from evals.chaos.races import LIVES, RACES, lives, races
from evals.chaos.stage import NoDatabase, Store, staged
from evals.chaos.tasks import jobs
from evals.chaos.trial import Action, Trial, amounts, schedule
from evals.fakes.postgresql import PostgresFailed
from evals.problems import first_problem
from runtime.client import NotConnected
from runtime.dev_server import ServerUnavailable
from runtime.process import leave

CHAINS = 4
"""Chains of placed kills at the same time."""
UNAVAILABLE = (NotConnected, ServerUnavailable, WorkerUnavailable, NoDatabase, PostgresFailed)


class Report(BaseModel):
    """What a trial came to."""

    tasks: int
    seed: int
    store: str
    busy: int = 0
    """How many processes computed beside it."""
    machine: str
    seconds: float = 0.0
    """Of the random part."""
    blows: dict[str, int] = {}
    """How often each disruption was made."""
    workers: dict[str, int] = {}
    """How many workers were killed, frozen, terminated, and ended by themselves."""
    account: Account | None = None
    """Of the random part."""
    placed: list[Cell] = []
    """Of the placed kills and the races."""
    stuck: str = ""
    """Why the trial was given up; empty if it was not."""

    @computed_field  # type: ignore[prop-decorator]  # as pydantic's own pages have it
    @property
    def broken(self) -> list[str]:
        """The promises that were broken, one line each."""
        broken = [self.stuck] if self.stuck else []
        broken += self.account.broken if self.account else []
        return broken + [f"placed: {cell}" for cell in self.placed if not cell.is_right]

    def tables(self) -> list[Table]:
        """For people."""
        tables = list[Table]()
        if self.account:
            tables.append(Table("what", "how many", title="Random disruptions", title_justify="left"))
            for what, figure in self._figures(self.account).items():
                tables[0].add_row(what, str(figure))
        if self.placed:
            columns = ("effect", "point", "ended", "effects", "expected", "")
            tables.append(Table(*columns, title="Placed kills", title_justify="left"))
            for cell in self.placed:
                tables[-1].add_row(*cell.row)
        return tables

    def _figures(self, account: Account) -> Mapping[str, Any]:
        return {
            "tasks": _counts(account.tasks),
            "why not completed": _counts(account.codes),
            "disruptions": _counts(self.blows),
            "workers": _counts(self.workers),
            "payment service": _counts(account.troubles),
            "effects applied": _counts(account.applied),
            "effects compared with outcomes": _counts(account.verdicts),
            "duplicates": account.duplicates,
            "lost": account.lost,
            "replayed results": account.replayed,
            "effects undone": account.undone,
            "unknown effects reconciled": _counts(account.reconciled),
            "steps by attempts": _counts(account.attempts),
            "finished steps that ran again": len(account.ran_again),
            "histories that do not replay": len(account.not_replaying),
            "total of all accounts": f"{account.total_before} -> {account.total_after}",
            "seconds": round(self.seconds),
        }


def _counts(counts: Mapping[Any, int]) -> str:
    return ", ".join(f"{count} x {what}" for what, count in counts.items()) or "none"


def main(
    tasks: Annotated[int, typer.Option(min=0, help="Tasks of the random part.")] = 300,
    seed: Annotated[int, typer.Option(help="The seed of everything that is drawn by chance.")] = 7,
    store: Annotated[Store, typer.Option(help="Where store and bank are kept.")] = Store.SQLITE,
    kills: Annotated[int, typer.Option(min=0, help="Workers that are killed at random.")] = 60,
    restarts: Annotated[int, typer.Option(min=0, help="How often the server is killed and started again.")] = 5,
    drops: Annotated[int, typer.Option(min=0, help="How often all connections to the server are cut.")] = 5,
    busy: Annotated[int, typer.Option(min=0, help="Processes that compute all the time beside it.")] = 0,
    placed: Annotated[bool, typer.Option(help="Whether to kill at chosen points, too.")] = True,
    json: Annotated[Path | None, typer.Option(help="Write the report to this file.")] = None,
    keep: Annotated[Path | None, typer.Option(help="A new folder for everything, which stays.")] = None,
) -> None:
    """Kill workers, server, connections and database while tasks run; exit code 1 when a promise was broken."""
    if keep is not None and keep.exists() and any(keep.iterdir()):
        raise typer.BadParameter(f"{keep} is not empty: name a new folder.", param_hint="--keep")
    wanted = amounts(kills, restarts, drops, has_database=store is Store.POSTGRESQL)
    report = Report(tasks=tasks, seed=seed, store=store, busy=busy, machine=str(Machine.this()))
    try:
        with tempfile.TemporaryDirectory(prefix="replan-chaos-") as folder, computing(busy):
            asyncio.run(run(report, keep or Path(folder), wanted, placed=placed))
    except* UNAVAILABLE as problems:
        typer.echo(first_problem(problems), err=True)
        leave(6)
    except* KeyboardInterrupt:
        leave(130)
    show(report)
    if json:
        json.write_text(report.model_dump_json(indent=2))
    leave(1 if report.broken else 0)


@contextmanager
def computing(count: int) -> Iterator[None]:
    """Keep as many processors busy as long as the block lasts."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


async def run(report: Report, folder: Path, wanted: Mapping[Action, int], *, placed: bool) -> None:
    """Fill in the report. Raises NotConnected, ServerUnavailable, WorkerUnavailable."""
    tasks, kills = jobs(report.tasks, report.seed), placed_kills(report.seed) if placed else []
    every_job = [*tasks, *(kill.job for kill in kills)]
    troubles = {reference: met for job in every_job for reference, met in job.troubles.items()}
    with Progress(console=Console(stderr=True)) as bar:
        async with staged(folder, Store(report.store), troubles) as stage:
            if tasks:
                row = bar.add_task("random disruptions", total=len(tasks))
                disruptions = schedule(wanted, report.seed)
                await _random(report, Trial(stage, tasks, disruptions, lambda trial: _show_trial(bar, row, trial)))
            if kills:
                row = bar.add_task("placed kills", total=len(kills) + RACES + OUTAGES + LIVES)
                report.placed = await PlacedKills(stage, lambda: bar.advance(row)).run(kills, CHAINS)
                report.placed += await races(stage, report.seed, lambda: bar.advance(row))
                report.placed += await outages(stage, report.seed, lambda: bar.advance(row))
                report.placed += await lives(stage, report.seed, lambda: bar.advance(row))


async def _random(report: Report, trial: Trial) -> None:
    began = time.monotonic()
    result = await trial.run()
    report.seconds = time.monotonic() - began
    report.account, report.stuck = result.account, result.stuck
    report.blows, report.workers = dict(result.disruptions), dict(result.workers)


def _show_trial(bar: Progress, row: TaskID, trial: Trial) -> None:
    killed, cut = trial.fleet.done["killed"], trial.stage.proxy.cut
    words = f"{killed} kills, {trial.stage.server.restarts} restarts, {cut} connections cut"
    bar.update(row, completed=len(trial.runner.finished), description=words)


def show(report: Report) -> None:
    """Print the tables and what was broken; plain text where stdout is no terminal."""
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(*report.tables(), sep="\n")
    for line in report.broken:
        console.print(line, highlight=False, markup=False)
    verdict = f"BROKEN: {len(report.broken)} promises" if report.broken else "kept: every promise"
    beside = f", beside {report.busy} busy processes" if report.busy else ""
    console.print(f"{verdict}. {report.tasks} tasks, seed {report.seed}, {report.store}{beside}, on {report.machine}")


if __name__ == "__main__":
    typer.run(main)
