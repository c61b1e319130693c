"""`python -m benchmarks.observability`: what metrics and traces add to the CPU of a worker per step, in pairs."""

import asyncio
import math
import statistics
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import BaseModel, ConfigDict
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks import processes, report
from benchmarks.processes import Meter, Server
from benchmarks.report import Machine, Report, Verdict
from benchmarks.rounds import Replan
from benchmarks.work import Work
from runtime.client import connect
from runtime.dev_server import free_port
from runtime.process import leave

PAIRS, TASKS, STEPS = 12, 10, 40
"""In a run, so many tasks of so many steps at the same time; a longer plan than 50 steps is refused."""
KINDS = {"echo": "a step that only returns its argument", "enter": "a step that writes a row in a transaction"}
EXPORT_SECONDS = 2.0
"""How long spans wait for others, and so how long a run waits at its end until the last ones are exported, too."""
OFF = "off"


@dataclass(frozen=True)
class Setup:
    """One arm: how its worker is started, and what it may cost."""

    title: str
    limit: float
    """The most CPU a step that it may add, as a share of a step without it."""
    environment: Callable[[str], Mapping[str, str]] = lambda receiver: {}
    """The worker's variables, from the URL of the receiver."""


def _traces(receiver: str) -> Mapping[str, str]:
    return {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver, "OTEL_BSP_SCHEDULE_DELAY": f"{EXPORT_SECONDS * 1000:.0f}"}


def _metrics(receiver: str) -> Mapping[str, str]:
    return {"REPLAN_METRICS": str(free_port())}


ARMS: Mapping[str, Setup] = {
    OFF: Setup("off", 0.0),
    "metrics": Setup("metrics", 0.03, _metrics),
    "traces": Setup("traces", 0.10, _traces),
}
"""The arms by the key in the JSON document; each is compared with the first one."""


class Added(BaseModel):
    """What an arm adds to the CPU of a step, as a share of a step without it."""

    model_config = ConfigDict(frozen=True)

    share: float
    """Between the lower quartiles of both arms: neighbours on a shared machine only ever add CPU."""
    median: float
    """Over all pairs, with its 95% confidence interval."""
    low: float
    high: float
    step_ms: float
    """The lower quartile of the CPU of a step with it."""
    off_ms: float
    runs: tuple[tuple[float, float], ...]
    """Milliseconds a step without it and with it, of each pair."""

    @classmethod
    def of(cls, pairs: Sequence[tuple[float, float]]) -> "Added":
        """From the milliseconds a step without it and with it, of each pair."""
        shares = sorted(on / off - 1 for off, on in pairs)
        below = _rank(len(shares))
        without, with_it = (sorted(values)[len(values) // 4] for values in zip(*pairs, strict=True))
        return cls(
            share=round(with_it / without - 1, 4),
            median=round(statistics.median(shares), 4),
            low=round(shares[below], 4),
            high=round(shares[-1 - below], 4),
            step_ms=round(with_it, 3),
            off_ms=round(without, 3),
            runs=tuple((round(off, 3), round(on, 3)) for off, on in pairs),
        )


def _rank(count: int) -> int:
    """How many of `count` sorted values are below the 95% confidence interval of their median (the sign test)."""
    below, found = 0.0, 0
    for rank in range(count // 2):
        below += math.comb(count, rank) / 2**count
        if below > 0.025:
            break
        found = rank
    return found


class ObservabilityReport(Report):
    """What each arm adds, and whether the goals are met."""

    load_before: float
    load_after: float
    pairs: int
    steps: int
    arms: dict[str, dict[str, Added]]
    """By arm, then by kind of step."""
    goals: tuple[Verdict, ...]

    def table(self) -> Table:
        """A row for each arm and kind."""
        table = Table("", "step", "off, ms", "on, ms", "added", "median of pairs", "95% interval")
        for arm, kinds in self.arms.items():
            for kind, added in kinds.items():
                interval = f"{added.low:+.1%} to {added.high:+.1%}"
                row = (ARMS[arm].title, KINDS[kind], f"{added.off_ms:.2f}", f"{added.step_ms:.2f}")
                table.add_row(*row, f"{added.share:+.1%}", f"{added.median:+.1%}", interval)
        return table


def main(
    json: Annotated[Path | None, typer.Option(help="Write the figures to this file.")] = None,
    pairs: Annotated[int, typer.Option(min=1, help="How often each arm is compared.")] = PAIRS,
    address: Annotated[str | None, typer.Option(help="A server to use in place of one with our settings.")] = None,
) -> None:
    """Measure what metrics and traces add to the CPU of a worker per step, and say whether the goals are met."""
    found = processes.finish(run(pairs, STEPS, address))
    where = f"{found.pairs} pairs of {TASKS} tasks of {found.steps} steps on {found.machine}"
    report.show(found.table(), [f"{where}; load {found.load_before:g} -> {found.load_after:g}"], found.goals)
    report.write(found, json)
    leave(0)


async def run(pairs: int, steps: int, address: str | None) -> ObservabilityReport:
    """Start server and workers, measure, end them. Raises NotConnected, ServerUnavailable, WorkerUnavailable."""
    before = report.load()
    with tempfile.TemporaryDirectory(prefix="replan-observability-") as name, Progress(console=_stderr()) as bar:
        task = bar.add_task("server and workers", total=None)
        folder = Path(name)
        measured = dict[str, dict[str, list[float]]]()
        async with processes.our_server(folder / "server", address) as server:
            with _receiver() as receiver:
                bar.update(task, total=pairs)
                for number in range(pairs):
                    # New workers for each pair: two processes of the same arm may differ by a tenth.
                    place = Path(tempfile.mkdtemp(dir=folder))
                    async with _arms(place, server, receiver) as arms:
                        for arm in arms if number % 2 else reversed(arms):
                            for kind in KINDS:
                                await _cpu(arm, kind, steps // 4 + 1)  # pays for caches and connections
                                used = await _cpu(arm, kind, steps)
                                measured.setdefault(arm.name, {}).setdefault(kind, []).append(used)
                    bar.update(task, description=f"pair {number + 1} of {pairs}", advance=1)
    off = measured.pop(OFF)
    added = {
        arm: {kind: Added.of(list(zip(off[kind], used, strict=True))) for kind, used in kinds.items()}
        for arm, kinds in measured.items()
    }
    return ObservabilityReport(
        machine=Machine.this(),
        load_before=before,
        load_after=report.load(),
        pairs=pairs,
        steps=steps,
        arms=added,
        goals=tuple(
            Verdict.of(f"{ARMS[arm].title}: {KINDS[kind]}", ARMS[arm].limit, one.share)
            for arm, kinds in added.items()
            for kind, one in kinds.items()
        ),
    )


def _stderr() -> Console:
    return Console(stderr=True)


async def _cpu(arm: Replan, kind: str, steps: int) -> float:
    """Milliseconds of the worker's CPU a step, with the export of its spans."""
    before = arm.worker.cpu
    await asyncio.gather(*(arm.run(Work.of(steps, kind=kind)) for _ in range(TASKS)))
    await asyncio.sleep(1.2 * EXPORT_SECONDS)
    return (arm.worker.cpu - before) * 1000 / (steps * TASKS)


@asynccontextmanager
async def _arms(folder: Path, server: Server, receiver: str) -> AsyncIterator[Sequence[Replan]]:
    async with AsyncExitStack() as stack:
        yield [await _arm(stack, name, setup, server, folder, receiver) for name, setup in ARMS.items()]


async def _arm(stack: AsyncExitStack, name: str, setup: Setup, server: Server, folder: Path, receiver: str) -> Replan:
    queue = f"benchmark-{name}"
    words = processes.replan_worker(queue)
    environment = setup.environment(receiver)
    running = processes.worker(words, server.address, folder / name, folder / f"{name}.log", environment)
    process = await stack.enter_async_context(running)
    client = await connect(address=server.address, plain=True)
    return Replan(name, client, queue, Meter(process.pid), server.meter)


@contextmanager
def _receiver() -> Iterator[str]:
    """The URL of a server that takes whatever is posted to it."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


if __name__ == "__main__":
    typer.run(main)
