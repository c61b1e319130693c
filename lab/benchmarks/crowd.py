"""`python -m benchmarks.crowd`: many short tasks over one, two and four worker processes."""

import asyncio
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated

import typer
from pydantic import BaseModel, ConfigDict
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks import processes, report
from benchmarks.processes import Meter, Server, replan_worker
from benchmarks.report import Machine, Report, Verdict
from benchmarks.rounds import Replan
from benchmarks.work import Work
from runtime.client import connect
from runtime.process import leave

TASKS, STEPS, TOGETHER = 2000, 5, 100
WORKERS = (1, 2, 4)
FIFTHS = 5
FLAT = 1.10
"""The limit of the memory in the last fifth of the tasks over that in the first fifth."""


class Crowd(BaseModel):
    """What the tasks took with so many workers."""

    model_config = ConfigDict(frozen=True)

    workers: int
    tasks_per_s: float
    median_s: float
    """Seconds of a task, from before the call that starts it until its result is here."""
    p99_s: float
    """The same for the slowest of a hundred tasks."""
    first_mb: float
    """Memory of a worker until a fifth of the tasks had ended: the mean over the workers, at its peak."""
    last_mb: float
    """The same while the last fifth ended."""
    worker_cpu_ms: float
    """CPU time of all workers, a step."""
    server_cpu_ms: float | None
    """CPU time of the server, a step; None for a server that the benchmark did not start."""


class CrowdReport(Report):
    """The same tasks over more and more workers, and whether their memory stays flat."""

    load_before: float
    load_after: float
    tasks: int
    steps: int
    """Sequential steps of each task."""
    together: int
    """How many tasks run at the same time."""
    crowds: tuple[Crowd, ...]
    goals: tuple[Verdict, ...]

    def table(self) -> Table:
        """One row for each number of workers."""
        headings = ("tasks/s", "a task, s", "slowest of 100, s", "worker MB, first fifth", "last fifth")
        table = Table("workers", *headings, "CPU of workers, ms a step", "of the server")
        for one in self.crowds:
            seconds = (f"{one.tasks_per_s:.1f}", f"{one.median_s:.2f}", f"{one.p99_s:.2f}")
            server = "" if one.server_cpu_ms is None else f"{one.server_cpu_ms:.1f}"
            memory = (f"{one.first_mb:.0f}", f"{one.last_mb:.0f}")
            table.add_row(str(one.workers), *seconds, *memory, f"{one.worker_cpu_ms:.1f}", server)
        return table


def main(
    json: Annotated[Path | None, typer.Option(help="Write the figures to this file.")] = None,
    tasks: Annotated[int, typer.Option(min=10, help="How many tasks, for each number of workers.")] = TASKS,
    workers: Annotated[
        list[int] | None, typer.Option(min=1, help="Worker processes; several times for several numbers, else 1, 2, 4.")
    ] = None,
    address: Annotated[str | None, typer.Option(help="A server to use in place of one with our settings.")] = None,
    store: Annotated[
        str | None, typer.Option(envvar="REPLAN_STORE", help="URL of the workers' store, else SQLite.")
    ] = None,
) -> None:
    """Run many short tasks over several workers, and say whether the workers' memory stays flat."""
    found = processes.finish(run(tasks, workers or WORKERS, address, store))
    where = f"{found.tasks} tasks of {found.steps} steps, {found.together} together, on {found.machine}"
    report.show(found.table(), [f"{where}; load {found.load_before:g} -> {found.load_after:g}"], found.goals)
    report.write(found, json)
    leave(0)


async def run(
    tasks: int, workers: Sequence[int], address: str | None, store: str | None, *, steps: int = STEPS
) -> CrowdReport:
    """Start a server and workers, measure, end them. Raises NotConnected, ServerUnavailable, WorkerUnavailable."""
    before = report.load()
    with tempfile.TemporaryDirectory(prefix="replan-crowd-") as folder, Progress(console=Console(stderr=True)) as bar:
        async with processes.our_server(Path(folder) / "server", address) as server:
            crowds = [await _shown(bar, Path(folder), server, count, tasks, steps, store) for count in workers]
    return CrowdReport(
        machine=Machine.this(),
        load_before=before,
        load_after=report.load(),
        tasks=tasks,
        steps=steps,
        together=TOGETHER,
        crowds=tuple(crowds),
        goals=tuple(_flat(one) for one in crowds),
    )


def _flat(crowd: Crowd) -> Verdict:
    what = "one worker" if crowd.workers == 1 else f"{crowd.workers} workers"
    goal = f"memory of {what} in the last fifth of the tasks, at most 1.10 times the first"
    return Verdict.of(goal, FLAT, crowd.last_mb / crowd.first_mb)


async def _shown(
    bar: Progress, folder: Path, server: Server, count: int, tasks: int, steps: int, store: str | None
) -> Crowd:
    task, queue = bar.add_task(f"workers: {count}", total=tasks), f"crowd-{count}"
    async with AsyncExitStack() as stack:
        environment = {"REPLAN_STORE": store} if store else {}
        meters = []
        for number in range(count):  # all with one store
            log, state = folder / f"{queue}-{number}.log", folder / queue
            starting = processes.worker(replan_worker(queue), server.address, state, log, environment)
            meters.append(Meter((await stack.enter_async_context(starting)).pid))
        arm = Replan(queue, await connect(address=server.address, plain=True), queue, meters[0], server.meter)
        # The first tasks of a process pay for caches and connections.
        await _run_all(arm, count * TOGETHER, steps, lambda: None)
        return await _measure(arm, meters, tasks, steps, lambda: bar.update(task, advance=1))


async def _measure(arm: Replan, meters: Sequence[Meter], tasks: int, steps: int, progress: Callable[[], None]) -> Crowd:
    memory: list[float] = []

    def end() -> None:
        memory.append(statistics.mean(meter.memory() for meter in meters))
        progress()

    workers, server = sum(meter.cpu for meter in meters), arm.server.cpu if arm.server else 0.0
    began = time.perf_counter()
    seconds = await _run_all(arm, tasks, steps, end)
    took = time.perf_counter() - began
    each = 1000 / (tasks * steps)
    return Crowd(
        workers=len(meters),
        tasks_per_s=tasks / took,
        median_s=statistics.median(seconds),
        p99_s=statistics.quantiles(seconds, n=100)[-1],
        first_mb=max(memory[: tasks // FIFTHS]),
        last_mb=max(memory[-tasks // FIFTHS :]),
        worker_cpu_ms=(sum(meter.cpu for meter in meters) - workers) * each,
        server_cpu_ms=(arm.server.cpu - server) * each if arm.server else None,
    )


async def _run_all(arm: Replan, tasks: int, steps: int, end: Callable[[], None]) -> list[float]:
    """Run the tasks, TOGETHER at the same time; how many seconds each took."""
    free = asyncio.Semaphore(TOGETHER)

    async def one() -> float:
        async with free:
            done = await arm.run(Work.of(steps))
        end()
        return done.seconds

    return await asyncio.gather(*(one() for _ in range(tasks)))


if __name__ == "__main__":
    typer.run(main)
