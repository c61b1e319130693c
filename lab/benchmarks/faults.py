"""`python -m benchmarks.faults`: what `replan.FaultsPlugin` costs an activity, interleaved with a worker without it."""

import logging
import tempfile
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import httpx2
import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.testing import ActivityEnvironment
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput

from benchmarks import processes, report
from benchmarks.bare_worker import echo
from benchmarks.faults_worker import BARE, LINE, PLUGINS, UNKEYED, RowsWorkflow, reject, stumble_once
from benchmarks.processes import Meter
from benchmarks.report import Figure, Figures, Goal, Machine, Report, Verdict
from benchmarks.work import TEXT, Words
from runtime.process import leave

ROUNDS, CALLS = 40, 10
"""Short rounds, so that both sides of a pair meet the same machine."""
KINDS = {"echo": "a successful activity", "reject": "a failed activity", "stumble_once": "an activity with a retry"}
"""What is called, and its title."""
ATTEMPTS, SAMPLES = 1_000, 9
"""Of the plugin alone: attempts of a sample, and samples."""


@dataclass(frozen=True)
class Arm:
    """A worker process, with the plugin or without it."""

    name: str
    client: Client
    queue: str
    meter: Meter

    async def run(self, kind: str, number: int) -> tuple[float, float]:
        """Milliseconds of a call, of the clock and of the worker's CPU."""
        cpu, began = self.meter.cpu, time.perf_counter()
        await self.client.execute_workflow(
            RowsWorkflow.run,
            args=[kind, number, Words(text=TEXT)],
            id=f"{kind}-{uuid.uuid4().hex[:12]}",
            task_queue=self.queue,
        )
        return (time.perf_counter() - began) * 1000 / number, (self.meter.cpu - cpu) * 1000 / number


def _median(figures: Figures, arm: str, name: str) -> float | None:
    figure = figures[arm].get(name)
    return figure.median if figure else None


def _part_of_a_success(arm: str) -> Callable[[Figures], float | None]:
    def part(figures: Figures) -> float | None:
        alone, activity = _median(figures, arm, "a success"), _median(figures, BARE, "echo")
        return alone / 1000 / activity if alone is not None and activity else None

    return part


GOALS = (
    Goal("a success through the line alone, part of the CPU of an activity", 0.01, _part_of_a_success(LINE)),
    Goal("with effects=", 0.01, _part_of_a_success(UNKEYED)),
    Goal("CPU that the line adds to a failed activity, ms", 1.0, lambda figures: _median(figures, LINE, "reject")),
    Goal("with effects=, ms", 1.0, lambda figures: _median(figures, UNKEYED, "reject")),
)


class FaultsCost(Report):
    """What the arms took, by arm and kind of activity."""

    load_before: float
    load_after: float
    rounds: int
    calls: int
    """Calls of a round, of which each sample is the mean."""
    elapsed_ms: dict[str, dict[str, Figure | None]]
    cpu_ms: dict[str, dict[str, Figure | None]]
    added_elapsed_ms: dict[str, dict[str, Figure | None]]
    """Against the worker without the line, round by round."""
    added_cpu_ms: dict[str, dict[str, Figure | None]]
    alone_us: dict[str, dict[str, Figure | None]]
    """Microseconds of CPU of the plugin alone, by arm and by how an attempt ends."""
    goals: tuple[Verdict, ...]

    def table(self) -> Table:
        """Medians, in brackets the smallest and the largest of the rounds."""
        table = Table("", "without", "the line adds", "with effects= it adds")
        for kind, title in KINDS.items():
            for what, all_, added in (
                ("CPU of the worker", self.cpu_ms, self.added_cpu_ms),
                ("elapsed", self.elapsed_ms, self.added_elapsed_ms),
            ):
                cells = (all_[BARE][kind], added[LINE][kind], added[UNKEYED][kind])
                table.add_row(f"{title}: {what}, ms", *map(_cell, cells))
        for end in ENDS:
            table.add_row(f"alone, {end}: CPU, us", "", *(str(self.alone_us[arm][end]) for arm in (LINE, UNKEYED)))
        return table


def _cell(figure: Figure | None) -> str:
    return f"{figure.median:.2f} ({figure.low:.2f} to {figure.high:.2f})" if figure else ""


def main(
    json: Annotated[Path | None, typer.Option(help="Write the figures to this file.")] = None,
    rounds: Annotated[int, typer.Option(min=1, help="How often everything is measured.")] = ROUNDS,
    calls: Annotated[int, typer.Option(min=1, help="Calls of an activity in each round.")] = CALLS,
) -> None:
    """Measure activities of a worker with `replan.FaultsPlugin` against one without it."""
    found = processes.finish(run(rounds, calls))
    where = f"{rounds} rounds of {calls} calls on {found.machine}; load {found.load_before:g} -> {found.load_after:g}"
    report.show(found.table(), [where], found.goals)
    report.write(found, json)
    leave(0)


async def run(rounds: int, calls: int) -> FaultsCost:
    """Start a server and three workers, measure, end them. Raises ServerUnavailable, WorkerUnavailable."""
    before, samples = report.load(), defaultdict[tuple[str, str], list[tuple[float, float]]](list)
    with tempfile.TemporaryDirectory(prefix="replan-faults-") as name, Progress(console=Console(stderr=True)) as bar:
        task = bar.add_task("server and workers", total=rounds * len(KINDS) * len(PLUGINS))
        async with AsyncExitStack() as stack:
            arms = await _arms(stack, Path(name))
            for arm in arms:  # the first calls of a process pay for caches
                for kind in KINDS:
                    await arm.run(kind, 5)
            for number in range(rounds):
                for kind in KINDS:
                    for arm in arms[number % len(arms) :] + arms[: number % len(arms)]:
                        bar.update(task, description=f"{kind}, {arm.name}", advance=1)
                        samples[arm.name, kind].append(await arm.run(kind, calls))
    sides = [
        {arm: {kind: [one[place] for one in samples[arm, kind]] for kind in KINDS} for arm in PLUGINS}
        for place in (0, 1)
    ]
    elapsed, cpu = ({arm: _figures(found) for arm, found in side.items()} for side in sides)
    added_elapsed, added_cpu = ({arm: _figures(_added(side, arm)) for arm in (LINE, UNKEYED)} for side in sides)
    alone = {arm: await _alone(arm) for arm in (LINE, UNKEYED)}
    figures = {BARE: cpu[BARE], **{arm: {**alone[arm], **added_cpu[arm]} for arm in alone}}
    return FaultsCost(
        machine=Machine.this(),
        load_before=before,
        load_after=report.load(),
        rounds=rounds,
        calls=calls,
        elapsed_ms=elapsed,
        cpu_ms=cpu,
        added_elapsed_ms=added_elapsed,
        added_cpu_ms=added_cpu,
        alone_us=alone,
        goals=tuple(goal.judged(figures) for goal in GOALS),
    )


def _figures(samples: dict[str, list[float]]) -> dict[str, Figure | None]:
    return {kind: Figure.of(values) for kind, values in samples.items()}


def _added(side: dict[str, dict[str, list[float]]], arm: str) -> dict[str, list[float]]:
    pairs = {kind: zip(side[arm][kind], side[BARE][kind], strict=True) for kind in KINDS}
    return {kind: [ours - bare for ours, bare in both] for kind, both in pairs.items()}


async def _arms(stack: AsyncExitStack, folder: Path) -> list[Arm]:
    server = await stack.enter_async_context(processes.our_server(folder / "server"))
    client = await Client.connect(server.address, data_converter=pydantic_data_converter)
    arms = list[Arm]()
    for name in PLUGINS:
        words = ["-m", "benchmarks.faults_worker", f"faults-{name}", name]
        process = await stack.enter_async_context(
            processes.worker(words, server.address, folder, folder / f"{name}.log")
        )
        arms.append(Arm(name, client, f"faults-{name}", Meter(process.pid)))
    return arms


def _status() -> httpx2.HTTPStatusError:
    request = httpx2.Request("POST", "https://shop.example/orders")
    return httpx2.HTTPStatusError("409", request=request, response=httpx2.Response(409, json={}, request=request))


ENDS: Mapping[str, Callable[[], Exception] | None] = {
    "a success": None,
    "a PermissionError": lambda: PermissionError(13, "no"),
    "an HTTP 409": _status,
}
"""How an attempt ends, and what makes its exception."""


class _Bottom(ActivityInboundInterceptor):
    """The end of a chain of interceptors, in the place of an activity."""

    def __init__(self, make: Callable[[], Exception] | None) -> None:
        self._make = make

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        if self._make:
            raise self._make()


async def _alone(arm: str) -> dict[str, Figure | None]:
    """By how an attempt ends, the microseconds of CPU of the plugin's interceptor; its log goes nowhere."""
    (plugin,), log, silent = PLUGINS[arm], logging.getLogger("replan.faults"), logging.NullHandler()
    config: Any = {"activities": [echo, reject, stumble_once]}
    (interceptor,) = plugin.configure_worker(config)["interceptors"]
    environment = ActivityEnvironment()
    environment.info = replace(ActivityEnvironment.default_info(), activity_type="reject")
    log.addHandler(silent)
    log.propagate = False
    try:
        found = dict[str, Figure | None]()
        for name, make in ENDS.items():
            bottom = _Bottom(make)
            found[name] = Figure.of(await environment.run(_compared, interceptor.intercept_activity(bottom), bottom))
        return found
    finally:
        log.propagate = True
        log.removeHandler(silent)


async def _compared(upper: ActivityInboundInterceptor, bottom: ActivityInboundInterceptor) -> list[float]:
    input = ExecuteActivityInput(fn=reject, args=[], executor=None, headers={})
    return [await _timed(upper, input) - await _timed(bottom, input) for _ in range(SAMPLES)]


async def _timed(chain: ActivityInboundInterceptor, input: ExecuteActivityInput) -> float:
    began = time.thread_time()
    for _ in range(ATTEMPTS):
        with suppress(Exception):
            await chain.execute_activity(input)
    return (time.thread_time() - began) / ATTEMPTS * 1e6


if __name__ == "__main__":
    typer.run(main)
