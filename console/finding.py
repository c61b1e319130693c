"""Which task a person means: the newest, one by its id, or one by the beginning of its id."""

from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from console.outcome import Handle
from console.problem import Problem
from workflows.agent import AgentWorkflow

TASK_TYPE = "AgentWorkflow"
TASKS = f"WorkflowType = '{TASK_TYPE}'"
"""The query that finds all tasks."""
MAX_NAMED = 5


async def task(client: Client, id: str | None) -> Handle:
    """The task with this id, else the only one whose id begins so; without an id the one that was started last.

    Raises:
        Problem: there is none, or more than one.
    """
    if id is None:
        return await _newest(client)
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


async def _newest(client: Client) -> Handle:
    async for one in client.list_workflows(TASKS, limit=1, page_size=1):  # the server lists the newest first
        return client.get_workflow_handle_for(AgentWorkflow.run, one.id)
    raise Problem("no_tasks", "There is no task here yet", 'start one with `python starter.py --task "..."`')


async def _by_prefix(client: Client, prefix: str) -> Handle:
    found = list[str]()
    if "'" not in prefix and prefix:
        query = f"{TASKS} AND WorkflowId STARTS_WITH '{prefix}'"
        found = [one.id async for one in client.list_workflows(query, limit=100)]
    ids = list(dict.fromkeys(found))
    if not ids:
        raise Problem(
            "unknown_id", f"There is no task {prefix!r} here", "`python starter.py list` shows those there are"
        )
    if len(ids) > 1:
        named = ", ".join(ids[:MAX_NAMED]) + (", ..." if len(ids) > MAX_NAMED else "")
        raise Problem("many_ids", f"The ids of {len(ids)} tasks begin with {prefix!r} ({named})", "write more of it")
    return client.get_workflow_handle_for(AgentWorkflow.run, ids[0])
