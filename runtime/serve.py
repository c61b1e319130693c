"""Builds a worker, runs it until a signal, and stops it in order."""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Self

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.service import RPCError
from temporalio.worker import Interceptor, UnsandboxedWorkflowRunner, Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from runtime import process
from runtime.client import connect, namespace_id, register_search_attributes
from runtime.dev_server import RunningDevServer, dev_server
from runtime.settings import Settings
from runtime.temporal_cli import Say
from workflows.account.search_attributes import TYPES
from workflows.agent import AgentWorkflow
from workflows.calls.execution import MAX_PARALLEL
from workflows.faults import retries
from workflows.inquiries import InspectWorkflow
from workflows.people.incidents import ResolveWorkflow
from workflows.people.notifications import NotifyWorkflow
from workflows.plans import own_activities
from workflows.rollback import UndoWorkflow
from workflows.task_queues import control_queue, notification_queue
from workflows.text import few, visible

OWN = ("InspectWorkflow", "NotifyWorkflow", "ResolveWorkflow")
"""The types of the workflows that run on the control queue."""
WORKFLOWS = (AgentWorkflow, InspectWorkflow, NotifyWorkflow, ResolveWorkflow, UndoWorkflow)
GRACE = timedelta(seconds=8)
"""How long activities may go on after SIGTERM; then they are cancelled, and another worker repeats them."""
CANCEL_NOTICE = timedelta(seconds=1)
"""A running activity learns of its cancellation within this time."""
STICKY = timedelta(seconds=2)
"""How long a workflow task waits for the worker with the workflow in its cache; then any other worker takes it."""
SWITCH_INTERVAL = 0.0005
"""Seconds after which a Python thread that computes lets another one run: a tenth of Python's own."""


@dataclass(frozen=True)
class Server:
    """A Temporal server that answers, and the worker's namespace there."""

    client: Client
    local: RunningDevServer | None
    """The server on this machine that `--dev` uses; None without `--dev`."""
    namespace_id: str
    """The id of the namespace; unlike the name, it is unique among all servers."""
    is_searchable: bool
    """Whether the namespace has Replan's search attributes."""


@asynccontextmanager
async def joined(settings: Settings, say: Say, fail: Callable[[str], None]) -> AsyncIterator[Server]:
    """Connect to the server of the settings; with `--dev`, to the server of the state folder.

    If the server of the state folder does not answer, a server is started here, and stopped when the block ends. `fail`
    is called with the reason if this server ends earlier and cannot be started again.

    Raises:
        ServerUnavailable, NotConnected, RPCError: no server can be used.
    """
    async with AsyncExitStack() as stack:
        local = None
        if settings.dev:
            starting = dev_server(settings.state, say=say, fail=fail, address=settings.dev_address, attributes=TYPES)
            local = await stack.enter_async_context(starting)
        client = await connect(
            address=local.address if local else None,
            plain=local is not None,
            state=settings.state,
            keys=settings.keys,
            codec=settings.codec,
            tells_use=not settings.accept_clear,
        )
        is_searchable = await register_search_attributes(client, TYPES)
        yield Server(client, local, await namespace_id(client), is_searchable)


def build(
    client: Client,
    queue: str,
    *,
    workflows: Sequence[type],
    activities: Sequence[Callable[..., Any]],
    interceptors: Sequence[Interceptor],
    slots: int = Settings.slots,
    is_watched: bool = False,
) -> "Workers":
    """Build workers with Replan's limits: for `queue`, with `slots` calls of tools at once, and for the control queue.

    If `activities` has the activity that notifies a receiver, a third worker serves the queue of notifications.
    With `is_watched`, as in tests, workflows run in the SDK's sandbox.
    """
    # A user's worker has no sandbox, which costs 1.6 ms a step: it runs only Replan's workflows, and
    # `workflows/ruff.toml` and the tests keep these deterministic.
    limits: dict[str, Any] = {
        # It is in three events of each step: the SDK's own is 32 digits, for which it reads all modules once more.
        "build_id": process.version(),
        "interceptors": interceptors,
        "graceful_shutdown_timeout": GRACE,
        # An activity hears of its cancellation with a heartbeat, so heartbeats must not be held back for longer.
        "max_heartbeat_throttle_interval": CANCEL_NOTICE,
        "default_heartbeat_throttle_interval": CANCEL_NOTICE,
        "workflow_runner": sandbox() if is_watched else UnsandboxedWorkflowRunner(),
        "sticky_queue_schedule_to_start_timeout": STICKY,
    }
    tools = Worker(
        client,
        task_queue=queue,
        workflows=workflows,
        activities=activities,  # all of them: those of Replan itself are local activities, too
        max_concurrent_activities=slots,
        max_eager_activity_reservations_per_workflow_task=MAX_PARALLEL,
        **limits,
    )
    own = [function for function in activities if _kind(function) in own_activities.KINDS]
    on_control = [each for each in workflows if workflow._Definition.must_from_class(each).name in OWN]
    if not own and not on_control:  # in tests of one workflow
        return Workers([tools])
    workers = [
        tools,
        Worker(client, task_queue=control_queue(queue), workflows=on_control, activities=own, **limits),
    ]
    if notify := [function for function in own if _kind(function) == own_activities.NOTIFY.kind]:
        workers.append(Worker(client, task_queue=notification_queue(queue), activities=notify, **limits))
    return Workers(workers)


def _kind(function: Callable[..., Any]) -> str | None:
    """The type of an activity; None for a dynamic activity, which has every type."""  # the SDK has no public way
    return activity._Definition.must_from_callable(function).name


class Workers:
    """The workers of one process, which start and stop together."""

    def __init__(self, workers: Sequence[Worker]) -> None:
        self._workers = workers

    async def __aenter__(self) -> Self:
        for worker in self._workers:
            await worker.__aenter__()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *error: Any) -> None:
        ended = await asyncio.gather(
            *(worker.__aexit__(kind, *error) for worker in self._workers), return_exceptions=True
        )
        for failure in filter(None, ended):
            raise failure


def sandbox() -> SandboxedWorkflowRunner:
    """The SDK's sandbox with every module passed through."""
    # A module that is not passed through is imported again for each workflow, which takes 8 ms or more.
    return SandboxedWorkflowRunner(restrictions=SandboxRestrictions.default.with_passthrough_all_modules())


class Stop:
    """Handles SIGTERM and Ctrl-C: the first signal stops the worker in order, a second ends the process at once."""

    def __init__(self) -> None:
        self._stop_requested = asyncio.Event()
        self._starting = asyncio.current_task()  # a signal cancels it until `wait` is called
        self._loop = asyncio.get_running_loop()
        self.failure: str | None = None
        """Why the worker cannot go on; None if a signal stopped it."""
        for number in (signal.SIGINT, signal.SIGTERM):
            self._loop.add_signal_handler(number, self._request_stop)

    async def wait(self) -> None:
        """Wait for a signal or `fail`; from now on, a signal does not cancel the task that made this object."""
        self._starting = None
        await self._stop_requested.wait()

    def fail(self, reason: str) -> None:
        """Stop the worker in order, from any thread, because it cannot go on."""
        self.failure = self.failure or reason
        self._loop.call_soon_threadsafe(self._stop_requested.set)

    def _request_stop(self) -> None:
        if self._stop_requested.is_set():
            os._exit(130)
        self._stop_requested.set()
        if self._starting is not None:
            self._starting.cancel()


class CannotContinue(Exception):
    """The worker cannot start to serve, or has stopped by itself; the message says why and what to do."""


async def serve(worker: Workers, stop: Stop, running: Sequence[str], say: Say) -> None:
    """Run `worker` until `stop` is requested, then let the running calls end; `running` has their names.

    The calls are cancelled after GRACE. After GRACE plus `retries.EXIT_WITHIN` the process ends, even if a call runs.

    Raises:
        CannotContinue: the worker stopped by itself, because of `stop.failure`.
    """
    # Between two statements, a write to the store waits for each thread that computes, and all others for its lock.
    sys.setswitchinterval(SWITCH_INTERVAL)
    try:
        async with worker:
            await stop.wait()
            if running:
                calls = "1 call still runs, and is" if len(running) == 1 else f"{len(running)} calls still run, and are"
                say(f"stopping; {calls} cancelled after {GRACE.total_seconds():g} s")
            # Nothing can stop a thread. Other workers rely on it that the threads of this one have ended
            # `retries.EXIT_WITHIN` after its calls were cancelled.
            code = 1 if stop.failure else 0
            _end_in(GRACE + retries.EXIT_WITHIN, code, lambda: say(_forced_end_line(running, stop.failure)))
    except BaseException:
        _end_in(retries.EXIT_WITHIN, 1, lambda: None)
        raise
    if stop.failure:
        raise CannotContinue(_failure_line(stop.failure))


def _end_in(limit: timedelta, code: int, say: Callable[[], None]) -> None:
    """Start a timer, and return at once. After `limit`, the timer calls `say` and ends the process with `code`."""

    def end() -> None:
        say()
        os._exit(code)

    timer = threading.Timer(limit.total_seconds(), end)
    timer.daemon = True  # it must not keep the process alive
    timer.start()


def _failure_line(failure: str) -> str:
    return f"{failure} The worker stopped: start it again (a supervisor does)."


def _forced_end_line(running: Sequence[str], failure: str | None) -> str:
    calls, limit = few([visible(call) for call in running], 3), (GRACE + retries.EXIT_WITHIN).total_seconds()
    why = f"{_failure_line(failure)}\n" if failure else ""
    return (
        f"{why}stopped after {limit:g} s, although calls still ran: {calls}; another worker finds"
        " out whether they took effect, or repeats them"
    )


def ready_line(server: Server, settings: Settings, planner: str, *, tools: int) -> str:
    """The line that a worker prints when it serves: `ready`, then the addresses of what it uses."""
    local, client = server.local, server.client
    whose = f" ({local.whose})" if local else ""
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
    """The last line of a worker: how many open tasks of its queue wait until a worker starts again."""
    query = f'TaskQueue = "{queue}" AND CloseTime IS NULL'  # also paused ones
    try:
        async with asyncio.timeout(2):  # an RPC timeout is that of one attempt, and the SDK makes several
            count = (await client.count_workflows(query)).count
    except (RPCError, TimeoutError):
        return "stopped; the server does not answer any more"
    if not count:
        return "stopped; no task unfinished"
    tasks = "1 task unfinished; it goes" if count == 1 else f"{count} tasks unfinished; they go"
    return f"stopped; {tasks} on when a worker starts"
