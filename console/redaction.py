"""A history whose values are placeholders, equal ones by equal ones, so that it can be given away and still replays.

What decides stays: kinds, ids of steps, codes, effects, limits, times, keys of objects. All other words and numbers go:
a string or a payload that nothing here names is replaced.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from pydantic import BaseModel
from temporalio.api.common.v1 import Payload, SearchAttributes
from temporalio.api.failure.v1 import ApplicationFailureInfo, Failure
from temporalio.api.history.v1 import HistoryEvent, MarkerRecordedEventAttributes

from console.call import CONVERSING
from console.values import Values
from workflows import attributes, routing
from workflows.agent import OUTCOME_MEMO
from workflows.catalogue import Catalogue
from workflows.faults import Fault, Quadrant
from workflows.header import HEADER, CallHeader
from workflows.outcome import Outcome
from workflows.plan import Proposed, StepReturn
from workflows.progress import Progress
from workflows.situation import Situation
from workflows.task import Task, TaskStatus

KEPT_STRINGS = frozenset(
    {
        "temporal.api.common.v1.ActivityType.name",
        "temporal.api.common.v1.RetryPolicy.non_retryable_error_types",
        "temporal.api.common.v1.WorkerVersionStamp.build_id",
        "temporal.api.common.v1.WorkflowExecution.run_id",
        "temporal.api.common.v1.WorkflowType.name",
        "temporal.api.failure.v1.ApplicationFailureInfo.type",
        "temporal.api.update.v1.Input.name",
    }
)
KEPT_NAMES = frozenset(
    {
        "activity_id",
        "base_run_id",
        "continued_execution_run_id",
        "first_execution_run_id",
        "marker_name",
        "new_execution_run_id",
        "new_run_id",
        "original_execution_run_id",
        "request_id",
        "sdk_name",
        "sdk_version",
        "signal_name",
        "timer_id",
    }
)
"""The strings of Temporal's events that stay, by their full name, or by their name wherever they are."""

Shape = tuple[type[BaseModel], ...]
"""The models that a payload may be of."""

PATCH = "core_patch"
"""The marker by which the SDK remembers `workflow.patched`."""
ATTRIBUTES = frozenset(attributes.TYPES) - {attributes.TENANT.name}
BY_NAME: Mapping[str, Shape] = {HEADER: (CallHeader,), OUTCOME_MEMO: (Outcome,)}
RESULTS: Mapping[str, type[BaseModel]] = {
    routing.CATALOGUE.kind: Catalogue,
    routing.PLAN.kind: Proposed,
    routing.REPLAN.kind: Proposed,
    routing.COMPACT.kind: Proposed,
}
READABLE = ("json/plain", "json/protobuf")
UNREADABLE = ("binary/plain", "binary/protobuf")


class Redaction:
    """Redacts one history; the same value has the same placeholder wherever it is."""

    def __init__(self) -> None:
        """Begin with no placeholder."""
        self._values = Values()
        self._kinds = dict[int, str]()
        self.opaque = 0
        """Payloads that were left as they are: a codec encrypted them, or they lie in external storage."""

    def text(self, value: str) -> str:
        """The placeholder of a string."""
        return self._values.text(value)

    def events(self, events: Iterable[HistoryEvent]) -> list[HistoryEvent]:
        """The events, redacted; they replay like the originals."""
        return [self._event(event) for event in events]

    def _event(self, event: HistoryEvent) -> HistoryEvent:
        redacted = HistoryEvent()
        redacted.CopyFrom(event)
        self._message(redacted, self._shape(event))
        return redacted

    def _shape(self, event: HistoryEvent) -> Shape:
        """The models of an event's input or result; none where it is a tool's or a stranger's."""
        match event.WhichOneof("attributes"):
            case "workflow_execution_started_event_attributes" | "workflow_execution_continued_as_new_event_attributes":
                return Task, Progress
            case "workflow_execution_completed_event_attributes":
                return (Outcome,)
            case "activity_task_scheduled_event_attributes":
                kind = event.activity_task_scheduled_event_attributes.activity_type.name
                self._kinds[event.event_id] = kind
                return (Situation,) if kind in CONVERSING else ()
            case "activity_task_completed_event_attributes":
                kind = self._kinds.get(event.activity_task_completed_event_attributes.scheduled_event_id, "")
                return (RESULTS.get(kind, StepReturn),)
        return ()

    def _message(self, message: Message, shape: Shape) -> None:
        """Redact a message of Temporal's in place."""
        match message:
            case Payload():
                message.data = self._payload(message, shape)
                return
            case SearchAttributes():
                for name in set(message.indexed_fields) - ATTRIBUTES - {attributes.TENANT.name}:
                    del message.indexed_fields[name]  # a foreign one has a type that no placeholder may have
            case MarkerRecordedEventAttributes(marker_name=name) if name == PATCH:
                return
            case Failure() if message.HasField("application_failure_info"):
                self._details(message.application_failure_info)
        for field, value in message.ListFields():
            self._field(message, field, value, shape)

    def _field(self, message: Message, field: FieldDescriptor, value: Any, shape: Shape) -> None:
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            for name, inner in list(value.items()):
                if isinstance(inner, str):
                    value[name] = self.text(inner)
                elif isinstance(inner, Message) and not (isinstance(message, SearchAttributes) and name in ATTRIBUTES):
                    self._message(inner, BY_NAME.get(name, ()))
        elif field.message_type is not None:
            for inner in value if field.is_repeated else [value]:
                if not (isinstance(message, ApplicationFailureInfo) and field.name == "details"):
                    self._message(inner, shape)
        elif field.type == FieldDescriptor.TYPE_BYTES:
            message.ClearField(field.name)
        elif field.type == FieldDescriptor.TYPE_STRING and not _is_kept(field):
            self._string(message, field, value)

    def _string(self, message: Message, field: FieldDescriptor, value: Any) -> None:
        if field.is_repeated:
            value[:] = [self.text(one) for one in value]
        else:
            setattr(message, field.name, self.text(value))

    def _details(self, info: ApplicationFailureInfo) -> None:
        """A fault, those of the attempts before it, or an Outcome; a stranger's details have no model."""
        shape: Shape = (Fault,) if info.type in set(Quadrant) else (Outcome,) if info.type in set(TaskStatus) else ()
        for payload in info.details.payloads:
            self._message(payload, shape)

    def _payload(self, payload: Payload, shape: Shape) -> bytes:
        encoding = payload.metadata.get("encoding", b"").decode(errors="replace")
        if encoding in READABLE and not payload.external_payloads:
            return json.dumps(self._values.of(json.loads(payload.data), shape), ensure_ascii=False).encode()
        if encoding in UNREADABLE:
            return self.text(payload.data.hex()).encode()
        self.opaque += bool(payload.data)
        return payload.data


def _is_kept(field: FieldDescriptor) -> bool:
    return field.name in KEPT_NAMES or field.full_name in KEPT_STRINGS
