"""Incidents: the tasks that wait for a person because of one cause, and how they are all answered at once.

Runs when a person looks for what many tasks wait for, and when the person reports that a cause is repaired.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from pydantic import BaseModel
from temporalio.client import Client, WorkflowExecution, WorkflowFailureError, WorkflowHandle, WorkflowQueryFailedError
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from client.encrypted import is_sealed, no_key, sealed_request
from client.people import open_incidents
from client.problem import Problem, ProblemKind
from client.remedy import Argument, Remedy, Text
from client.tasks import QUERY_TIMEOUT
from client.text import one_line
from client.vouching import Voucher
from client.workers import GIVEN_EVENTS, no_worker, other_version, serving
from client.workflow_task import failing
from runtime.payloads import NoKey
from workflows import ids
from workflows.account import search_attributes
from workflows.commands import command
from workflows.people.incidents import Resolve, Resolved, waiting_query
from workflows.people.requests import HumanRequest
from workflows.task_queues import CONTROL, control_queue
from workflows.text import nearest
from workflows.web_ui import summary

INCIDENTS = search_attributes.INCIDENTS.name
WAITING = f"WorkflowType = 'AgentWorkflow' AND ExecutionStatus = 'Running' AND {INCIDENTS} IS NOT NULL"
TAKEN_WITHIN = 8.0
"""Seconds that a worker may take to begin with a resolution."""
POLL_SECONDS = 0.5
AGAIN = ", then try again"


class Incident(BaseModel, frozen=True):
    """The tasks of a queue that wait for a person because of one cause."""

    cause: str
    """The resource, which is a kind of tools or `planner`, and the code of the fault, e.g. `charge/unauthorized`."""
    queue: str
    waiting: int
    """How many tasks wait."""
    since: datetime
    """The time since which the first of these tasks waits."""
    reason: str
    """The newest reason."""
    example: str
    """The id of the task with the newest reason."""


async def find_incidents(client: Client) -> list[Incident]:
    """The incidents of all queues, most tasks first. Raises Problem if the namespace lacks their search attribute."""
    found = dict[tuple[str, str], list[tuple[HumanRequest, str]]]()
    try:
        async for row in client.list_workflows(WAITING):
            waits = await open_incidents(row) or (_untold(row) if await is_sealed(row) else [])
            for request in waits:
                found.setdefault((request.cause, row.raw_info.task_queue), []).append((request, row.id))
    except RPCError as error:
        if error.status is not RPCStatusCode.INVALID_ARGUMENT:
            raise
        type = search_attributes.TYPES[INCIDENTS]
        remedy = f"`temporal operator search-attribute create --name {INCIDENTS} --type {type}` adds it"
        raise Problem("not_searchable", f"This namespace has no search attribute {INCIDENTS}", remedy) from error
    incidents = [_incident(cause, queue, waits) for (cause, queue), waits in found.items()]
    return sorted(incidents, key=lambda incident: (-incident.waiting, incident.since))


def _untold(row: WorkflowExecution) -> list[HumanRequest]:
    """The requests of a task that cannot be read here, one for each cause in its search attribute."""
    causes = next((pair.value for pair in row.typed_search_attributes if pair.key.name == INCIDENTS), ())
    return [sealed_request(row, cause) for cause in causes]


def _incident(cause: str, queue: str, requests_and_tasks: Sequence[tuple[HumanRequest, str]]) -> Incident:
    newest, example = max(requests_and_tasks, key=lambda pair: pair[0].since)
    return Incident(
        cause=cause,
        queue=queue,
        waiting=len({task for _, task in requests_and_tasks}),
        since=min(request.since for request, _ in requests_and_tasks),
        reason=newest.reason,
        example=example,
    )


Running = WorkflowHandle[Any, Resolved]


async def resolve(
    client: Client, cause: str, queue: str, *, by: str, note: str, voucher: Voucher | None = None
) -> Running:
    """Start the workflow that answers all tasks that wait because of `cause`, or find it running; return its handle.

    A `voucher` signs who resolves it; then `by` is its person.

    Raises:
        Problem: no task waits because of `cause`, or no worker runs.
    """
    await _require_incident(client, cause, queue)
    if not await serving(client, queue):
        raise no_worker(queue, AGAIN)
    id = ids.resolution(cause, queue)
    stated = voucher.of_resolution(client.namespace, id, note) if voucher else None
    return await client.start_workflow(
        "ResolveWorkflow",
        Resolve(cause=cause, queue=queue, by=stated.person if stated else by, note=note, statement=stated),
        id=id,
        task_queue=control_queue(queue),
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        result_type=Resolved,
        static_summary=summary(f"resolve {cause}"),
        static_details=f"`{command('incidents')}` lists what waits.",
    )


async def _require_begun(client: Client, running: Running) -> None:
    description = await running.describe()
    if description.history_length <= GIVEN_EVENTS:
        raise no_worker(description.task_queue.removesuffix(CONTROL), AGAIN)
    if await failing(client, description):
        raise other_version()


async def _require_incident(client: Client, cause: str, queue: str) -> None:
    if search_attributes.is_quotable(cause) and search_attributes.is_quotable(queue):
        with suppress(RPCError):  # then the list of all incidents says what is wrong
            if (await client.count_workflows(waiting_query(cause, queue))).count:
                return
    incidents = await find_incidents(client)
    causes = {incident.cause for incident in incidents if incident.queue == queue}
    elsewhere = sorted({incident.queue for incident in incidents if incident.cause == cause})
    if elsewhere:
        remedy = Text("add `", Argument("queue", elsewhere[0]), "`")
        raise Problem("unknown_cause", f"No task of queue {queue} waits because of {cause!r}", remedy)
    remedy = Text(Remedy("incidents"), " lists what waits")
    raise Problem("unknown_cause", f"No task waits because of {cause!r}{nearest(cause, causes)}", remedy)


async def follow_resolution(client: Client, running: Running) -> AsyncIterator[Resolved]:
    """Yield the progress of a resolution at each change, at last the result. Raises Problem if it ends too early."""
    ended, last, until = asyncio.ensure_future(running.result()), Resolved(cause=""), time.monotonic() + TAKEN_WITHIN
    try:
        while not ended.done():
            await asyncio.wait([ended], timeout=POLL_SECONDS)
            if not last.cause and time.monotonic() > until:
                await _require_begun(client, running)
            with suppress(RPCError, WorkflowQueryFailedError):
                now = await running.query("resolved", result_type=Resolved, rpc_timeout=QUERY_TIMEOUT)
                if not ended.done() and now != last:
                    yield now
                    last = now
        yield ended.result()
    except NoKey as error:
        raise no_key(error) from error
    except WorkflowFailureError as failure:
        cause = failure.cause
        message = cause.message if isinstance(cause, ApplicationError) else "it was stopped from outside"
        reason = f"The resolution ended early ({one_line(message).rstrip('.')})"
        raise Problem("not_resolved", reason, "run the command again", ProblemKind.NEEDS_PERSON) from failure
    finally:
        ended.cancel()
