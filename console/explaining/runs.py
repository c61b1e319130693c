"""Fetching a task's history from the server: page by page, over all its runs."""

from collections.abc import AsyncIterator

from temporalio.api.enums.v1 import PendingActivityState
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client, WorkflowHistoryEventAsyncIterator

from console.explaining.reading import Reading
from console.history import History
from console.outcome import Handle

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
    return reading.history


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
