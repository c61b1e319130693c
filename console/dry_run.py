"""`start --dry-run`: the plan that a task would begin with, what it would change, and what of that can be undone."""

import asyncio
import secrets
import sys
from contextlib import suppress
from datetime import timedelta

from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from console import document, draft
from console.cells import wrapped
from console.connection import DOCTOR
from console.options import Common
from console.problem import Exit, Problem
from console.screen import size
from workflows.inspect import Draft, Findings, Inquiry, InspectWorkflow
from workflows.task import Task, TaskStatus

WORKER_SECONDS = 5.0
"""How long a worker may take to take the question."""
RPC_TIMEOUT = timedelta(seconds=2)
GIVEN_EVENTS = 3
"""Started; workflow task scheduled; given to a worker."""
PLANNER_PATIENCE = timedelta(minutes=10)
"""How long the planner may take with its answer."""

Drafting = WorkflowHandle[InspectWorkflow, Findings]


async def dry_run(client: Client, task: Task, common: Common) -> int:
    """Ask for the plan, print it, and run nothing; the exit code is the one that the task would have ended with."""
    found = await _drafted(client, task, common)
    ending = draft.ending(found)
    if common.json:
        print(document.of_anything(draft.fields(task, found, ending)))
    else:
        live = sys.stdout is not None and sys.stdout.isatty()
        for line in draft.lines(task, found, ending):
            print(wrapped(line, size(sys.stdout)[0]) if live else line)
    if ending.code in ("plan_refused", "task_refused"):
        return Exit.BAD_USAGE
    return {TaskStatus.FAILED: Exit.FAILED, TaskStatus.ESCALATED: Exit.NEEDS_PERSON}.get(ending.status, Exit.COMPLETED)


async def _drafted(client: Client, task: Task, common: Common) -> Draft:
    """What a worker's planner proposes; the question is withdrawn when nobody waits for the answer any more.

    Raises:
        Problem: no worker answers, it cannot draft, or the planner takes too long.
    """
    handle: Drafting = await client.start_workflow(
        InspectWorkflow.run,
        Inquiry(about="plan", task=task),
        id=f"inspect-{secrets.token_hex(4)}",
        task_queue=common.queue,
        execution_timeout=PLANNER_PATIENCE,
        static_summary="the console asks for a plan, to look at",
    )
    try:
        found = await _answer(handle, common)
    except WorkflowFailureError as failure:
        raise _unanswered(failure) from failure
    if found.draft is None:
        remedy = "restart it on the version of this console"
        raise Problem("old_worker", "The worker is too old for --dry-run", remedy, Exit.FAILED)
    return found.draft


async def _answer(handle: Drafting, common: Common) -> Findings:
    """Wait for the answer as long as there is a worker that works on it."""
    answer = asyncio.create_task(handle.result())
    try:
        await asyncio.wait([answer], timeout=WORKER_SECONDS)
        if not answer.done():
            await _require_worker(handle, common)
            print("still waiting for the planner; Ctrl-C stops asking", file=sys.stderr)
        return await answer
    finally:
        if answer.cancelled() or not answer.done():
            answer.cancel()
            with suppress(RPCError):  # the server is away, and the question ends by its timeout
                await handle.terminate("nobody waits for the answer any more", rpc_timeout=RPC_TIMEOUT)


async def _require_worker(handle: Drafting, common: Common) -> None:
    """Go on when a worker has done its first part of the work.

    One that hangs has been given the work as well: the history's first three events say only that.
    """
    if (await handle.describe(rpc_timeout=RPC_TIMEOUT)).history_length <= GIVEN_EVENTS:
        reason = f"No worker answers on queue {common.queue}"
        remedy = f"start one with `python worker.py{common.at_queue}`, or see `{DOCTOR}`"
        raise Problem("no_worker", reason, remedy, Exit.UNREACHABLE)


def _unanswered(failure: WorkflowFailureError) -> Problem:
    if isinstance(failure.cause, ApplicationError):
        return Problem("refused", failure.cause.message.rstrip("."), "see the worker's log", Exit.FAILED)
    reason = f"The planner gave no answer within {PLANNER_PATIENCE.total_seconds():g} s"
    return Problem("no_answer", reason, "see the worker's log", Exit.FAILED)
