"""Fetching a task's history from the server: page by page, over all its runs."""

from collections.abc import AsyncIterator
from datetime import datetime

from temporalio.api.enums.v1 import PendingActivityState
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client, WorkflowHistoryEventAsyncIterator
from temporalio.service import RPCError, RPCStatusCode

from console.explaining.reading import Reading
from console.history import History
from console.outcome import Handle
from console.shown import rollback_id
from console.workflow_task import failing, with_step

SCHEDULED = PendingActivityState.PENDING_ACTIVITY_STATE_SCHEDULED


async def history(client: Client, handle: Handle) -> History:
    """The whole history of a task, with what the server says of its calls that have not ended; no worker is asked.

    Raises:
        RPCError: the server does not answer.
    """
    seen = await handle.describe()
    reading = Reading(handle.id, client.data_converter)
    async for event in _all_runs(client, handle.id, seen.run_id):
        await reading.add(event)
    for one in seen.raw_description.pending_activities:
        failure = one.last_failure if one.HasField("last_failure") else None
        await reading.pending(one.activity_id, one.attempt, failure, running=one.state != SCHEDULED)
    if found := await failing(client, seen):  # with the attempt, which no event tells
        reading.history.failing = await with_step(client, found)
    if reading.history.end is not None:
        reading.history.rollback = await rollback(client, handle.id, reading.history.end.at)
    return reading.history


async def rollback(client: Client, id: str, ended: datetime) -> str | None:
    """How the workflow stands, in the server's word, that undoes a task since its end; None where there is none.

    Raises:
        RPCError: the server does not answer.
    """
    try:
        seen = await client.get_workflow_handle(rollback_id(id)).describe()
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        return None
    return seen.status.name.lower() if seen.status and seen.start_time >= ended else None


async def _all_runs(client: Client, id: str, newest: str) -> AsyncIterator[HistoryEvent]:
    """The events of a task from its first run on; a task that never continued as new has one run."""
    first = await anext(_run(client, id, newest))
    began = first.workflow_execution_started_event_attributes
    run = began.first_execution_run_id if began.continued_execution_run_id else newest
    while run:
        following = ""
        async for event in _run(client, id, run):
            yield event
            following = event.workflow_execution_continued_as_new_event_attributes.new_execution_run_id
        run = following if run != newest else ""


def _run(client: Client, id: str, run_id: str) -> WorkflowHistoryEventAsyncIterator:
    return client.get_workflow_handle(id, run_id=run_id).fetch_history_events()
