"""`show --result STEP`: what one step returned, whole, wherever it lies."""

import sys

from pydantic import JsonValue
from temporalio.api.common.v1 import Payload
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.sdk.v1.external_storage_pb2 import ExternalStorageReference
from temporalio.client import Client
from temporalio.converter import JSONProtoPayloadConverter

from console import document, tools
from console.options import Common
from console.outcome import Handle
from console.problem import Exit, Problem
from workflows.inspect import Inquiry
from workflows.plan import nearest


async def result(client: Client, handle: Handle, common: Common, step: str) -> int:
    """Print the result as JSON; what the history only refers to is asked of a worker.

    Raises:
        Problem: no such step has finished, or no worker has what it returned.
    """
    payload = _returned([event async for event in handle.fetch_history_events()], step)
    reference = reference_of(payload)
    if reference is None:
        value: JsonValue = (await client.data_converter.decode([payload]))[0]
    else:
        claim = dict(reference.claim_data)
        size, digest = payload.external_payloads[0].size_bytes, claim.get("digest") or claim.get("hash_value")
        print(f"{size} bytes, sha256 {digest}, from a worker's store", file=sys.stderr)
        inquiry = Inquiry(about="payload", driver=reference.driver_name, claim=claim)
        value = (await tools.ask(client, common, inquiry)).payload
    print(document.written(value.get("result") if isinstance(value, dict) else value))
    return Exit.COMPLETED


def _returned(events: list[HistoryEvent], step: str) -> Payload:
    """What the last finished call of the step returned."""
    scheduled = {
        event.event_id: event.activity_task_scheduled_event_attributes.activity_id
        for event in events
        if event.HasField("activity_task_scheduled_event_attributes")
    }
    returned = {
        scheduled[done.scheduled_event_id]: done.result.payloads
        for done in (event.activity_task_completed_event_attributes for event in events)
        if done.scheduled_event_id
    }
    if not returned.get(step):
        known = nearest(step, returned)
        raise Problem("unknown_step", f"No step {step!r} of this run has a result{known}", "see `show` for its steps")
    return returned[step][0]


def reference_of(payload: Payload) -> ExternalStorageReference | None:
    """What says where the payload lies; None for one that is here."""
    if payload.metadata.get("messageType", b"").decode() != ExternalStorageReference.DESCRIPTOR.full_name:
        return None
    reference: ExternalStorageReference = JSONProtoPayloadConverter().from_payload(payload, ExternalStorageReference)
    return reference
