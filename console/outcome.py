"""How a task stands or ended, wherever that is written: the result, the failure, the memo, or a worker's memory."""

import asyncio
from datetime import timedelta
from typing import Any

from pydantic import ValidationError
from temporalio.client import (
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowHandle,
)
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from console.problem import Exit
from console.shown import starter
from workflows.agent import OUTCOME_MEMO, AgentWorkflow
from workflows.outcome import Ending, Outcome
from workflows.progress import Progress
from workflows.task import Task, TaskStatus

Handle = WorkflowHandle[AgentWorkflow, Outcome]

QUERY_TIMEOUT = timedelta(seconds=2.5)
"""For each question to the server, and to a worker."""


async def ended(handle: Handle) -> Outcome:
    """Wait for the end of a task and return its Outcome, however it ended.

    Raises:
        RPCError: the server does not answer.
    """
    try:
        return await handle.result()
    except WorkflowFailureError as failure:
        cause = failure.cause
        if isinstance(cause, ApplicationError) and cause.details:
            try:
                return Outcome.model_validate(cause.details[0])
            except ValidationError:
                pass
        return await _closed_from_outside(handle)


async def account(handle: Handle) -> Progress | None:
    """All that a worker knows of a task, by query, which adds nothing to its history; None when none answers.

    Raises:
        WorkflowQueryFailedError: a worker answers that it cannot tell, as one whose code does not replay the history.
    """
    try:
        async with asyncio.timeout(QUERY_TIMEOUT.total_seconds()):  # the SDK tries again for longer than people wait
            return await handle.query(AgentWorkflow.progress, rpc_timeout=QUERY_TIMEOUT)
    except (RPCError, TimeoutError):
        return None


async def _closed_from_outside(handle: Handle) -> Outcome:
    """A cancelled task wrote its Outcome into the memo; one that was terminated wrote nothing."""
    seen = await handle.describe()
    memo: dict[str, Any] = dict(await seen.memo())
    if OUTCOME_MEMO in memo:
        return Outcome.model_validate(memo[OUTCOME_MEMO])
    cancelled = seen.status is WorkflowExecutionStatus.CANCELED
    status = TaskStatus.CANCELLED if cancelled else TaskStatus.FAILED
    how = (
        "cancelled before it began"
        if cancelled
        else f"closed from outside ({seen.status.name if seen.status else '?'}): `{starter('explain', seen.id)}` "
        "tells what it had done"
    )
    account = Progress(task=Task(text=str(memo.get("task") or seen.id)), task_id=seen.id, started_at=seen.start_time)
    account.end(Ending(status=status, reason=f"The task was {how}.", code="closed"), seen.close_time or seen.start_time)
    return account.outcome(seen.start_time)


_BY_STATUS = {
    TaskStatus.RUNNING: Exit.COMPLETED,
    TaskStatus.WAITING: Exit.NEEDS_PERSON,
    TaskStatus.COMPLETED: Exit.COMPLETED,
    TaskStatus.ESCALATED: Exit.NEEDS_PERSON,
    TaskStatus.OVER_BUDGET: Exit.OVER_BUDGET,
    TaskStatus.CANCELLED: Exit.CANCELLED,
    TaskStatus.FAILED: Exit.FAILED,
}


def exit_code(outcome: Outcome) -> Exit:
    """The exit code of a task that stands so; a plan or a task that was refused is bad usage."""
    return Exit.BAD_USAGE if outcome.code in ("plan_refused", "task_refused") else _BY_STATUS[outcome.status]
