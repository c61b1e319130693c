"""`python -m evals.gateway`: breaks what is between agents and tools, and counts what was done twice, or not."""

import asyncio
import logging
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from pydantic import BaseModel, computed_field
from rich.console import Console
from rich.progress import Progress

from benchmarks.report import Machine
from evals.gateway.moments import ROWS
from evals.gateway.programs import MissingServers
from evals.gateway.trial import CannotServe, Clicks, Run, click_all, played
from runtime.process import leave


class Report(BaseModel):
    """What an eval came to."""

    effects: int
    """Of all rows together."""
    seed: int
    agents: int
    machine: str
    seconds: float = 0.0
    runs: list[Run] = []
    clicks: list[Clicks] = []

    @computed_field  # type: ignore[prop-decorator]  # as pydantic's own pages have it
    @property
    def broken(self) -> list[str]:
        """The promises that were broken, one line each."""
        return [
            f"{run.row}: {run.twice} twice, {run.lost} lost, {run.unanswered} without an answer"
            for run in self.runs
            if run.is_broken
        ]

    def table(self) -> Iterator[str]:
        """The table, in Markdown."""
        columns = ("calls", "cut", "killed", "twice", "lost", "asked", "noted", "without: cut", "twice", "lost")
        yield f"| {' | '.join(columns)} |"
        yield "|---" * len(columns) + "|"
        for row in dict.fromkeys(run.row for run in self.runs):
            behind, bare = (
                next((run for run in self.runs if run.row == row and run.has_gateway is has), None)
                for has in (True, False)
            )
            yield f"| {row} | {' | '.join([*_figures(behind, of_gateway=True), *_figures(bare, of_gateway=False)])} |"


def _figures(run: Run | None, *, of_gateway: bool) -> list[str]:
    if run is None:
        return ["-"] * (6 if of_gateway else 3)
    killed = sum(run.struck.values()) + run.servers_killed
    more = ([killed], [run.asked, run.noted]) if of_gateway else ([], [])
    return [str(figure) for figure in (run.cut, *more[0], run.twice, run.lost, *more[1])]


def main(
    effects: Annotated[int, typer.Option(min=len(ROWS), help="Effects in total, as many in each row.")] = 500,
    seed: Annotated[int, typer.Option(help="The seed of everything that is drawn by chance.")] = 7,
    agents: Annotated[int, typer.Option(min=1, help="Agents at the same time.")] = 8,
    rows: Annotated[list[int] | None, typer.Option("--row", min=1, max=len(ROWS), help="Only this row.")] = None,
    bare: Annotated[bool, typer.Option(help="Whether to run each row without the gateway, too.")] = True,
    json: Annotated[Path | None, typer.Option(help="Write the report to this file.")] = None,
    keep: Annotated[Path | None, typer.Option(help="A new folder for everything, which stays.")] = None,
) -> None:
    """Break what is between agents and MCP servers; exit code 1 when an effect was made twice, or lost."""
    if keep is not None and keep.exists() and any(keep.iterdir()):
        raise typer.BadParameter(f"{keep} is not empty: name a new folder.", param_hint="--keep")
    logging.disable(logging.WARNING)  # the SDK's client, of connections that we cut
    report = Report(effects=effects, seed=seed, agents=agents, machine=str(Machine.this()))
    try:
        with tempfile.TemporaryDirectory(prefix="replan-gateway-", ignore_cleanup_errors=True) as folder:
            asyncio.run(_run_all(report, keep or Path(folder), rows or range(1, len(ROWS) + 1), has_bare=bare))
    except (MissingServers, CannotServe) as problem:
        typer.echo(problem, err=True)
        leave(6)
    except KeyboardInterrupt:
        leave(130)
    show(report)
    if json:
        json.write_text(report.model_dump_json(indent=2))
    leave(1 if report.broken else 0)


async def _run_all(report: Report, folder: Path, numbers: "list[int] | range", *, has_bare: bool) -> None:
    began, count = time.monotonic(), max(1, report.effects // len(ROWS))
    with Progress(console=Console(stderr=True)) as bar:
        for number in numbers:
            row = ROWS[number - 1]
            for has_gateway in (True, False) if has_bare else (True,):
                words = f"{row.name}, {'with' if has_gateway else 'without'} the gateway"
                shown = bar.add_task(words, total=count)
                there = folder / f"{number}-{'with' if has_gateway else 'without'}"
                there.mkdir(parents=True)
                report.runs.append(
                    await played(
                        row,
                        count,
                        report.seed,
                        there,
                        report.agents,
                        has_gateway=has_gateway,
                        advance=lambda shown=shown: bar.advance(shown),  # type: ignore[misc]  # a default binds it
                    )
                )
        (folder / "clicks").mkdir(parents=True)
        shown = bar.add_task("equal calls that are all meant", total=1)
        report.clicks = await click_all(folder / "clicks")
        bar.advance(shown)
    report.seconds = round(time.monotonic() - began, 1)


def show(report: Report) -> None:
    """Print the table and what was broken."""
    typer.echo("\n".join([*report.table(), ""]))
    for one in report.clicks:
        typer.echo(f"{one.calls} equal calls that are all meant, {one.how}: {one.asked} questions, {one.made} made.")
    for run in report.runs:
        if run.is_broken:
            for finding in run.findings:
                line = f"{finding.token} ({finding.server}, {finding.blow}, {finding.moment}): {finding.times} times"
                typer.echo(f"{run.row}: {line}, {finding.ending} {finding.words}")
    verdict = f"BROKEN: {'; '.join(report.broken)}" if report.broken else "kept: every promise"
    typer.echo(f"{verdict}. {report.effects} effects, seed {report.seed}, on {report.machine}")


if __name__ == "__main__":
    typer.run(main)
