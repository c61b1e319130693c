"""Exports the history of a task's newest run, so that it can be replayed on another machine.

Runs for the command `export`, while the task runs or after its end.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from google.protobuf.message import Message
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client
from temporalio.converter import DataConverter

from client.history.decoder import is_encrypted, payloads_of
from client.history.reader import HistoryBuilder
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
    """Export the history of the task's newest run; with `redact`, placeholders replace the values."""
    run_id = (await handle.describe()).run_id
    fetched = await client.get_workflow_handle(handle.id, run_id=run_id).fetch_history()
    events, redaction = list(fetched.events), Redaction()
    task_id = redaction.text(handle.id) if redact else handle.id
    converter = converter_of(client, handle.id)
    if redact:
        for event in events:  # with the key, what was encrypted is redacted, too
            await _decode(event, converter)
        events = redaction.events(events)
        converter = replace(converter, payload_codec=None)
    # Read from the redacted events, so that an explanation made from it holds no original value.
    reading = HistoryBuilder(task_id, converter, journal=True)
    for event in events:
        await reading.add(event)
    continues = fetched.events[0].workflow_execution_started_event_attributes.continued_execution_run_id
    return Export(task_id, run_id, events, await reading.complete(), redaction.opaque, continues)


async def _decode(message: Message, converter: DataConverter) -> None:
    """Decode what a codec has encrypted in a message, in place; what cannot be read here is left as it is."""
    codec = converter.payload_codec
    for payload in payloads_of(message) if codec else ():
        if codec and is_encrypted(payload):
            with suppress(Exception):  # codecs may raise anything
                [clear] = await codec.decode([payload])
                payload.CopyFrom(clear)
