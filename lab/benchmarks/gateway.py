"""`python -m benchmarks.gateway`: calls through the gateway beside calls of the same server without it.

The server answers at once, so that a difference is the gateway's own. A start is the time from the start of an agent's
process to its list of tools, when no process of the gateway runs yet. The part about tasks is for `benchmarks.mcp`.
"""

import asyncio
import itertools
import json
import os
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Annotated

import typer
from mcp import Client as McpClient, StdioServerParameters
from rich.table import Table

from benchmarks import processes, report
from benchmarks.mcp_worker import COMMAND, PIPES, ROOT
from benchmarks.report import Figure, Figures, Goal, Machine
from benchmarks.rounds import Arm
from benchmarks.work import Work
from client.client import Client
from runtime.process import leave
from workflows.account.task import Task
from workflows.limits.budget import Limits
from workflows.plans.proposal import Step

BARE_TASK, TASK, OVER_PIPES, OVER_HTTP = "bare_task", "task", "gateway_pipes", "gateway_http"
TITLES = {
    BARE_TASK: "a bare workflow of one activity",
    TASK: "a task of one step",
    OVER_PIPES: "a call through the gateway, over pipes",
    OVER_HTTP: "a call through the gateway, over HTTP",
}
DIRECT, READ, EFFECT = "direct", "read", "effect"
WAYS = {
    DIRECT: "the server itself",
    f"{READ}_pipes": "a read through the gateway, over pipes",
    f"{EFFECT}_pipes": "an effect through the gateway, over pipes",
    f"{READ}_http": "a read through the gateway, over HTTP",
    f"{EFFECT}_http": "an effect through the gateway, over HTTP",
}
BY_COMMAND, BY_FILE = "by_command", "by_file"
STARTS = {
    DIRECT: "a start of the server itself",
    BY_COMMAND: "of the gateway with the server's command",
    BY_FILE: "of the gateway with a tools file",
}
KIND, QUEUE = f"{PIPES}.echo", "benchmark-gateway"
Calls = dict[str, Callable[[], Awaitable[object]]]
"""By the name of a way, a call of the server's tool in it."""


@asynccontextmanager
async def calls(folder: Path, bare: Arm, ours: Client) -> AsyncIterator[Calls]:
    """The ways, with a gateway and a worker of their own. The tool is declared to have an effect: a read is no task."""
    command, cwd = (json.dumps(value) for value in ([sys.executable, *COMMAND], str(ROOT)))
    file = folder / "effect.toml"
    file.write_text(
        f'[servers.{PIPES}]\ncommand = {command}\ncwd = {cwd}\n[servers.{PIPES}.tools.echo]\neffect = "unkeyed"\n'
    )
    address = ours.temporal.service_client.config.target_host
    environment = {**os.environ, "TEMPORAL_ADDRESS": address, "REPLAN_STATE": str(folder / "gateway")}
    words = ["-m", "replan", "mcp", "--queue", QUEUE, "--tools", str(file)]
    of_worker = processes.replan_worker(QUEUE, "--tools", str(file))
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(
            processes.worker(of_worker, address, folder / "gateway-worker", folder / "gateway-worker.log")
        )
        url = await stack.enter_async_context(_http(words, environment))
        parameters = StdioServerParameters(
            command=sys.executable, args=[*words, "--session", "pipes"], env=environment, cwd=ROOT
        )
        over_pipes = await stack.enter_async_context(McpClient(parameters))
        over_http = await stack.enter_async_context(McpClient(f"{url}/http"))
        numbers = itertools.count()

        def text() -> str:
            return f"{next(numbers)}"  # equal calls may be one call

        def through(client: McpClient) -> Callable[[], Awaitable[object]]:
            async def call() -> object:
                result = await client.call_tool("echo", {"text": text()})
                if result.is_error:
                    raise RuntimeError(f"The gateway answered {result}.")
                return result

            return call

        same_worker = Client(ours.temporal, queue=QUEUE)

        async def task() -> object:
            step = Step(id="call", kind=KIND, args={"text": text()})
            return await same_worker.run(Task(text="echo", plan=(step,), plan_only=True, limits=Limits(replans=0)))

        async def bare_task() -> object:
            return await bare.run(Work.of(1, kind="over_pipes"))

        yield {BARE_TASK: bare_task, TASK: task, OVER_PIPES: through(over_pipes), OVER_HTTP: through(over_http)}


@asynccontextmanager
async def _http(words: list[str], environment: dict[str, str]) -> AsyncIterator[str]:
    """A gateway over HTTP, by its address."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *words,
        "--http",
        "127.0.0.1:0",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=environment,
        cwd=ROOT,
    )
    try:
        if process.stdout is not None:
            yield (await process.stdout.readline()).decode().split()[1]
    finally:
        process.terminate()
        await process.wait()


def _added(way: str, unit: str = "ms") -> Callable[[Figures], float | None]:
    def added(figures: Figures) -> float | None:
        ours, theirs = figures[way].get(unit), figures[DIRECT].get(unit)
        return ours.median - theirs.median if ours and theirs else None

    return added


GOALS = (
    Goal("an effect over pipes adds at most 8 ms", 8, _added(f"{EFFECT}_pipes")),
    Goal("a read over pipes adds at most 2 ms", 2, _added(f"{READ}_pipes")),
    Goal("a start adds at most 1,000 ms", 1000, _added(BY_COMMAND, "start_ms")),
)


def main(
    rounds: Annotated[int, typer.Option(min=1, help="How often everything is measured.")] = 7,
    calls: Annotated[int, typer.Option(min=1, help="Calls in each way and round.")] = 40,
    starts: Annotated[int, typer.Option(min=1, help="Starts of an agent's process.")] = 5,
    options: Annotated[list[str] | None, typer.Argument(help="More options of `mcp`, such as `-- --tasks`.")] = None,
) -> None:
    """Measure calls through the gateway beside calls of its server without it."""
    before = report.load()
    figures = asyncio.run(_measured(rounds, calls, starts, options or []))
    table = Table("", "ms", "added")
    for unit, titles in (("ms", WAYS), ("start_ms", STARTS)):
        for way, title in titles.items():
            figure, added = figures[way].get(unit), _added(way, unit)(figures)
            table.add_row(title, _shown(figure), "" if way == DIRECT or added is None else f"{added:.1f}")
    where = f"{rounds} rounds of {calls} calls on {Machine.this()}; load {before:g} -> {report.load():g}"
    report.show(table, [where], [goal.judged(figures) for goal in GOALS])
    leave(0)


def _shown(figure: Figure | None) -> str:
    return f"{figure.median:.1f} ({figure.low:.1f}-{figure.high:.1f})" if figure else ""


async def _measured(rounds: int, calls: int, starts: int, options: list[str]) -> Figures:
    samples: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    with tempfile.TemporaryDirectory(prefix="replan-gateway-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        ours = {name: value for name, value in os.environ.items() if not name.startswith("REPLAN_")}
        environment = {**ours, "REPLAN_STATE": str(folder / "state")}
        bare = StdioServerParameters(command=sys.executable, args=[*COMMAND], cwd=ROOT)
        words = {effect: _words(folder, effect, options) for effect in (READ, EFFECT)}
        for number in range(starts):
            samples[DIRECT]["start_ms"].append(await _start(bare))
            session = ["--session", f"start-{number}"]
            by_command = ["-m", "replan", "mcp", *options, *session, "--", sys.executable, *COMMAND]
            for way, begun in ((BY_COMMAND, by_command), (BY_FILE, [*words[EFFECT], *session])):
                gateway = StdioServerParameters(command=sys.executable, args=begun, env=environment, cwd=ROOT)
                samples[way]["start_ms"].append(await _start(gateway))
        async with AsyncExitStack() as stack:
            clients = {DIRECT: await stack.enter_async_context(McpClient(bare))}
            for effect, begin in words.items():
                behind = StdioServerParameters(
                    command=sys.executable, args=[*begin, "--session", "pipes"], env=environment, cwd=ROOT
                )
                clients[f"{effect}_pipes"] = await stack.enter_async_context(McpClient(behind))
                url = await stack.enter_async_context(
                    _http(begin, {**environment, "REPLAN_STATE": f"{folder}/{effect}"})
                )
                clients[f"{effect}_http"] = await stack.enter_async_context(McpClient(f"{url}/http"))
            numbers = itertools.count()
            for number in range(rounds + 1):
                for way, took in (await _round(clients, calls, numbers)).items():
                    if number:  # the first round pays for caches
                        samples[way]["ms"].append(took)
    return {way: {unit: Figure.of(values) for unit, values in units.items()} for way, units in samples.items()}


def _words(folder: Path, effect: str, options: list[str]) -> list[str]:
    command, cwd = (json.dumps(value) for value in ([sys.executable, *COMMAND], str(ROOT)))
    declared = "unkeyed" if effect == EFFECT else "read"
    file = folder / f"{effect}.toml"
    file.write_text(
        f'[servers.{PIPES}]\ncommand = {command}\ncwd = {cwd}\n[servers.{PIPES}.tools.echo]\neffect = "{declared}"\n'
    )
    return ["-m", "replan", "mcp", *options, "--tools", str(file)]


async def _start(parameters: StdioServerParameters) -> float:
    """The milliseconds until an agent has the server's tools."""
    began = time.perf_counter()
    async with McpClient(parameters) as client:
        while "echo" not in [tool.name for tool in (await client.list_tools()).tools]:  # noqa: ASYNC110  # as an agent asks
            await asyncio.sleep(0.01)
        return (time.perf_counter() - began) * 1000


async def _round(clients: dict[str, McpClient], calls: int, numbers: "itertools.count[int]") -> dict[str, float]:
    """The median of the milliseconds of a call, by way; the ways take turns."""
    seconds = defaultdict[str, list[float]](list)
    for _ in range(calls):
        for way, client in clients.items():
            began = time.perf_counter()
            result = await client.call_tool("echo", {"text": f"{next(numbers)}"})
            seconds[way].append(time.perf_counter() - began)
            if result.is_error:
                raise RuntimeError(f"The server answered {result}.")
    return {way: statistics.median(took) * 1000 for way, took in seconds.items()}


if __name__ == "__main__":
    typer.run(main)
