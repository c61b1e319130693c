"""`python -m benchmarks.mcp`: a call of an MCP tool as a step of Replan, against the SDK's client in a bare activity.

Both sides call the same server, which returns its argument, once through pipes and once over HTTP; and beside that a
tool without a server, whose ratio says what a step of Replan costs whatever it calls. The goal, at most 1.3 times bare,
is about the whole step: from one workflow task to the next, with the call in it.

A second table has the call alone, in one process without a Temporal server: the SDK's `call_tool`, Replan's connection
(which also checks deadlines, counts what was sent and knows when a call was certainly not made), and Replan's whole
activity, which adds what every tool has: validation, the circuit breaker, the log line and the size of the result.

A third table has calls through the gateway, each of which is a task of one step, beside such a task.
"""

import json as json_module
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TextIO

import structlog
import typer
from pydantic import BaseModel, ConfigDict
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from temporalio.client import Client
from temporalio.common import RawValue
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.testing import ActivityEnvironment

from activities import deadline
from activities.boundary.boundary import Boundary
from activities.storage.store import open_store, sqlite_url
from activities.toolbox.http.network import Web
from activities.toolbox.registry import Registry
from activities.toolbox.resources import Resources
from benchmarks import gateway, processes, report
from benchmarks.mcp_worker import COMMAND, HTTP, PIPES, ROOT, called, client_of
from benchmarks.processes import Meter
from benchmarks.report import Figure, Figures, Goal, Machine, Report, Verdict
from benchmarks.rounds import Arm, Bare, Replan, Samples
from benchmarks.work import TEXT, Words, Work
from client.client import Client as ReplanClient
from extras.mcp.loading import load_servers
from extras.mcp.servers import McpServers
from runtime.client import connect
from runtime.dev_server import free_port
from runtime.process import leave

ROUNDS = 15
BARE, REPLAN = "bare", "replan"
NONE = "none"
"""A tool without a server."""
TITLES = {NONE: "no server", PIPES: "over pipes", HTTP: "over HTTP"}
KINDS: Mapping[str, Mapping[str, str]] = {
    BARE: {NONE: "echo", PIPES: "over_pipes", HTTP: "over_http"},
    REPLAN: {NONE: "echo", PIPES: "pipes.echo", HTTP: "http.echo"},
}
"""By arm and by how the server is reached, the kind of the steps."""
SDK, CONNECTION, ACTIVITY = "call_tool", "connection", "activity"
WAYS = {SDK: "the SDK's call_tool", CONNECTION: "Replan's connection", ACTIVITY: "Replan's activity"}
"""The ways in which the call alone is measured."""


class Sizes(BaseModel):
    """How much is done in one round."""

    model_config = ConfigDict(frozen=True)

    short: int = 10
    long: int = 50
    """Sequential steps; the difference of the two is what each additional step costs."""
    calls: int = 100
    """Calls alone, in each way."""
    tasks: int = 10
    """Calls through the gateway, and tasks of one step."""


def _step(transport: str) -> Callable[[Figures], float | None]:
    return lambda figures: _over(figures[REPLAN].get(f"{transport}_ms"), figures[BARE].get(f"{transport}_ms"))


def _alone(transport: str) -> Callable[[Figures], float | None]:
    return lambda figures: _over(figures[CONNECTION].get(f"{transport}_ms"), figures[SDK].get(f"{transport}_ms"))


def _gateway(way: str) -> Callable[[Figures], float | None]:
    return lambda figures: _over(figures[way].get("call_ms"), figures[gateway.TASK].get("call_ms"))


def _over(upper: Figure | None, lower: Figure | None) -> float | None:
    return upper.median / lower.median if upper and lower and lower.median else None


GOALS = (
    Goal("a step that calls a server over pipes, at most 1.3 times bare", 1.3, _step(PIPES)),
    Goal("a step that calls a server over HTTP, at most 1.3 times bare", 1.3, _step(HTTP)),
    Goal("the call alone over pipes, at most 1.10 times the SDK's client", 1.10, _alone(PIPES)),
    Goal("the call alone over HTTP, at most 1.10 times the SDK's client", 1.10, _alone(HTTP)),
    Goal("a call through the gateway over pipes, at most 1.5 times a task", 1.5, _gateway(gateway.OVER_PIPES)),
    Goal("a call through the gateway over HTTP, at most 1.5 times a task", 1.5, _gateway(gateway.OVER_HTTP)),
)


class McpReport(Report):
    """What steps and calls took, and whether the goals are met."""

    load_before: float
    load_after: float
    rounds: int
    sizes: Sizes
    arms: dict[str, dict[str, Figure | None]]
    """By arm or way, then by what was measured, such as `pipes_ms`."""
    goals: tuple[Verdict, ...]

    @classmethod
    def of(cls, samples: Mapping[str, Samples], sizes: Sizes, rounds: int, loads: tuple[float, float]) -> "McpReport":
        """Sum the samples up."""
        arms = {
            arm: {name: Figure.of(values) for name, values in measured.items()} for arm, measured in samples.items()
        }
        return cls(
            machine=Machine.this(),
            load_before=loads[0],
            load_after=loads[1],
            rounds=rounds,
            sizes=sizes,
            arms=arms,
            goals=tuple(goal.judged(arms) for goal in GOALS),
        )

    def table(self) -> Table:
        """Medians, in brackets the smallest and the largest of the rounds; the ratio is that of the medians."""
        table = Table("", "bare", "Replan", "of bare")
        for unit, title in (("ms", "each additional step, {}, ms"), ("cpu_ms", "CPU of the worker for it, {}, ms")):
            for transport, words in TITLES.items():
                bare, ours = (self.arms[arm].get(f"{transport}_{unit}") for arm in (BARE, REPLAN))
                table.add_row(title.format(words), *_shown(bare, ours))
        table.add_section()
        for transport in (PIPES, HTTP):
            alone = self.arms[SDK].get(f"{transport}_ms")
            for way in (CONNECTION, ACTIVITY):
                title = f"the call alone, {TITLES[transport]}: {WAYS[way]}, ms"
                table.add_row(title, *_shown(alone, self.arms[way].get(f"{transport}_ms")))
        table.add_section()
        bare = self.arms[gateway.BARE_TASK].get("call_ms")
        for way in (gateway.TASK, gateway.OVER_PIPES, gateway.OVER_HTTP):
            table.add_row(f"{gateway.TITLES[way]}, ms", *_shown(bare, self.arms[way].get("call_ms")))
        return table


def _shown(bare: Figure | None, ours: Figure | None) -> tuple[str, str, str]:
    ratio = _over(ours, bare)
    return _precise(bare), _precise(ours), "" if ratio is None else f"{ratio:.2f}"


def _precise(figure: Figure | None) -> str:
    return f"{figure.median:.2f} ({figure.low:.2f}-{figure.high:.2f})" if figure else ""


def main(
    json: Annotated[Path | None, typer.Option(help="Write the figures to this file.")] = None,
    rounds: Annotated[int, typer.Option(min=1, help="How often everything is measured.")] = ROUNDS,
    address: Annotated[str | None, typer.Option(help="A server to use in place of one with our settings.")] = None,
) -> None:
    """Measure calls of MCP tools as steps of Replan against the SDK's client in bare activities."""
    with tempfile.TemporaryFile("w") as lines:
        _log_as_worker(lines)
        found = processes.finish(run(Sizes(), rounds, address))
    where = f"{found.rounds} rounds on {found.machine}; load {found.load_before:g} -> {found.load_after:g}"
    report.show(found.table(), [where], found.goals)
    report.write(found, json)
    leave(0)


def _log_as_worker(lines: TextIO) -> None:
    """Write the log lines of the calls in this process as a worker does, but into a file."""
    processors: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.JSONRenderer(),
    ]
    structlog.configure(processors=processors, logger_factory=structlog.WriteLoggerFactory(lines))


async def run(sizes: Sizes, rounds: int, address: str | None) -> McpReport:
    """Start servers and workers, measure, end them. Raises NotConnected, ServerUnavailable, WorkerUnavailable."""
    before = report.load()
    samples: dict[str, Samples] = {name: defaultdict(list) for name in (BARE, REPLAN, *WAYS, *gateway.TITLES)}
    with tempfile.TemporaryDirectory(prefix="replan-mcp-") as name, Progress(console=Console(stderr=True)) as bar:
        task, folder = bar.add_task("servers and workers", total=None), Path(name)
        async with _echo_server(folder) as url:
            async with _arms(folder, url, address) as arms:
                bar.update(task, total=3 * rounds)
                for transport in TITLES:  # the first tasks of a process pay for caches and connections
                    for arm in arms:
                        await _usage(arm, transport, sizes.long)
                for number in range(rounds):
                    bar.update(task, description=f"round {number + 1} of {rounds}: steps", advance=1)
                    await _steps(arms[:: -1 if number % 2 else 1], sizes, samples)
                async with gateway.calls(folder, arms[0], ReplanClient(arms[1].client)) as named:
                    ways = [Way(way, "call", call) for way, call in named.items()]
                    for number in range(rounds + 1):
                        bar.update(task, description=f"round {number} of {rounds}: gateway", advance=bool(number))
                        await _calls(ways, sizes.tasks, samples if number else _nowhere(ways))
            async with _ways(folder, url) as ways:
                for number in range(rounds + 1):
                    bar.update(task, description=f"round {number} of {rounds}: calls", advance=bool(number))
                    await _calls(ways, sizes.calls, samples if number else _nowhere(ways))
    return McpReport.of(samples, sizes, rounds, (before, report.load()))


async def _steps(arms: Sequence[Arm], sizes: Sizes, samples: Mapping[str, Samples]) -> None:
    for transport in TITLES:
        for arm in arms:
            short, long = [await _usage(arm, transport, count) for count in (sizes.short, sizes.long)]
            for unit, less, more in zip(("ms", "cpu_ms"), short, long, strict=True):
                samples[arm.name][f"{transport}_{unit}"].append((more - less) / (sizes.long - sizes.short))


async def _usage(arm: Arm, transport: str, steps: int) -> tuple[float, float]:
    """The milliseconds of a task, and those of CPU of its worker; that of a server is not in them."""
    before = arm.worker.cpu
    run = await arm.run(Work.of(steps, kind=KINDS[arm.name][transport]))
    return run.seconds * 1000, (arm.worker.cpu - before) * 1000


def _nowhere(ways: Sequence["Way"]) -> dict[str, Samples]:
    """Samples that are thrown away: of the first round, which pays for caches and connections."""
    return {way.name: defaultdict(list) for way in ways}


async def _calls(ways: Sequence["Way"], count: int, samples: Mapping[str, Samples]) -> None:
    seconds = defaultdict[Way, list[float]](list)
    for _ in range(count):
        for way in ways:
            began = time.perf_counter()
            await way.call()
            seconds[way].append(time.perf_counter() - began)
    for way in ways:
        samples[way.name][f"{way.transport}_ms"].append(statistics.median(seconds[way]) * 1000)


@asynccontextmanager
async def _echo_server(folder: Path) -> AsyncIterator[str]:
    """A server behind a URL, for both sides."""
    port = free_port()
    words = [*COMMAND, str(port)]
    async with processes.worker(words, "", folder / "no-state", folder / "echo.log"):
        yield f"http://127.0.0.1:{port}/mcp"


def _tools_file(folder: Path, url: str) -> Path:
    command, cwd = (json_module.dumps(value) for value in ([sys.executable, *COMMAND], str(ROOT)))
    file = folder / "echo.toml"
    file.write_text(f"[servers.{PIPES}]\ncommand = {command}\ncwd = {cwd}\n[servers.{HTTP}]\nurl = '{url}'\n")
    return file


@asynccontextmanager
async def _arms(folder: Path, url: str, address: str | None) -> AsyncIterator[list[Arm]]:
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(processes.our_server(folder / "server", address))

        async def started(name: str, words: Sequence[str]) -> Meter:
            state, log = folder / name, folder / f"{name}.log"
            return Meter((await stack.enter_async_context(processes.worker(words, server.address, state, log))).pid)

        bare, ours = f"benchmark-{BARE}", f"benchmark-{REPLAN}"
        meters = [
            await started(BARE, ["-m", "benchmarks.mcp_worker", bare, url]),
            await started(REPLAN, processes.replan_worker(ours, "--tools", str(_tools_file(folder, url)))),
        ]
        plain = await Client.connect(server.address, data_converter=pydantic_data_converter)
        yield [
            Bare(BARE, plain, bare, meters[0], server.meter),
            Replan(REPLAN, await connect(address=server.address, plain=True), ours, meters[1], server.meter),
        ]


@dataclass(frozen=True)
class Way:
    """A way to call the server in this process."""

    name: str
    transport: str
    call: Callable[[], Awaitable[object]]


@asynccontextmanager
async def _ways(folder: Path, url: str) -> AsyncIterator[list[Way]]:
    foreign = load_servers([str(_tools_file(folder, url))], {}, ())
    registry = Registry(foreign.tools)
    async with AsyncExitStack() as stack:
        engine = await open_store(sqlite_url(folder))
        stack.push_async_callback(engine.dispose)
        servers = await stack.enter_async_context(McpServers(foreign.configs, engine, Web()).opened())
        servers.expect(foreign.listings)
        http = await stack.enter_async_context(deadline.client())
        boundary = Boundary(Resources(engine, http, None, servers=servers))
        words = Words(text=TEXT)

        def ways(transport: str, client: Any) -> list[Way]:
            kind, environment = registry[KINDS[REPLAN][transport]], ActivityEnvironment()
            environment.payload_converter = pydantic_data_converter.payload_converter
            payload = RawValue(environment.payload_converter.to_payload(words.model_dump()))

            async def through_sdk() -> Words:
                return await called(client, words)

            async def through_connection() -> object:
                return await servers.call(transport, "echo", words.model_dump(), is_read=True)

            def in_activity(function: Callable[..., Awaitable[object]], *args: Any) -> Callable[[], Awaitable[object]]:
                return lambda: environment.run(function, *args)

            return [
                Way(SDK, transport, in_activity(through_sdk)),
                Way(CONNECTION, transport, in_activity(through_connection)),
                Way(ACTIVITY, transport, in_activity(boundary.activity(kind), payload)),
            ]

        clients = {name: await stack.enter_async_context(client_of(name, url)) for name in (PIPES, HTTP)}
        yield [way for name, client in clients.items() for way in ways(name, client)]


if __name__ == "__main__":
    typer.run(main)
