"""The part of `benchmarks.mcp` about the gateway: a call of an agent beside the tasks that it is compared with."""

import asyncio
import itertools
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from mcp import Client as McpClient, StdioServerParameters

from benchmarks.mcp_worker import COMMAND, PIPES, ROOT
from benchmarks.rounds import Arm
from benchmarks.work import Work
from client.client import Client
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
KIND = f"{PIPES}.echo"
Calls = dict[str, Callable[[], Awaitable[object]]]
"""By the name of a way, a call of the server's tool in it."""


@asynccontextmanager
async def calls(folder: Path, bare: Arm, ours: Client) -> AsyncIterator[Calls]:
    """The ways, with a gateway of its own. The tool is declared to have an effect, or its calls would be no tasks."""
    command, cwd = (json.dumps(value) for value in ([sys.executable, *COMMAND], str(ROOT)))
    file = folder / "effect.toml"
    file.write_text(
        f'[servers.{PIPES}]\ncommand = {command}\ncwd = {cwd}\n[servers.{PIPES}.tools.echo]\neffect = "unkeyed"\n'
    )
    address = ours.temporal.service_client.config.target_host
    environment = {**os.environ, "TEMPORAL_ADDRESS": address, "REPLAN_STATE": str(folder / "gateway")}
    words = ["-m", "replan", "mcp", "--tasks", "--tools", str(file)]
    async with AsyncExitStack() as stack:
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

        await through(over_http)()
        [started] = [one async for one in ours.temporal.list_workflows("WorkflowId STARTS_WITH 'mcp:http:'", limit=1)]
        same_worker = Client(ours.temporal, queue=started.task_queue or "")

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
