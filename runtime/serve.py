"""Running a worker until it is told to stop, and stopping it in order."""

import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from temporalio.client import Client
from temporalio.service import RPCError
from temporalio.worker import Interceptor, UnsandboxedWorkflowRunner, Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from runtime.client import connect, namespace_id, register_search_attributes
from runtime.dev_server import LocalServer, dev_server
from runtime.settings import Settings
from runtime.temporal_cli import Say
from workflows import routing
from workflows.agent import AgentWorkflow
from workflows.attributes import TYPES
from workflows.inspect import InspectWorkflow
from workflows.undoing import UndoWorkflow

WORKFLOWS = (AgentWorkflow, InspectWorkflow, UndoWorkflow)
GRACE = timedelta(seconds=8)
"""How long running calls may continue after SIGTERM before they are cancelled; another worker repeats them."""
STICKY = timedelta(seconds=1)
"""How long a workflow task waits for the worker that has its workflow in memory, which may have been killed."""
POLLERS = 10


@dataclass(frozen=True)
class Server:
    """A Temporal server that answers, and the worker's namespace there."""

    client: Client
    local: LocalServer | None
    """The server on this machine that `--dev` uses; None without `--dev`."""
    namespace_id: str
    """Unique among the namespaces of all servers."""
    is_searchable: bool
    """Whether the namespace has Replan's search attributes."""


@asynccontextmanager
async def joined(settings: Settings, say: Say) -> AsyncIterator[Server]:
    """Connect to the configured server; with `--dev` to one on this machine, which is started if none answers.

    A server that was started here ends with the block. Raises ServerUnavailable, NotConnected.
    """
    async with AsyncExitStack() as stack:
        starting = dev_server(settings.state, say=say, attributes=TYPES) if settings.dev else None
        local = await stack.enter_async_context(starting) if starting else None
        client = await connect(address=local.address if local else None, plain=local is not None)
        is_searchable = await register_search_attributes(client, TYPES)
        yield Server(client, local, await namespace_id(client), is_searchable)


def build(
    client: Client,
    queue: str,
    *,
    workflows: Sequence[type],
    activities: Sequence[Callable[..., Any]],
    interceptors: Sequence[Interceptor],
    is_watched: bool = False,
) -> Worker:
    """A worker with Replan's limits.

    With `is_watched`, as in tests, workflows run in the SDK's sandbox. A user's worker has no sandbox: it runs only
    Replan's workflows, which `workflows/ruff.toml` and the tests keep deterministic; the sandbox costs 1.6 ms a step.
    """
    return Worker(
        client,
        task_queue=queue,
        workflows=workflows,
        activities=activities,
        interceptors=interceptors,
        workflow_runner=sandbox() if is_watched else UnsandboxedWorkflowRunner(),
        graceful_shutdown_timeout=GRACE,
        sticky_queue_schedule_to_start_timeout=STICKY,
        max_heartbeat_throttle_interval=routing.CANCEL_NOTICE,
        default_heartbeat_throttle_interval=routing.CANCEL_NOTICE,
        max_concurrent_workflow_task_polls=POLLERS,
        max_concurrent_activity_task_polls=POLLERS,
        max_eager_activity_reservations_per_workflow_task=routing.MAX_PARALLEL,
    )


def sandbox() -> SandboxedWorkflowRunner:
    """The sandbox with every module passed through: importing others for each workflow takes 8 ms or more."""
    return SandboxedWorkflowRunner(restrictions=SandboxRestrictions.default.with_passthrough_all_modules())


class Stop:
    """Handles SIGTERM and Ctrl-C: the first one stops the worker in order, a second one ends the process at once."""

    def __init__(self) -> None:
        self._asked = asyncio.Event()
        self._starting = asyncio.current_task()  # a signal cancels it until `wait` is called
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self._ask)

    async def wait(self) -> None:
        self._starting = None
        await self._asked.wait()

    def _ask(self) -> None:
        if self._asked.is_set():
            os._exit(130)
        self._asked.set()
        if self._starting is not None:
            self._starting.cancel()


async def serve(worker: Worker, stop: Stop) -> None:
    """Run `worker` until the first signal, then let running calls finish, within a limit."""
    try:
        async with worker:
            await stop.wait()
            # Nothing can stop a thread. Other workers rely on it that the threads of this one have ended
            # `routing.EXIT_WITHIN` after its calls were cancelled.
            _end_in(GRACE + routing.EXIT_WITHIN, code=0)
    except BaseException:
        _end_in(routing.EXIT_WITHIN, code=1)
        raise


def _end_in(limit: timedelta, code: int) -> None:
    timer = threading.Timer(limit.total_seconds(), os._exit, [code])
    timer.daemon = True  # it must not keep the process alive
    timer.start()


def ready_line(server: Server, settings: Settings, planner: str, *, tools: int) -> str:
    """The one line that says where everything is; it begins with `ready`."""
    local, client = server.local, server.client
    whose = "" if local is None else " (ours)" if local.ours else " (was running already, not ours)"
    parts = [
        "ready",
        *([f"ui {local.ui_url}"] if local else []),
        f"server {client.service_client.config.target_host}{whose}",
        f"namespace {client.namespace}",
        f"state {settings.state}",
        f"queue {settings.queue}",
        f"{tools} tools",
        f"planner {planner}",
    ]
    return "  ".join(parts)


async def goodbye(client: Client, queue: str) -> str:
    """The last line of a worker: how many tasks of its queue continue when a worker starts again."""
    query = f'TaskQueue = "{queue}" AND ExecutionStatus = "Running"'
    try:
        count = (await client.count_workflows(query, rpc_timeout=timedelta(seconds=2))).count
    except RPCError:
        return "stopped; the server does not answer any more"
    tasks = "1 task" if count == 1 else f"{count} tasks"
    return f"stopped; {tasks} unfinished; they go on when a worker starts" if count else "stopped; no task unfinished"
