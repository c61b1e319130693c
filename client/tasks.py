"""Finds a task by its id, by the beginning of its id, or as the newest, and reads its progress or Outcome.

Runs at the start of each command about one task, and at each poll while the task is followed.
"""

import asyncio
import dataclasses
import difflib
import shlex
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import TypeVar

from pydantic import ValidationError
from temporalio.api.common.v1 import Payload
from temporalio.client import (
    Client,
    WorkflowExecution,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowHandle,
    WorkflowQueryFailedError,
)
from temporalio.converter import DataConverter, WithSerializationContext, WorkflowSerializationContext
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from client.problem import Problem
from client.remedy import Remedy, Text
from client.text import cut, one_line, printable
from workflows.account import search_attributes
from workflows.account.journal import AnyEntry, JournalPage, TaskClosed
from workflows.account.outcome import Ending, Outcome
from workflows.account.progress import Progress
from workflows.account.task import Task, TaskStatus
from workflows.agent import OUTCOME_MEMO, AgentWorkflow
from workflows.limits.budget import MAX_TASK_TEXT
from workflows.unfinished import Unfinished

T = TypeVar("T")
V = TypeVar("V")
Handle = WorkflowHandle[AgentWorkflow, Outcome]

BY_MEMO = "by"
"""The key of the memo field with the name of who started a task; the field is missing if no name was given."""
TASK_MEMO = "task"
"""The key of the memo with the text of a task."""
UNTOLD = "untold"
"""The outcome code of an unfinished task whose steps and use are not known, since the task answers no query."""
QUERY_TIMEOUT = timedelta(seconds=3.5)
"""Longer than a workflow task waits for a killed worker, so that another worker can answer the query."""


async def existing(answer: Awaitable[T]) -> T | None:
    """The result of the server call `answer`; None if the server does not have the workflow or the run."""
    try:
        return await answer
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        return None


CLOSED = "closed"
"""The outcome code of a task that was closed from outside, such as a terminated one."""


async def closing_outcome(handle: Handle) -> Outcome:
    """Wait for the end of a task and return the Outcome that the task wrote, else an Outcome made here."""
    try:
        return await handle.result()
    except WorkflowFailureError as failure:
        return outcome_of(failure.cause) or await _closed_from_outside(handle)


def outcome_of(cause: BaseException | None) -> Outcome | None:
    """The Outcome in the details of the failure that closed a task; None if the details have no valid Outcome."""
    with suppress(ValidationError):
        if isinstance(cause, ApplicationError) and cause.details:
            return Outcome.model_validate(cause.details[0])
    return None


def converter_of(client: Client, id: str) -> DataConverter:
    """The data converter for the payloads of the workflow `id`; a codec may have a separate key for each workflow."""
    converter, codec = client.data_converter, client.data_converter.payload_codec
    if not isinstance(codec, WithSerializationContext):
        return converter
    context = WorkflowSerializationContext(client.namespace, id)
    return dataclasses.replace(converter, payload_codec=codec.with_context(context))


async def decoded(converter: DataConverter, payloads: Sequence[Payload], type: type[V]) -> V | None:
    """The first payload as a `type`; None if there is none or it cannot be read, as any program may have written it."""
    with suppress(Exception):  # codecs and storage drivers may raise anything
        [value] = await converter.decode(payloads[:1], [type])
        return value if isinstance(value, type) else None
    return None


async def memo_field(execution: WorkflowExecution, key: str, type: type[V]) -> V | None:
    """A field of a workflow's memo; None if there is none, or if it cannot be read as a `type`."""
    fields = execution.raw_info.memo.fields
    return await decoded(execution.data_converter, [fields[key]], type) if key in fields else None


async def query_progress(handle: Handle) -> Progress | None:
    """The state of a task, by Query to a worker; None if no worker answers.

    Raises:
        WorkflowQueryFailedError: the worker answers with an error, for example because it cannot replay the history.
    """
    try:
        async with asyncio.timeout(QUERY_TIMEOUT.total_seconds()):  # the SDK tries again for longer than people wait
            return await handle.query(AgentWorkflow.progress, rpc_timeout=QUERY_TIMEOUT)
    except (RPCError, TimeoutError):
        return None


async def query_journal(handle: Handle, after: str) -> JournalPage | None:
    """All entries of a task's journal that follow the cursor `after`, by Query to a worker; None if no worker answers.

    Raises:
        WorkflowQueryFailedError: see `query_progress`.
    """
    page, entries = None, list[AnyEntry]()
    while page is None or page.more:
        try:
            async with asyncio.timeout(QUERY_TIMEOUT.total_seconds()):
                further = await handle.query(AgentWorkflow.journal, after, rpc_timeout=QUERY_TIMEOUT)
        except (RPCError, TimeoutError):
            return None
        if page is None or further.restarted:
            page, entries = further, [*further.entries]
        else:
            page = further.model_copy(update={"gap": page.gap or further.gap, "restarted": page.restarted})
            entries += further.entries
        after = page.cursor
    return page.model_copy(update={"entries": tuple(entries)})


async def query_words(handle: Handle) -> list[Unfinished]:
    """The unfinished replies of models for a task, by Query to a worker; empty if no worker answers."""
    try:
        async with asyncio.timeout(QUERY_TIMEOUT.total_seconds()):
            return await handle.query(AgentWorkflow.words, rpc_timeout=QUERY_TIMEOUT)
    except (RPCError, TimeoutError, WorkflowQueryFailedError):  # a worker of an older version knows no such query
        return []


async def _closed_from_outside(handle: Handle) -> Outcome:
    """The Outcome of a closed task that returned no Outcome: from its memo if it was cancelled, else made here."""
    description = await handle.describe()
    if kept := await memo_field(description, OUTCOME_MEMO, Outcome):
        return kept
    # Terminated, timed out, or cancelled before a worker took it: the task could write no Outcome.
    status, how = TaskStatus.CANCELLED, "cancelled before it began"
    if description.status is not WorkflowExecutionStatus.CANCELED:
        name = description.status.name if description.status else "?"
        status, how = TaskStatus.FAILED, f"closed from outside ({name})"
    account = await _bare_progress(description)
    ending = Ending(status=status, reason=f"The task was {how}.", code=CLOSED)
    TaskClosed(ending=ending, at=description.close_time or description.start_time).apply(account)
    return account.outcome(description.start_time)


async def untold_outcome(execution: WorkflowExecution, status: TaskStatus) -> Outcome:
    """The Outcome of an unfinished task that answers no query: its steps and what it used are not known."""
    outcome = (await _bare_progress(execution)).outcome(datetime.now(UTC))
    reason = f"The task is {status}, so no worker can tell how it stands."
    return outcome.model_copy(update={"status": status, "reason": reason, "code": UNTOLD})


async def _bare_progress(execution: WorkflowExecution) -> Progress:
    text = (await memo_field(execution, TASK_MEMO, str) or execution.id)[:MAX_TASK_TEXT]
    return Progress(task=Task(text=text), task_id=execution.id, started_at=execution.start_time)


TASK_TYPE = "AgentWorkflow"
TASKS = f"WorkflowType = '{TASK_TYPE}'"
CALL_MEMO = "call"
"""The key of the memo field that names the tool of a task that the command `call` started."""
MAX_NAMED = 5
MAX_SIMILAR = 3
MAX_ID = 200
"""The most characters of the id of a new task."""
MAX_SENT = 1000
"""The maximum number of bytes of an id that any server accepts."""
MAX_WITH_PREFIX = 100
PAGE = 20
MAX_PAGE = 1000


async def find_task(client: Client, id: str | None) -> Handle:
    """The task with this id, else the only one whose id begins so; None means the newest. Raises Problem otherwise."""
    if id is None:
        return await _newest(client)
    if not id:
        raise Problem("unknown_id", "An empty id names no task", "write an id, or none for the newest task")
    if not _can_be_sent(id):
        raise _unknown(id)
    handle: Handle = client.get_workflow_handle_for(AgentWorkflow.run, id)
    description = await existing(handle.describe())
    if description is None:
        return await _by_prefix(client, id)
    if description.workflow_type != TASK_TYPE:
        reason = f"{id!r} is no task, but a workflow of the type {description.workflow_type!r}"
        raise Problem("unknown_id", reason, printable(f"`temporal workflow show -w {shlex.quote(id)}` shows it"))
    return handle


def _can_be_sent(id: str) -> bool:
    """Whether a server can have a task with this id; some ids that no server can have make the connection fail."""
    try:
        return "\0" not in id and len(id.encode()) <= MAX_SENT
    except UnicodeEncodeError:  # a byte of the command line that is not UTF-8
        return False


def _unknown(id: str) -> Problem:
    reason = f"There is no task {cut(id, MAX_ID)!r} here"
    return Problem("unknown_id", reason, Text(Remedy("list"), " shows those there are"))


async def first_run(handle: Handle) -> str:
    """The id of a task's first run, also after a reset or continue-as-new. Raises Problem without a history."""
    async for event in handle.fetch_history_events(page_size=1):
        return event.workflow_execution_started_event_attributes.first_execution_run_id
    raise Problem("unknown_id", f"Task {handle.id!r} has no history any more", "it was deleted")


async def newest_tasks(client: Client, query: str, limit: int, *, with_calls: bool = True) -> list[WorkflowExecution]:
    """The `limit` newest tasks by start that `query` finds; without `with_calls`, none of the command `call`."""
    # The server lists running tasks, then those that closed last, and cannot sort by start. So longer and longer lists
    # are read, until one holds every task that began after the last of the `limit` newest.
    found = dict[str, WorkflowExecution]()
    since, take = None, PAGE + 2 * limit
    while True:
        list_filter = f"{query} AND StartTime > '{since.isoformat()}'" if since else query
        rows = [row async for row in client.list_workflows(list_filter, limit=take, page_size=min(take, MAX_PAGE))]
        for row in rows:
            if row.workflow_type != TASK_TYPE or (not with_calls and CALL_MEMO in row.raw_info.memo.fields):
                continue
            if row.id not in found or row.start_time > found[row.id].start_time:
                found[row.id] = row
        ranked = sorted(found.values(), key=attrgetter("start_time"), reverse=True)
        if len(rows) < take:
            return ranked[:limit]
        since = ranked[limit - 1].start_time if len(ranked) >= limit else None
        take *= 2


async def _newest(client: Client) -> Handle:
    for task in await newest_tasks(client, TASKS, limit=1, with_calls=False):
        return client.get_workflow_handle_for(AgentWorkflow.run, task.id)
    raise Problem("no_tasks", "There is no task here yet", Text("start one with ", Remedy("start")))


async def similar_ids(client: Client, id: str) -> list[str]:
    """At most MAX_SIMILAR ids of the newest tasks that begin as `id` does, or are spelt like it."""
    ids = [task.id for task in await newest_tasks(client, TASKS, limit=MAX_WITH_PREFIX)]
    longer = [other for other in ids if id and other.startswith(id)]
    return list(dict.fromkeys([*longer, *difflib.get_close_matches(id, ids)]))[:MAX_SIMILAR]


async def _by_prefix(client: Client, prefix: str) -> Handle:
    found = list[str]()
    if search_attributes.is_quotable(prefix):
        query = f"{TASKS} AND WorkflowId STARTS_WITH '{prefix}'"
        found = [workflow.id async for workflow in client.list_workflows(query, limit=MAX_WITH_PREFIX)]
    ids = list(dict.fromkeys(found))
    if not ids:
        raise _unknown(prefix)
    if len(ids) > 1:
        many = f"{len(ids)} tasks" if len(found) < MAX_WITH_PREFIX else f"{len(ids)} tasks or more"
        named = one_line(", ".join(ids[:MAX_NAMED])) + (", ..." if len(ids) > MAX_NAMED else "")
        raise Problem("many_ids", f"The ids of {many} begin with {prefix!r} ({named})", "write more of it")
    return client.get_workflow_handle_for(AgentWorkflow.run, ids[0])
