"""`python -m benchmarks.steps`: Replan against the bare Temporal SDK, the same work interleaved in one run."""

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter

from benchmarks import machine, servers, workers
from benchmarks.arm import Arm, Bare, Replan
from benchmarks.goals import BARE, DEFAULT, REPLAN
from benchmarks.meter import metered
from benchmarks.report import Report
from benchmarks.rounds import WORKS, measure
from benchmarks.servers import Server
from benchmarks.work import Sizes
from runtime.client import NotConnected, connect
from runtime.dev_server import ServerUnavailable
from runtime.ending import leave

ROUNDS = 7


def main(
    json: Annotated[Path | None, typer.Option(help="Write the figures to this file.")] = None,
    figure: Annotated[Path | None, typer.Option(help="Draw the ratios into this PNG; needs matplotlib.")] = None,
    rounds: Annotated[int, typer.Option(min=1, help="How often everything is measured.")] = ROUNDS,
    address: Annotated[str | None, typer.Option(help="A server to use in place of one with our settings.")] = None,
) -> None:
    """Measure steps of Replan against the bare Temporal SDK, and say whether the goals are met."""
    try:
        report = asyncio.run(run(Sizes(), rounds, address))
    except (NotConnected, ServerUnavailable, workers.WorkerUnavailable) as problem:
        typer.echo(problem, err=True)
        leave(6)
    except KeyboardInterrupt:
        leave(130)
    show(report)
    if json:
        json.write_text(report.model_dump_json(indent=2, by_alias=True))
    if figure:
        from benchmarks.picture import draw_steps

        draw_steps(report, figure)
    leave(0)


async def run(sizes: Sizes, rounds: int, address: str | None) -> Report:
    """Start servers and workers, measure, end them. Raises NotConnected, ServerUnavailable, WorkerUnavailable."""
    before = machine.load()
    with tempfile.TemporaryDirectory(prefix="replan-steps-") as folder, Progress(console=Console(stderr=True)) as bar:
        shown = bar.add_task("servers and workers", total=None)
        async with _arms(Path(folder), address) as arms:
            bar.update(shown, total=rounds * len(WORKS) * len(arms) + 1)
            samples = await measure(arms, sizes, rounds, lambda what: bar.update(shown, description=what, advance=1))
    return Report.of(samples, sizes, rounds, (before, machine.load()))


@asynccontextmanager
async def _arms(folder: Path, address: str | None) -> AsyncIterator[Sequence[Arm]]:
    async with AsyncExitStack() as stack:
        default = await stack.enter_async_context(servers.by_default(folder / "default"))
        ours = await stack.enter_async_context(servers.ours(folder / "ours", address))
        yield [
            await _bare(stack, DEFAULT, default, folder),
            await _bare(stack, BARE, ours, folder),
            await _replan(stack, ours, folder),
        ]


async def _bare(stack: AsyncExitStack, name: str, server: Server, folder: Path) -> Arm:
    queue = f"benchmark-{name}"
    words, log = workers.bare(queue), folder / f"{name}.log"
    process = await stack.enter_async_context(workers.running(words, server.address, folder, log))
    client = await Client.connect(server.address, data_converter=pydantic_data_converter)
    return Bare(name, client, queue, metered(process), server.meter)


async def _replan(stack: AsyncExitStack, server: Server, folder: Path) -> Arm:
    queue, log = f"benchmark-{REPLAN}", folder / f"{REPLAN}.log"
    words = workers.replan(queue)
    process = await stack.enter_async_context(workers.running(words, server.address, folder / "state", log))
    client = await connect(address=server.address, plain=True)
    return Replan(REPLAN, client, queue, metered(process), server.meter)


def show(report: Report) -> None:
    """Print the table and the verdicts; plain text where stdout is no terminal."""
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(report.table())
    console.print(f"{report.rounds} rounds on {report.machine}; load {report.load_before:g} -> {report.load_after:g}")
    for verdict in report.goals:
        console.print(str(verdict), highlight=False, markup=False)


if __name__ == "__main__":
    typer.run(main)
