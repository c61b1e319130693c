"""Which task a person means: the newest, one by its id, or one by the beginning of its id."""

from datetime import datetime

from temporalio.client import Client, WorkflowExecution
from temporalio.service import RPCError, RPCStatusCode

from console.outcome import Handle
from console.problem import Problem
from console.tree import one_line
from workflows.agent import AgentWorkflow

TASK_TYPE = "AgentWorkflow"
TASKS = f"WorkflowType = '{TASK_TYPE}'"
"""The query that finds all tasks."""
MAX_NAMED = 5
MAX_WITH_PREFIX = 100
PAGE = 20
MAX_PAGE = 1000


async def task(client: Client, id: str | None) -> Handle:
    """The task with this id, else the only one whose id begins so; without an id the one that was started last.

    Raises:
        Problem: there is none, or more than one.
    """
    if id is None:
        return await _newest(client)
    if not id:
        raise Problem("unknown_id", "An empty id names no task", "write an id, or none for the newest task")
    handle: Handle = client.get_workflow_handle_for(AgentWorkflow.run, id)
    try:
        seen = await handle.describe()
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        return await _by_prefix(client, id)
    if seen.workflow_type != TASK_TYPE:
        reason = f"{id!r} is no task, but a workflow of the type {seen.workflow_type!r}"
        raise Problem("unknown_id", reason, f"`temporal workflow show -w {id}` shows it")
    return handle


async def first_run(handle: Handle) -> str:
    """The id of a task's first run, which stays the same over resets and continuing as new.

    Raises:
        Problem: its history was deleted meanwhile.
    """
    async for event in handle.fetch_history_events(page_size=1):
        return event.workflow_execution_started_event_attributes.first_execution_run_id
    raise Problem("unknown_id", f"Task {handle.id!r} has no history any more", "it was deleted")


async def newest(client: Client, query: str, limit: int) -> list[WorkflowExecution]:
    """The tasks that were started last among those that `query` finds, the newest first, each with its newest run.

    A server lists what runs, then what closed last, and sorts in no other way: so pages are read until one holds all
    that began after the last of those that count.
    """
    found = dict[str, WorkflowExecution]()
    since, take = None, PAGE + 2 * limit
    while True:
        asked = f"{query} AND StartTime > '{since.isoformat()}'" if since else query
        rows = [row async for row in client.list_workflows(asked, limit=take, page_size=min(take, MAX_PAGE))]
        for row in rows:
            if row.id not in found or row.start_time > found[row.id].start_time:
                found[row.id] = row
        ranked = sorted(found.values(), key=_start, reverse=True)
        if len(rows) < take:
            return ranked[:limit]
        since = ranked[limit - 1].start_time if len(ranked) >= limit else None
        take *= 2


def _start(row: WorkflowExecution) -> datetime:
    return row.start_time


async def _newest(client: Client) -> Handle:
    for one in await newest(client, TASKS, limit=1):
        return client.get_workflow_handle_for(AgentWorkflow.run, one.id)
    raise Problem("no_tasks", "There is no task here yet", 'start one with `python starter.py --task "..."`')


async def _by_prefix(client: Client, prefix: str) -> Handle:
    found = list[str]()
    if not set(prefix) & set("'\\"):  # what would not be a plain word in the query
        query = f"{TASKS} AND WorkflowId STARTS_WITH '{prefix}'"
        found = [one.id async for one in client.list_workflows(query, limit=MAX_WITH_PREFIX)]
    ids = list(dict.fromkeys(found))
    if not ids:
        raise Problem(
            "unknown_id", f"There is no task {prefix!r} here", "`python starter.py list` shows those there are"
        )
    if len(ids) > 1:
        many = f"{len(ids)} tasks" if len(found) < MAX_WITH_PREFIX else f"{len(ids)} tasks or more"
        named = one_line(", ".join(ids[:MAX_NAMED])) + (", ..." if len(ids) > MAX_NAMED else "")
        raise Problem("many_ids", f"The ids of {many} begin with {prefix!r} ({named})", "write more of it")
    return client.get_workflow_handle_for(AgentWorkflow.run, ids[0])
