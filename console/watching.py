"""What `start` and `show` do with a task: follow it, show it, leave it alone."""

import asyncio
import shutil
import sys

from temporalio.client import Client, WorkflowExecutionStatus

from console import document, tree
from console.connection import ui_url
from console.follow import Follower
from console.options import Common
from console.outcome import Handle, ended, exit_code, progress
from console.problem import Exit, Problem
from workflows.task import Outcome


async def follow(client: Client, handle: Handle, common: Common) -> int:
    shown = _place(client, handle)
    follower = Follower(handle, common, shown, say=(lambda _: None) if common.json else _say)
    try:
        outcome = await follower.to_the_end()
    except asyncio.CancelledError:
        follow, stop = f"python starter.py show {handle.id} --follow", f"python starter.py cancel {handle.id}"
        print(f"\ndetached; still running. Follow: {follow}  Stop: {stop}", file=sys.stderr)
        raise
    return await _close(client, handle, outcome, common.json)


async def show(client: Client, handle: Handle, common: Common) -> int:
    running = (await handle.describe()).status is WorkflowExecutionStatus.RUNNING
    outcome = await progress(handle) if running else await ended(handle)
    if outcome is None:
        reason = f"Task {handle.id!r} is running, but no worker answers for it"
        raise Problem("no_worker", reason, f"start one with `python worker.py{common.at_queue}`", Exit.UNREACHABLE)
    if not common.json:
        for line in tree.whole(outcome, _place(client, handle)):
            _say(line)
    return await _close(client, handle, outcome, common.json)


async def _close(client: Client, handle: Handle, outcome: Outcome, json: bool) -> int:
    if json:
        print(document.of_task(outcome, (await handle.describe()).run_id, _place(client, handle)))
    return exit_code(outcome)


async def detached(client: Client, handle: Handle, common: Common) -> int:
    place = _place(client, handle)
    if common.json:
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
