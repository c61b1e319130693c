"""Exports the history of a task's newest run, so that it can be replayed on another machine."""

from collections.abc import Sequence
from typing import NamedTuple

from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client

from client.history.reader import Reading
from client.history.records import History
from client.redaction import Redaction
from client.tasks import Handle, converter_of


class Export(NamedTuple):
    """The exported history of a run; if it was redacted, with placeholders for values."""

    task_id: str
    run_id: str
    events: Sequence[HistoryEvent]
    history: History
    opaque: int
    """The number of payloads that could not be redacted: a codec encrypted them, or they are in external storage."""
    continues: str
    """The id of the run that continued as new into this one, and is not exported; empty for a first run."""


async def export(client: Client, handle: Handle, *, redact: bool) -> Export:
    run_id = (await handle.describe()).run_id
    fetched = await client.get_workflow_handle(handle.id, run_id=run_id).fetch_history()
    events, redaction = list(fetched.events), Redaction()
    task_id = redaction.text(handle.id) if redact else handle.id
    events = redaction.events(events) if redact else events
    # Read from the redacted events, so that an explanation made from it holds no original value.
    reading = Reading(task_id, converter_of(client, handle.id))
    for event in events:
        await reading.add(event)
    continues = fetched.events[0].workflow_execution_started_event_attributes.continued_execution_run_id
    return Export(task_id, run_id, events, await reading.complete(), redaction.opaque, continues)
