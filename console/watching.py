"""What `start` and `show` do with a task: follow it, show it, leave it alone."""

import asyncio
import shutil
import sys

from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from console import document, tree
from console.connection import ui_url
from console.follow import Follower
from console.outcome import Handle, ended, progress
from console.problem import Exit, Problem, exit_code
from workflows.agent import AgentWorkflow
from workflows.task import Outcome

TASK_TYPE = "AgentWorkflow"


async def known(client: Client, id: str) -> Handle:
    """The task with this id.

    Raises:
        Problem: there is none.
    """
    handle: Handle = client.get_workflow_handle_for(AgentWorkflow.run, id)
    try:
        seen = await handle.describe()
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        raise Problem("unknown_id", f"There is no task {id!r} here", "check the id and the namespace") from error
    if seen.workflow_type != TASK_TYPE:
        reason = f"{id!r} is no task, but a workflow of the type {seen.workflow_type!r}"
        raise Problem("unknown_id", reason, f"`temporal workflow show -w {id}` shows it")
    return handle


async def follow(client: Client, handle: Handle, queue: str, json: bool) -> int:
    shown = _place(client, handle)
    follower = Follower(handle, queue, shown, say=(lambda _: None) if json else _say)
    try:
        outcome = await follower.to_the_end()
    except asyncio.CancelledError:
        follow, stop = f"python starter.py show {handle.id} --follow", f"python starter.py cancel {handle.id}"
        print(f"\ndetached; still running. Follow: {follow}  Stop: {stop}", file=sys.stderr)
        raise
    return await _close(client, handle, outcome, json)


async def show(client: Client, handle: Handle, json: bool) -> int:
    running = (await handle.describe()).status is WorkflowExecutionStatus.RUNNING
    outcome = await progress(handle) if running else await ended(handle)
    if outcome is None:
        reason = f"Task {handle.id!r} is running, but no worker answers for it"
        raise Problem("no_worker", reason, "start one with `python worker.py`", Exit.UNREACHABLE)
    if not json:
        for line in tree.whole(outcome, _place(client, handle)):
            _say(line)
    return await _close(client, handle, outcome, json)


async def _close(client: Client, handle: Handle, outcome: Outcome, json: bool) -> int:
    if json:
        print(document.of_task(outcome, (await handle.describe()).run_id, _place(client, handle)))
    return exit_code(outcome)


async def detached(client: Client, handle: Handle, json: bool) -> int:
    place = _place(client, handle)
    if json:
        print(document.of_start(handle.id, handle.result_run_id, place))
    else:
        _say("  ".join(filter(None, [handle.id, "started", place])))
        _say(f"Follow: python starter.py show {handle.id} --follow")
    return Exit.COMPLETED


def _place(client: Client, handle: Handle) -> str | None:
    return ui_url(client.service_client.config.target_host, client.namespace, handle.id)


def _say(line: str) -> None:
    """Print a line, wrapped on a terminal and whole in a file."""
    if sys.stdout.isatty():
        line = "\n".join(tree.wrapped(part, shutil.get_terminal_size().columns) for part in line.split("\n"))
    print(line, flush=True)
