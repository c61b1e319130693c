"""`python -m benchmarks.steps`: Replan against the bare Temporal SDK, the same work interleaved in one run."""

import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter

from benchmarks import processes, report
from benchmarks.processes import Meter, Server
from benchmarks.report import Figure, Figures, Goal, Machine, Report, Verdict
from benchmarks.rounds import WORKS, Arm, Bare, Replan, Samples, Sizes, measure
from runtime.client import connect
from runtime.keys import add_key
from runtime.process import leave

ROUNDS = 7
DEFAULT, BARE, REPLAN, KEYED = "bare_default", "bare", "replan", "replan_keys"
"""The arms: bare on a server with default settings, bare on one with ours, Replan on one with ours, and with keys."""
TITLES = {
    DEFAULT: "bare, default server",
    BARE: "bare, our server",
    REPLAN: "Replan, our server",
    KEYED: "Replan with keys",
}
ROWS = {
    "step_ms": "each additional sequential step, ms",
    "first_step_ms": "start to first step, ms",
    "task_ms": "a whole task of one step, ms",
    "steps_per_s": "100 tasks of 5 steps, steps/s",
    "parallel_ms": "20 parallel steps, ms",
    "parallel_task_ms": "the whole task of these 20, ms",
    "retry_added_ms": "two retries: added to the backoff, ms",
    "backoff_ms": "the backoff itself, ms",
    "events": "history events a step",
    "bytes": "history bytes a step",
    "worker_cpu_ms": "CPU of the worker a step, ms",
    "server_cpu_ms": "CPU of the server a step, ms",
    "worker_peak_mb": "peak memory of the worker, MB",
    "server_peak_mb": "peak memory of the server, MB",
    "breaker_cpu_ms": "CPU of the circuit breaker a step, ms",
    "calculate_ms": "each additional pure step (calculate), ms",
}
"""What is measured, and its title in the table."""
MEANS = frozenset({"worker_cpu_ms", "server_cpu_ms"})
"""Measured in steps of 10 ms, so that only the mean over the rounds is precise enough."""


def ratio(figures: Figures, name: str, of: str, to: str) -> float | None:
    """The median of one arm over that of another; None if one of them was not measured."""
    upper, lower = figures[of].get(name), figures[to].get(name)
    return upper.median / lower.median if upper and lower and lower.median else None


def _ratio(name: str, to: str) -> Callable[[Figures], float | None]:
    return lambda figures: ratio(figures, name, REPLAN, to)


def _time(name: str) -> Callable[[Figures], float | None]:
    """The time of Replan over that of bare, for a figure that counts what is done in a second."""
    return lambda figures: ratio(figures, name, BARE, REPLAN)


def _pure(figures: Figures) -> float | None:
    pure, step = figures[REPLAN].get("calculate_ms"), figures[BARE].get("step_ms")
    return pure.median / step.median if pure and step and step.median else None


def _breaker(figures: Figures) -> float | None:
    added, step = figures[REPLAN].get("breaker_cpu_ms"), figures[REPLAN].get("worker_cpu_ms")
    return added.median / step.median if added and step and step.median else None


GOALS = (
    Goal("each additional step, at most 1.10 times bare on the same server", 1.10, _ratio("step_ms", BARE)),
    Goal("a step, at most a quarter of bare on default settings", 0.25, _ratio("step_ms", DEFAULT)),
    Goal(
        "what a retry adds to its backoff, at most a tenth of bare on default settings",
        0.10,
        _ratio("retry_added_ms", DEFAULT),
    ),
    Goal("start to first step, at most 1.5 times bare", 1.5, _ratio("first_step_ms", BARE)),
    Goal("a whole task of one step, at most 1.3 times bare", 1.3, _ratio("task_ms", BARE)),
    Goal(
        "100 tasks of 5 steps, at most 1.11 times the time of bare (0.9 of its steps/s)", 1 / 0.9, _time("steps_per_s")
    ),
    Goal("20 parallel steps, at most 1.25 times bare", 1.25, _ratio("parallel_ms", BARE)),
    Goal("events of a step, no more than bare", 1.0, _ratio("events", BARE)),
    Goal("bytes of a step, at most 1.4 times bare", 1.4, _ratio("bytes", BARE)),
    Goal("peak memory of the worker, at most 1.5 times bare", 1.5, _ratio("worker_peak_mb", BARE)),
    Goal("CPU of the circuit breaker of a tool that never fails, at most 0.01 of a step", 0.01, _breaker),
    Goal("20 pure steps in sequence, at most 0.40 times 20 bare steps", 0.40, _pure),
)


class StepsReport(Report):
    """What the arms took, and whether the goals are met."""

    load_before: float
    load_after: float
    rounds: int
    sizes: Sizes
    arms: dict[str, dict[str, Figure | None]]
    """By arm, then by what was measured."""
    ratios: dict[str, dict[str, float | None]]
    """By what was measured, then Replan over each bare arm."""
    goals: tuple[Verdict, ...]

    @classmethod
    def of(cls, samples: Mapping[str, Samples], sizes: Sizes, rounds: int, loads: tuple[float, float]) -> "StepsReport":
        """Sum the samples up."""
        arms = {arm: {name: _figure(name, measured) for name in ROWS} for arm, measured in samples.items()}
        return cls(
            machine=Machine.this(),
            load_before=loads[0],
            load_after=loads[1],
            rounds=rounds,
            sizes=sizes,
            arms=arms,
            ratios={name: {arm: ratio(arms, name, REPLAN, arm) for arm in (DEFAULT, BARE)} for name in ROWS},
            goals=tuple(goal.judged(arms) for goal in GOALS),
        )

    def table(self) -> Table:
        """Medians, in brackets the smallest and the largest of the rounds."""
        table = Table("", *(TITLES[arm] for arm in self.arms), "of default", "of bare")
        for name, title in ROWS.items():
            figures = [str(figure) if (figure := self.arms[arm][name]) else "" for arm in self.arms]
            table.add_row(title, *figures, *(_times(self.ratios[name][arm]) for arm in (DEFAULT, BARE)))
        return table


def _figure(name: str, measured: Samples) -> Figure | None:
    values = measured.get(name, [])
    return Figure.of([sum(values) / len(values)] if name in MEANS and values else values)


def _times(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def main(
    json: Annotated[Path | None, typer.Option(help="Write the figures to this file.")] = None,
    figure: Annotated[Path | None, typer.Option(help="Draw the ratios into this PNG; needs matplotlib.")] = None,
    rounds: Annotated[int, typer.Option(min=1, help="How often everything is measured.")] = ROUNDS,
    address: Annotated[str | None, typer.Option(help="A server to use in place of one with our settings.")] = None,
    keys: Annotated[bool, typer.Option("--keys", help="Measure Replan with a keyring, too.")] = False,
) -> None:
    """Measure steps of Replan against the bare Temporal SDK, and say whether the goals are met."""
    found = processes.finish(run(Sizes(), rounds, address, with_keys=keys))
    where = f"{found.rounds} rounds on {found.machine}; load {found.load_before:g} -> {found.load_after:g}"
    shown = ("step_ms", "task_ms", "steps_per_s", "bytes", "worker_cpu_ms") if keys else ()
    keyed = ", ".join(f"{ROWS[name]} {_times(ratio(found.arms, name, KEYED, REPLAN))}" for name in shown)
    report.show(found.table(), [where, *([f"With keys, times without: {keyed}"] if keys else [])], found.goals)
    report.write(found, json)
    if figure:
        from benchmarks.picture import draw_steps  # matplotlib is an optional extra

        draw_steps(found, figure)
    leave(0)


async def run(sizes: Sizes, rounds: int, address: str | None, *, with_keys: bool = False) -> StepsReport:
    """Start servers and workers, measure, end them. Raises NotConnected, ServerUnavailable, WorkerUnavailable."""
    before = report.load()
    with tempfile.TemporaryDirectory(prefix="replan-steps-") as folder, Progress(console=Console(stderr=True)) as bar:
        task = bar.add_task("servers and workers", total=None)
        async with _arms(Path(folder), address, with_keys=with_keys) as arms:
            bar.update(task, total=rounds * len(WORKS) * len(arms) + 1)
            samples = await measure(arms, sizes, rounds, lambda what: bar.update(task, description=what, advance=1))
    return StepsReport.of(samples, sizes, rounds, (before, report.load()))


@asynccontextmanager
async def _arms(folder: Path, address: str | None, *, with_keys: bool) -> AsyncIterator[Sequence[Arm]]:
    async with AsyncExitStack() as stack:
        default = await stack.enter_async_context(processes.default_server(folder / "default"))
        ours = await stack.enter_async_context(processes.our_server(folder / "ours", address))
        yield [
            await _bare(stack, DEFAULT, default, folder),
            await _bare(stack, BARE, ours, folder),
            await _replan(stack, ours, folder),
            *([await _replan(stack, ours, folder, KEYED)] if with_keys else ()),
        ]


async def _bare(stack: AsyncExitStack, name: str, server: Server, folder: Path) -> Arm:
    queue, log = f"benchmark-{name}", folder / f"{name}.log"
    words = ["-m", "benchmarks.bare_worker", queue]
    process = await stack.enter_async_context(processes.worker(words, server.address, folder, log))
    client = await Client.connect(server.address, data_converter=pydantic_data_converter)
    return Bare(name, client, queue, Meter(process.pid), server.meter)


async def _replan(stack: AsyncExitStack, server: Server, folder: Path, name: str = REPLAN) -> Arm:
    queue, log, state = f"benchmark-{name}", folder / f"{name}.log", folder / f"state-{name}"
    keys = folder / "replan.keys" if name == KEYED else None
    if keys:
        add_key(keys)
    words = processes.replan_worker(queue, *(("--keys", str(keys)) if keys else ()))
    # Only the first start of a worker makes the tables of its store, with Alembic, which takes 12 MB.
    async with processes.worker(words, server.address, state, log):
        pass
    process = await stack.enter_async_context(processes.worker(words, server.address, state, log))
    client = await connect(address=server.address, plain=True, keys=keys)
    return Replan(name, client, queue, Meter(process.pid), server.meter)


if __name__ == "__main__":
    typer.run(main)
