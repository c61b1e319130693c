"""Lists tasks as the server knows them; no worker is asked.

Runs for the command `list`, the list and the inbox of the page, and the lists of programs.
"""

import asyncio
from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from pydantic import BaseModel
from temporalio.api.enums.v1 import EventType
from temporalio.api.failure.v1 import Failure
from temporalio.client import Client, WorkflowExecution, WorkflowExecutionStatus, WorkflowHistoryEventFilterType
from temporalio.converter import DataConverter
from temporalio.service import RPCError, RPCStatusCode

from client import people, tasks as finding
from client.connection import ui_url_of
from client.encrypted import ENCRYPTED, is_sealed, sealed_request
from client.filters import bad_query, within
from client.pauses import pauses
from client.problem import Problem
from client.wording import suggested
from client.workflow_task import FailingTask, failing
from workflows.account import search_attributes
from workflows.account.outcome import Outcome
from workflows.account.records import Pause
from workflows.account.task import UNREADABLE, Task, TaskStatus
from workflows.faults.fault import Code
from workflows.people.requests import HumanRequest
from workflows.text import nearest

MAX_WAITING = 1000
"""The maximum number of waiting tasks that are read; of more waiting tasks, the newest are read."""


class Listed(BaseModel, frozen=True):
    """A run of a task, as the server lists it."""

    task_id: str
    run_id: str
    task: str
    by: str = ""
    """The unverified name of the person or program that started the task; empty if no name was given."""
    status: TaskStatus
    reason: str | None
    """The question or reason of an escalated task, or the reason of the request of a waiting task; else None."""
    started_at: datetime
    ended_at: datetime | None
    replans: int | None
    """The number of replans. Like `planner` and `strategy`, it is a search attribute; None if the task lacks it."""
    last_fault: str | None
    planner: str | None
    strategy: str | None
    ui_url: str | None
    failing: FailingTask | None = None
    paused: tuple[Pause, ...] = ()
    """What operators have paused of the task: its calls, or the whole task."""
    request: HumanRequest | None = None
    """The oldest open request to a person, as far as the task publishes it; None without a request."""


class Waiting(BaseModel, frozen=True):
    """A task that waits for a person."""

    task_id: str
    task: str
    by: str
    queue: str
    request: HumanRequest
    """The request that has been open longest, without the call that is to be approved."""


STATUS = search_attributes.STATUS.name

CLOSED = {
    WorkflowExecutionStatus.COMPLETED: TaskStatus.COMPLETED,
    WorkflowExecutionStatus.CANCELED: TaskStatus.CANCELLED,
    WorkflowExecutionStatus.TERMINATED: TaskStatus.FAILED,
    WorkflowExecutionStatus.TIMED_OUT: TaskStatus.FAILED,
}
"""The Temporal statuses that each map to exactly one TaskStatus."""

PLAIN: Mapping[TaskStatus, str] = {
    TaskStatus.RUNNING: "ExecutionStatus = 'Running'",
    TaskStatus.WAITING: "ExecutionStatus = 'Running'",
    # Not by the name of the status, which older servers do not know.
    TaskStatus.PAUSED: "CloseTime IS NULL AND ExecutionStatus != 'Running'",
    TaskStatus.COMPLETED: "ExecutionStatus = 'Completed'",
    TaskStatus.ESCALATED: "ExecutionStatus = 'Failed'",
    TaskStatus.OVER_BUDGET: "ExecutionStatus = 'Failed'",
    TaskStatus.CANCELLED: "ExecutionStatus = 'Canceled'",
    TaskStatus.FAILED: "ExecutionStatus IN ('Failed', 'Terminated', 'TimedOut')",
}
"""By status, the list filter for a namespace without Replan's search attributes; it may also find other statuses."""

EXACT: Mapping[TaskStatus, str] = {
    **PLAIN,
    TaskStatus.RUNNING: f"ExecutionStatus = 'Running' AND ({STATUS} IS NULL OR {STATUS} != 'waiting')",
    TaskStatus.WAITING: f"ExecutionStatus = 'Running' AND {STATUS} = 'waiting'",
    TaskStatus.ESCALATED: f"ExecutionStatus = 'Failed' AND {STATUS} = 'escalated'",
    TaskStatus.OVER_BUDGET: f"ExecutionStatus = 'Failed' AND {STATUS} = 'over_budget'",
    TaskStatus.FAILED: "(ExecutionStatus IN ('Terminated', 'TimedOut') OR "
    f"(ExecutionStatus = 'Failed' AND ({STATUS} IS NULL OR {STATUS} = 'failed')))",
}
"""By status, the list filter for a namespace with Replan's search attributes."""


class Why(NamedTuple):
    """Why a task needs a person."""

    reason: str
    fault: str | None
    """The code of the fault, of a step or of the planner, that ended the task; None if it is not known."""


def status_named(name: str | None) -> TaskStatus | None:
    """The status with this name in any case, or Temporal's `Canceled`; None for None. Raises Problem for others."""
    if name is None:
        return None
    meant = name.strip().lower().replace("-", "_")
    meant = TaskStatus.CANCELLED if meant == "canceled" else meant
    if meant not in set(TaskStatus):
        reason = f"There is no status {name!r}{nearest(meant, TaskStatus)}"
        raise Problem("unknown_status", reason, f"it is one of {', '.join(TaskStatus)}")
    return TaskStatus(meant)


class TaskList(NamedTuple):
    """Tasks, and a note about how far the list can be relied on."""

    tasks: list[Listed]
    note: str
    """Empty if there is nothing to note."""


async def list_tasks(
    client: Client, *, status: TaskStatus | None = None, query: str | None = None, limit: int = 20
) -> TaskList:
    """The newest tasks, newest first; with the status WAITING, the tasks that have waited longest, longest wait first.

    `query` is a list filter of Temporal. Raises Problem if it cannot be used.
    """
    found, note = await _rows_and_note(client, status, query, limit)
    slots = asyncio.Semaphore(20)  # each row takes a few requests to the server
    rows = [finding.existing(_listed(client, row, slots, newest_only=bool(status or query))) for row in found]
    listed = [task for task in await asyncio.gather(*rows) if task is not None and status in (None, task.status)]
    sealed = f"the tasks named {ENCRYPTED} can be read with the workers' `--keys` or REPLAN_CODEC"
    notes = [note, sealed if any(task.task == ENCRYPTED for task in listed) else ""]
    return TaskList(listed, "; ".join(filter(None, notes)))


async def _rows_and_note(
    client: Client, status: TaskStatus | None, query: str | None, limit: int
) -> tuple[list[WorkflowExecution], str]:
    list_filter = within(finding.TASKS, query)
    try:
        if status is TaskStatus.WAITING:
            return await _longest_waiting(client, f"{list_filter} AND {EXACT[status]}", limit), ""
        return await finding.newest_tasks(client, list_filter + (f" AND {EXACT[status]}" if status else ""), limit), ""
    except RPCError as error:
        if error.status is not RPCStatusCode.INVALID_ARGUMENT:
            raise
        # An error about our own search attribute means that the namespace lacks it; all others are about `query`.
        if status is None or STATUS not in error.message or STATUS in (query or ""):
            raise bad_query(error) from error
    note = (
        f"this namespace has no search attribute {STATUS}, so these are of the newest that Temporal lists with "
        f"{PLAIN[status]}; `temporal operator search-attribute create --name {STATUS} --type Keyword` adds it"
    )
    return await finding.newest_tasks(client, f"{list_filter} AND {PLAIN[status]}", limit), note


async def list_waiting(client: Client) -> list[Waiting]:
    """The tasks that wait for a person, longest wait first: of more than MAX_WAITING the newest. No worker is asked."""
    try:
        rows = await _rows(client, EXACT[TaskStatus.WAITING])
    except RPCError as error:
        if error.status is not RPCStatusCode.INVALID_ARGUMENT:
            raise
        rows = await _rows(client, PLAIN[TaskStatus.WAITING])  # a namespace without our search attributes
    found = list[Waiting]()
    for row in rows:
        sealed = sealed_request(row) if await is_sealed(row) else None
        if request := sealed or await people.oldest_request(row):
            text = await finding.memo_field(row, finding.TASK_MEMO, str) or (ENCRYPTED if sealed else "")
            by = await finding.memo_field(row, finding.BY_MEMO, str) or ""
            found.append(Waiting(task_id=row.id, task=text, by=by, queue=row.raw_info.task_queue, request=request))
    return sorted(found, key=lambda task: task.request.since)


async def _rows(client: Client, query: str) -> list[WorkflowExecution]:
    listed = client.list_workflows(f"{finding.TASKS} AND {query}", limit=MAX_WAITING, page_size=MAX_WAITING)
    return [row async for row in listed]


async def _longest_waiting(client: Client, query: str, limit: int) -> list[WorkflowExecution]:
    """Of the waiting tasks that `query` finds, those with the oldest requests, the oldest first; no task is asked."""
    since = dict[str, datetime]()
    rows = await finding.newest_tasks(client, query, MAX_WAITING)
    for row in rows:
        request = await people.oldest_request(row)
        since[row.id] = request.since if request else row.start_time
    return sorted(rows, key=lambda row: since[row.id])[:limit]


async def _listed(
    client: Client, row: WorkflowExecution, limit_requests: asyncio.Semaphore, *, newest_only: bool
) -> Listed | None:
    """The data of a run; None if `newest_only` and the task has a newer run. Raises RPCError if the run was deleted."""
    async with limit_requests:
        closed = row.status is not WorkflowExecutionStatus.RUNNING
        if newest_only and closed and (await client.get_workflow_handle(row.id).describe()).run_id != row.run_id:
            return None
        is_readable = not await is_sealed(row)
        text = await finding.memo_field(row, finding.TASK_MEMO, str) if is_readable else ENCRYPTED
        text = text or await _text(client, row)
        known = {attribute.key.name: attribute.value for attribute in row.typed_search_attributes}
        status, why = await _status(client, row, str(known.get(STATUS, "")))
        description = None if closed else await client.get_workflow_handle(row.id).describe()
        fails = await failing(client, description) if description else None
        paused = pauses(client, description) if description else ()
        status = TaskStatus.PAUSED if any(pause.activity is None for pause in paused) else status
    request = None if closed else await people.oldest_request(row)
    return Listed(
        task_id=row.id,
        run_id=row.run_id,
        task=text,
        by=await finding.memo_field(row, finding.BY_MEMO, str) or "",
        status=status,
        reason=why.reason if why else request.reason if request else None,
        started_at=row.start_time,
        ended_at=row.close_time,
        replans=known.get(search_attributes.REPLANS.name),
        last_fault=known.get(search_attributes.LAST_FAULT.name) or (why.fault if why else None),
        planner=known.get(search_attributes.PLANNER.name),
        strategy=known.get(search_attributes.STRATEGY.name),
        ui_url=ui_url_of(client, row.id),
        failing=fails,
        paused=paused,
        request=request,
    )


async def _status(client: Client, row: WorkflowExecution, published_status: str) -> tuple[TaskStatus, Why | None]:
    # Temporal's status decides: a task that was ended from outside could publish no status.
    if row.status in CLOSED:
        return CLOSED[row.status], None
    if row.status is WorkflowExecutionStatus.RUNNING:
        return TaskStatus.WAITING if published_status == TaskStatus.WAITING else TaskStatus.RUNNING, None
    if published_status in (TaskStatus.OVER_BUDGET, TaskStatus.FAILED):
        return TaskStatus(published_status), None
    failure = await _failure(client, row)
    kind = failure.application_failure_info.type
    status = TaskStatus(kind) if kind in (TaskStatus.ESCALATED, TaskStatus.OVER_BUDGET) else TaskStatus.FAILED
    return status, await _why(finding.converter_of(client, row.id), failure) if status is TaskStatus.ESCALATED else None


async def _failure(client: Client, row: WorkflowExecution) -> Failure:
    handle = client.get_workflow_handle(row.id, run_id=row.run_id)
    async for event in handle.fetch_history_events(event_filter_type=WorkflowHistoryEventFilterType.CLOSE_EVENT):
        return event.workflow_execution_failed_event_attributes.failure
    return Failure()


async def _why(converter: DataConverter, failure: Failure) -> Why:
    details = failure.application_failure_info.details.payloads
    outcome = await finding.decoded(converter, details, Outcome)
    if outcome is None:  # a missing codec, or another workflow type
        return Why(failure.message, None)
    question = f"{outcome.question}{suggested(outcome.question_options)}" if outcome.question else None
    return Why(question or outcome.reason, outcome.code if outcome.code in set(Code) else None)


async def _text(client: Client, row: WorkflowExecution) -> str:
    # For a task without the memo: another client than this console started it.
    handle = client.get_workflow_handle(row.id, run_id=row.run_id)
    async for event in handle.fetch_history_events(page_size=1):
        if event.event_type != EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED:
            break
        sent = event.workflow_execution_started_event_attributes.input.payloads
        return (await finding.decoded(finding.converter_of(client, row.id), sent, Task) or UNREADABLE).text
    return ""
