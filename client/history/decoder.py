"""Decodes the history events of any workflow: what several events say of one activity execution becomes one record.

Runs with each event of a history that is read, explained, redacted or audited. It converts no payload: the reader of a
task's history and the audit do that.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, NamedTuple, TypeVar

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from temporalio.api.common.v1 import Payload
from temporalio.api.failure.v1 import Failure
from temporalio.api.history import v1 as api
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.sdk.v1.external_storage_pb2 import ExternalStorageReference
from temporalio.exceptions import RetryState

from client.history.records import ActivityExecution, CallEnd, Event

PLAIN = frozenset({"json/plain", "json/protobuf", "binary/null", "binary/plain", "binary/protobuf"})
"""The payload encodings that Temporal's own converters write."""
REFERENCES = frozenset({"json/external-storage-reference", ExternalStorageReference.DESCRIPTOR.full_name})
"""The encoding, or the message type, of a payload that only refers to a payload in external storage."""
REFERENCE_MARK = "__temporal_external_storage_reference"
LOCAL_ACTIVITY = "core_local_activity"
"""The name of the markers of local activities."""
DATA, RESULT = "data", "result"
"""The names of a marker's details: the SDK's own record of the activity, which no codec encodes, and the result."""
RUN_ENDS: dict[type[Message], str] = {
    api.WorkflowExecutionCompletedEventAttributes: "completed",
    api.WorkflowExecutionFailedEventAttributes: "failed",
    api.WorkflowExecutionCanceledEventAttributes: "cancelled",
    api.WorkflowExecutionTerminatedEventAttributes: "terminated",
    api.WorkflowExecutionTimedOutEventAttributes: "timed out",
    api.WorkflowExecutionContinuedAsNewEventAttributes: "continued",
}
"""By the attributes of the event that ends a run, the status of the run."""
EPOCH = datetime.fromtimestamp(0, UTC)
SINGLE = (Message, str, bytes, int, float)
"""The types of a single value in a protobuf message."""

C = TypeVar("C", bound=ActivityExecution)


class CallEvent(NamedTuple, Generic[C]):
    """One event of an activity execution, whose record already has what the event says."""

    call: C
    payloads: Sequence[Payload] = ()
    """The input at the event that schedules the activity; the result at its end."""
    failure: Failure | None = None
    """The failure of the attempt before, at the event that starts an attempt; of the last attempt, at the end."""


class Decoder(Generic[C]):
    """Decodes the events of a workflow, which must be read in their order, into one record of type `C` per activity."""

    def __init__(self, call: type[C]) -> None:
        self._call, self._open = call, dict[int, C]()
        self.event, self.at = Event(0, 0), EPOCH
        """The event that was read last, and its time."""

    def read(self, event: HistoryEvent) -> CallEvent[C] | Message | None:
        """The event of an activity execution, or the attributes of any other event; None for an unknown event.

        Broken markers, and events of an activity that no event scheduled, are read as other events.
        """
        name = event.WhichOneof("attributes")
        of: Message | None = getattr(event, name) if name else None
        is_first = isinstance(of, api.WorkflowExecutionStartedEventAttributes)
        run = self.event.run + 1 if is_first else self.event.run
        self.event, self.at = Event(run, event.event_id), _time_of(event)
        if is_first:
            self._open.clear()
        return self._call_event(of) or of

    def _call_event(self, of: Message | None) -> CallEvent[C] | None:
        match of:
            case api.ActivityTaskScheduledEventAttributes():
                self._open[self.event.id] = call = self._scheduled(of)
                return CallEvent(call, of.input.payloads)
            case api.ActivityTaskStartedEventAttributes(scheduled_event_id=id) if id in self._open:
                call = self._open[id]
                call.started, call.started_at, call.attempt = self.event, self.at, of.attempt
                return CallEvent(call, failure=of.last_failure if of.HasField("last_failure") else None)
            case api.ActivityTaskCompletedEventAttributes(scheduled_event_id=id) if id in self._open:
                return self._ended(self._open.pop(id), CallEnd.COMPLETED, of.result.payloads)
            case api.ActivityTaskFailedEventAttributes(scheduled_event_id=id) if id in self._open:
                return self._ended(self._open.pop(id), CallEnd.FAILED, failure=of.failure)
            case api.ActivityTaskTimedOutEventAttributes(scheduled_event_id=id) if id in self._open:
                call = self._open.pop(id)
                call.retry_state = next((state for state in RetryState if state.value == of.retry_state), None)
                return self._ended(call, CallEnd.FAILED, failure=of.failure)
            case api.ActivityTaskCanceledEventAttributes(scheduled_event_id=id) if id in self._open:
                return self._ended(self._open.pop(id), CallEnd.CANCELLED)
            case api.MarkerRecordedEventAttributes(marker_name=name) if name == LOCAL_ACTIVITY:
                # In a hostile file, the data of a marker are anything.
                with suppress(ValueError, LookupError, TypeError, AttributeError, OverflowError):
                    return self._local(of)
        return None

    def _scheduled(self, of: api.ActivityTaskScheduledEventAttributes) -> C:
        policy, task = of.retry_policy, of.workflow_task_completed_event_id
        call = self._call(of.activity_id, of.activity_type.name, self.at, self.event, task, frozenset(of.header.fields))
        call.allowed, call.coefficient = policy.maximum_attempts, policy.backoff_coefficient
        call.interval, call.maximum_interval = _seconds(policy.initial_interval), _seconds(policy.maximum_interval)
        call.schedule_to_close = _seconds(of.schedule_to_close_timeout)
        call.start_to_close, call.heartbeat = _seconds(of.start_to_close_timeout), _seconds(of.heartbeat_timeout)
        return call

    def _ended(
        self, call: C, how: CallEnd, payloads: Sequence[Payload] = (), failure: Failure | None = None
    ) -> CallEvent[C]:
        call.ended, call.ended_at, call.closed = self.event, self.at, how
        return CallEvent(call, payloads, failure)

    def _local(self, of: api.MarkerRecordedEventAttributes) -> CallEvent[C]:
        data, at = json.loads(of.details[DATA].payloads[0].data), self.at
        if time := data.get("complete_time"):  # by the clock of the workflow; the event is written later
            # As `workflow.now()` has it, to the microsecond; in arithmetic of floats the last digits would differ.
            at = datetime.fromtimestamp(time["seconds"], UTC) + timedelta(microseconds=time["nanos"] // 1000)
        id, kind, task = str(data["activity_id"]), str(data["activity_type"]), of.workflow_task_completed_event_id
        call = self._call(id, kind, at, self.event, task, started=self.event, started_at=at, is_local=True)
        call.attempt = int(data["attempt"])
        how, failure = CallEnd.COMPLETED, of.failure if of.HasField("failure") else None
        if failure is not None:
            how = CallEnd.CANCELLED if failure.HasField("canceled_failure_info") else CallEnd.FAILED
        found = self._ended(call, how, of.details[RESULT].payloads if RESULT in of.details else (), failure)
        call.ended_at = at
        return found


def calls_in(events: Iterable[HistoryEvent]) -> Iterator[CallEvent[ActivityExecution]]:
    """The events of activity executions among `events`, which must be in their order; later events fill a record on."""
    decoder = Decoder(ActivityExecution)
    return (found for event in events if isinstance(found := decoder.read(event), CallEvent))


def _seconds(duration: Duration) -> float:
    return duration.seconds + duration.nanos / 1e9


def _time_of(event: HistoryEvent) -> datetime:
    try:
        return event.event_time.ToDatetime(UTC)
    except (ValueError, OverflowError):  # in a hostile file
        return EPOCH


def is_encrypted(payload: Payload) -> bool:
    """Whether a codec wrote the payload, so that only this codec can read it."""
    encoding = payload.metadata.get("encoding", b"").decode(errors="replace")
    return encoding not in PLAIN and not is_in_external_storage(payload)


def is_in_external_storage(payload: Payload) -> bool:
    encoding = payload.metadata.get("encoding", b"").decode(errors="replace")
    kind = payload.metadata.get("messageType", b"").decode(errors="replace")
    return encoding in REFERENCES or kind in REFERENCES or REFERENCE_MARK in payload.metadata


def payloads_of(message: Message) -> Iterator[Payload]:
    """Each payload in a protobuf message, such as an event."""
    for _, part in parts_of(message):
        if isinstance(part, Payload):
            yield part
        elif isinstance(part, Message):
            yield from payloads_of(part)


def parts_of(message: Message) -> Iterator[tuple[FieldDescriptor, Any]]:
    """Each value in a protobuf message, after its field; the items of lists, and the values of maps, one by one."""
    for field, value in message.ListFields():
        is_map = field.message_type is not None and field.message_type.GetOptions().map_entry
        # Not by `field.is_repeated`, which older releases of protobuf lack.
        for part in value.values() if is_map else (value,) if isinstance(value, SINGLE) else value:
            yield field, part
