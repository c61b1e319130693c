"""`python -m benchmarks.growth`: one task of 5,000 steps, by hundreds, and again with its worker killed."""

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from benchmarks import machine, servers
from benchmarks.growth_report import GrowthReport
from benchmarks.long_task import Growth, grown
from benchmarks.servers import Server
from benchmarks.workers import WorkerUnavailable
from runtime.client import NotConnected
from runtime.dev_server import ServerUnavailable
from runtime.ending import leave


def main(
    steps: Annotated[int, typer.Option(min=1, help="Steps of the task.")] = 5000,
    kills: Annotated[int, typer.Option(min=0, help="How often the second task's worker is killed.")] = 10,
    json: Annotated[Path | None, typer.Option(help="Write the figures to this file.")] = None,
    figure: Annotated[Path | None, typer.Option(help="Draw time and memory into this PNG; needs matplotlib.")] = None,
    address: Annotated[str | None, typer.Option(help="A server to use in place of one with our settings.")] = None,
) -> None:
    """Run a long task twice, undisturbed and with its worker killed, and say whether it stays flat."""
    try:
        report = asyncio.run(run(steps, kills, address))
    except (NotConnected, ServerUnavailable, WorkerUnavailable) as problem:
        typer.echo(problem, err=True)
        leave(6)
    except KeyboardInterrupt:
        leave(130)
    show(report)
    if json:
        json.write_text(report.model_dump_json(indent=2, by_alias=True))
    if figure:
        from benchmarks.picture import draw_growth

        draw_growth(report, figure)
    leave(0)


async def run(steps: int, kills: int, address: str | None) -> GrowthReport:
    """Start a server, run the task twice, end everything. Raises NotConnected, ServerUnavailable, WorkerUnavailable."""
    before = machine.load()
    with tempfile.TemporaryDirectory(prefix="replan-growth-") as folder, Progress(console=Console(stderr=True)) as bar:
        async with servers.ours(Path(folder) / "server", address) as server:
            calm = await _shown(bar, "undisturbed", server, Path(folder) / "calm", steps, 0)
            what = f"worker killed {kills} times"
            killed = await _shown(bar, what, server, Path(folder) / "killed", steps, kills) if kills else None
    return GrowthReport.of(steps, kills, calm, killed, (before, machine.load()))


async def _shown(bar: Progress, what: str, server: Server, folder: Path, steps: int, kills: int) -> Growth:
    shown = bar.add_task(what, total=steps)
    return await grown(server, folder, steps, kills, lambda done: bar.update(shown, completed=done))


def show(report: GrowthReport) -> None:
    """Print the table and the verdicts; plain text where stdout is no terminal."""
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(report.table())
    console.print(f"{report.steps} steps in {report.seconds:g} s; events of each run:", _sizes(report))
    if report.audit_killed:
        cut = report.audit_killed.cut
        console.print(
            f"killed {report.kills} times: {report.seconds_killed:g} s, {cut} steps were cut off and ran anew"
        )
    console.print(f"on {report.machine}; load {report.load_before:g} -> {report.load_after:g}")
    for verdict in report.goals:
        console.print(str(verdict), highlight=False, markup=False)


def _sizes(report: GrowthReport) -> str:
    return ", ".join(f"{run.events} ({run.bytes / 1e6:.1f} MB)" for run in report.audit.runs)


if __name__ == "__main__":
    typer.run(main)
