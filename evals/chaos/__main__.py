"""`python -m evals.chaos --tasks 300 --seed 7`: kills things while tasks run, and counts what happened."""

import asyncio
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress, TaskID

from benchmarks.report import Machine
from evals.chaos import lives, races
from evals.chaos.blows import Force, schedule
from evals.chaos.databases import NoDatabase, Store
from evals.chaos.fleet import WorkerUnavailable
from evals.chaos.jobs import jobs
from evals.chaos.placed import Placed, hits
from evals.chaos.report import Report
from evals.chaos.stage import staged
from evals.chaos.trial import Trial
from replan.testing.postgresql import PostgresFailed
from runtime.client import NotConnected
from runtime.dev_server import ServerUnavailable
from runtime.ending import leave

CHAINS = 4
"""Chains of placed kills at the same time."""

UNAVAILABLE = (NotConnected, ServerUnavailable, WorkerUnavailable, NoDatabase, PostgresFailed)


def main(
    tasks: Annotated[int, typer.Option(min=0, help="Tasks of the random part.")] = 300,
    seed: Annotated[int, typer.Option(help="What is drawn by chance follows from it.")] = 7,
    store: Annotated[Store, typer.Option(help="Where store and bank are kept.")] = Store.SQLITE,
    kills: Annotated[int, typer.Option(min=0, help="Workers that are killed at random.")] = 60,
    restarts: Annotated[int, typer.Option(min=0, help="How often the server is killed and started again.")] = 5,
    drops: Annotated[int, typer.Option(min=0, help="How often all connections to the server are cut.")] = 5,
    placed: Annotated[bool, typer.Option(help="Whether to kill in chosen places, too.")] = True,
    json: Annotated[Path | None, typer.Option(help="Write the report to this file.")] = None,
    keep: Annotated[Path | None, typer.Option(help="A new folder for everything, which stays.")] = None,
) -> None:
    """Kill workers, server, connections and database while tasks run; exit code 1 when a promise was broken."""
    if keep is not None and keep.exists() and any(keep.iterdir()):
        raise typer.BadParameter(f"{keep} is not empty: name a new folder.", param_hint="--keep")
    force = Force.of(kills, restarts, drops, has_database=store is Store.POSTGRESQL)
    report = Report(tasks=tasks, seed=seed, store=store, machine=str(Machine.this()))
    try:
        with tempfile.TemporaryDirectory(prefix="replan-chaos-") as folder:
            asyncio.run(run(report, keep or Path(folder), force, placed=placed))
    except* UNAVAILABLE as problems:
        typer.echo(_first(problems), err=True)
        leave(6)
    except* KeyboardInterrupt:
        leave(130)
    show(report)
    if json:
        json.write_text(report.model_dump_json(indent=2))
    leave(1 if report.broken else 0)


async def run(report: Report, folder: Path, force: Force, *, placed: bool) -> None:
    """Fill in the report. Raises NotConnected, ServerUnavailable, WorkerUnavailable."""
    given, wanted = jobs(report.tasks, report.seed), hits(report.seed) if placed else []
    troubles = {name: met for job in (*given, *(hit.job for hit in wanted)) for name, met in job.troubles.items()}
    with Progress(console=Console(stderr=True)) as bar:
        async with staged(folder, Store(report.store), troubles) as stage:
            if given:
                shown = bar.add_task("random blows", total=len(given))
                blows = schedule(force, report.seed)
                trial = Trial(stage, given, blows, lambda trial: _show_trial(bar, shown, trial))
                await _random(report, trial)
            if wanted:
                shown = bar.add_task("placed kills", total=len(wanted) + races.COUNT + lives.COUNT)
                report.placed = await Placed(stage, lambda: bar.advance(shown)).run(wanted, CHAINS)
                report.placed += await races.races(stage, report.seed, lambda: bar.advance(shown))
                report.placed += await lives.lives(stage, report.seed, lambda: bar.advance(shown))


def _first(problems: BaseExceptionGroup[BaseException]) -> BaseException:
    """What lies at the bottom: things that run at the same time fail in groups."""
    first = problems.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first


async def _random(report: Report, trial: Trial) -> None:
    began = time.monotonic()
    result = await trial.run()
    report.seconds = time.monotonic() - began
    report.account, report.stuck = result.account, result.stuck
    report.blows, report.workers = dict(result.blows), dict(result.workers)


def _show_trial(bar: Progress, shown: TaskID, trial: Trial) -> None:
    killed, cut = trial.fleet.done["killed"], trial.stage.proxy.cut
    words = f"{killed} kills, {trial.stage.server.restarts} restarts, {cut} connections cut"
    bar.update(shown, completed=len(trial.crowd.finished), description=words)


def show(report: Report) -> None:
    """Print the tables and what was broken; plain text where stdout is no terminal."""
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(*report.tables(), sep="\n")
    for line in report.broken:
        console.print(line, highlight=False, markup=False)
    verdict = f"BROKEN: {len(report.broken)} promises" if report.broken else "kept: every promise"
    console.print(f"{verdict}. {report.tasks} tasks, seed {report.seed}, {report.store}, on {report.machine}")


if __name__ == "__main__":
    typer.run(main)
