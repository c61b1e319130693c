"""Redacts a history, so that it can be given to other people and still replays.

Runs for `export --redact`, when the history has been fetched and decoded.

Equal values get equal placeholders. What the workflow's decisions depend on stays: kinds, ids of steps, codes, effects,
limits, times, and the keys of objects that a schema has. All other strings and numbers are replaced, also in fields
that nothing here names.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from enum import StrEnum
from types import NoneType
from typing import Any, Literal, get_args, get_origin

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from pydantic import BaseModel, JsonValue, ValidationError
from pydantic.fields import FieldInfo
from temporalio.api.common.v1 import Header, Memo, Payload, SearchAttributes
from temporalio.api.failure.v1 import ApplicationFailureInfo, Failure, TimeoutFailureInfo
from temporalio.api.history import v1 as api
from temporalio.api.history.v1 import HistoryEvent, MarkerRecordedEventAttributes
from temporalio.api.update.v1 import Request

from client.history.decoder import LOCAL_ACTIVITY, RESULT, CallEvent, Decoder, payloads_of
from client.history.reader import KNOW_EARLIER_EFFECTS, UNDO_WHEN_CANCELLED
from client.history.records import CONVERSING, RESULTS, ActivityExecution, CallEnd
from client.placeholders import Placeholders
from client.start import DIGEST_MEMO
from client.tasks import BY_MEMO, TASK_MEMO
from runtime.payloads import INLINE
from workflows.account import search_attributes
from workflows.account.outcome import Outcome
from workflows.account.progress import Progress
from workflows.account.records import (
    StepRecord,
)
from workflows.account.task import CONTINUES_MEMO, Task, TaskStatus
from workflows.agent import OTHERS_MEMO, OUTCOME_MEMO, REQUEST_MEMO
from workflows.calls.admission import TURN, Admitted
from workflows.calls.header import HEADER, CallHeader
from workflows.faults.fault import FAILURE_TYPES, Fault, Held, ProgressReport, ReplyProgress
from workflows.json_values import digest
from workflows.marks import Mark
from workflows.people.approvers import PERSON, Approvers
from workflows.people.requests import CHOICES, Choice, HumanRequest, Resolution
from workflows.people.updates import RESOLVE
from workflows.planning.situation import Situation
from workflows.plans.catalogue import ALWAYS, CompanionSpec, ToolSpec
from workflows.plans.contract import Term
from workflows.plans.proposal import NewSteps, Step, StepReturn
from workflows.plans.repeated_calls import ProgressGuard, RepeatGuard


class Values(Placeholders):
    """Redacts each value by the model that it belongs to; a value without a model is redacted as data of a tool."""

    def __init__(self) -> None:
        super().__init__()
        self._digests = dict[str, str]()
        self._effect_keys = set[str]()
        """The effect keys of the tasks that were redacted so far."""

    def of(self, value: JsonValue, shape: Sequence[type[BaseModel]]) -> JsonValue:
        """Redact a value, or each value of a list, by the first model in `shape` that fits, else as data of a tool."""
        if isinstance(value, list) and shape:
            return [self.of(item, shape) for item in value]
        for model in shape:
            with suppress(ValidationError):
                return self._redacted_model(model.model_validate(value))
        return self.data(value)

    def _note_digests(self, progress: Progress) -> None:
        """Record for each call and value the digest of the redacted form, for the guards against repeated calls."""
        for record in progress.records:
            for args in (record.args, record.step.args):
                self._digests[digest(record.kind, args)] = digest(record.kind, self.data(args, references=True))
        for observation in progress.observations:
            kind, args = observation.kind, observation.args
            self._digests[digest(kind, args)] = digest(kind, self.data(args, references=True))
        views = [record.result for record in progress.records]
        views += [observation.value for observation in progress.observations]
        views += [fault.observed for fault in progress.faults]
        for value in views:
            self._digests[digest(value)] = digest(self.data(value))

    def _redacted_model(self, model: BaseModel) -> dict[str, JsonValue]:
        if isinstance(model, Progress):
            self._note_digests(model)
        if isinstance(model, Term) and model.slot:
            kind, dot, path = model.slot.partition(".")
            model = model.model_copy(update={"slot": f"{kind}{dot}{self.path(path) if path else ''}"})
        if isinstance(model, Approvers):
            model = model.model_copy(update={"by": self._named(model.by), "then": self._named(model.then)})
        if isinstance(model, Task) and model.effect_key:
            self._effect_keys.add(model.effect_key)
            model = model.model_copy(update={"effect_key": self._effect_key(model.effect_key)})
        if isinstance(model, CallHeader | Admitted):
            model = model.model_copy(update={"key": self._idempotency_key(model.key)})
        if isinstance(model, Task | NewSteps):
            effects = model.contract if isinstance(model, Task) else model.effects
            terms = [term for effect in effects for term in effect.args.values()]
            self._bounds |= {bound for term in terms for bound in (term.at_least, term.at_most) if bound is not None}
        dumped = model.model_dump(mode="json")
        fields = {field.alias or name: (name, field) for name, field in type(model).model_fields.items()}
        return {
            key: self._redacted_field(*fields[key], getattr(model, fields[key][0]), found)
            for key, found in dumped.items()
        }

    def _named(self, named: Sequence[str]) -> tuple[str, ...]:
        """Those whom a rule names: roles as they are, and for each person the placeholder of the name."""
        return tuple(PERSON + self.text(who.removeprefix(PERSON)) if who.startswith(PERSON) else who for who in named)

    def _effect_key(self, key: str) -> str:
        """The placeholder of an effect key; it must be a valid effect key, too: `text-7`."""
        return self.text(key).strip("<>:/")

    def _idempotency_key(self, key: str) -> str:
        """An idempotency key with a placeholder for the effect key; a run id and the id of the call stay."""
        prefix, slash, call = key.rpartition("/")
        return f"{self._effect_key(prefix)}{slash}{call}" if prefix in self._effect_keys else key

    def _redacted_field(self, name: str, field: FieldInfo, value: Any, dumped: Any) -> Any:
        marks = field.metadata
        if Mark.KEPT in marks or _is_literal(field.annotation):
            return dumped
        match value:
            # The guards compare digests. With the old ones, the redacted history would not replay.
            case RepeatGuard() | ProgressGuard():
                return _with_new_digests(dumped, self._digests)
            case str() if name == "approve" and value == ALWAYS:  # no condition, and who asks together depends on it
                return dumped
            case str() if Mark.PATHS in marks:
                return self.path(value)
            case dict() if Mark.PATHS in marks:
                return {self.path(path): self.data(item) for path, item in dumped.items()}
            case dict() if Mark.NAMED in marks:
                return {self.key(key): self._redacted(item, dumped[key]) for key, item in value.items()}
            case dict() if name == "unchecked":  # by step, names of arguments
                return {step: [self.key(argument) for argument in arguments] for step, arguments in value.items()}
            case dict() if name == "specs" and _is_data(field.annotation):  # of a planner's worker with other tools
                return {kind: self.of(spec, (ToolSpec,)) for kind, spec in value.items()}
            case tuple() if name == "earlier":
                return self.of(dumped, (Fault,))
            case _ if _is_data(field.annotation) and name != "result_schema":  # whose keys say what is asked for
                return self.data(dumped, references=Mark.REFERS in marks)
        return self._redacted(value, dumped)

    def _redacted(self, value: Any, dumped: Any) -> Any:
        match value:
            case BaseModel():
                return self._redacted_model(value)
            case StrEnum() | datetime() | bool() | int() | float() | None:
                return dumped
            case str():
                return self.text(value)
            case dict():
                return {key: self._redacted(item, dumped[key]) for key, item in value.items()}
            case tuple() | list():
                return [self._redacted(item, was) for item, was in zip(value, dumped, strict=True)]
        return self.data(dumped)


def _is_literal(annotation: Any) -> bool:
    """Whether a field holds only words that its type names."""
    of = [part for part in get_args(annotation) if part is not NoneType]
    return get_origin(annotation) is Literal or (bool(of) and all(map(_is_literal, of)))


def _is_data(annotation: Any) -> bool:
    """Whether a field holds data of a tool or a planner."""
    return annotation is JsonValue or any(map(_is_data, get_args(annotation)))


def _with_new_digests(value: Any, digests: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {digests.get(key, key): _with_new_digests(item, digests) for key, item in value.items()}
    return digests.get(value, value) if isinstance(value, str) else value


KEPT_STRINGS = frozenset(
    {
        "temporal.api.common.v1.ActivityType.name",
        "temporal.api.common.v1.RetryPolicy.non_retryable_error_types",
        "temporal.api.common.v1.WorkerVersionStamp.build_id",
        "temporal.api.common.v1.WorkflowExecution.run_id",
        "temporal.api.common.v1.WorkflowType.name",
        "temporal.api.failure.v1.ApplicationFailureInfo.type",
        # of a notification: ids and a time, without which the SDK would not replay its start
        "temporal.api.history.v1.StartChildWorkflowExecutionInitiatedEventAttributes.workflow_id",
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
        "sdk_name",
        "sdk_version",
        "timer_id",
    }
)
"""The names of fields in Temporal's events that keep their strings, in any message; KEPT_STRINGS has full names."""

UPDATE_NAME = "temporal.api.update.v1.Input.name"

Shape = tuple[type[BaseModel], ...]
"""The models that a payload may hold; empty for data of a tool."""

PATCH = "core_patch"
"""The name of the marker event with which the SDK records `workflow.patched`."""
ATTRIBUTES = frozenset(search_attributes.TYPES) - {search_attributes.TENANT.name}
BY_NAME: Mapping[str, Shape] = {
    HEADER: (CallHeader,),
    OUTCOME_MEMO: (Outcome,),
    REQUEST_MEMO: (HumanRequest,),
    OTHERS_MEMO: (HumanRequest,),
}
SIGNALS: Mapping[str, Shape] = {
    UNDO_WHEN_CANCELLED: (),
    KNOW_EARLIER_EFFECTS: (StepRecord,),
    RESOLVE: (Resolution,),
    TURN: (Admitted,),
}
OUR_NAMES = frozenset({*BY_NAME, TASK_MEMO, BY_MEMO, DIGEST_MEMO, CONTINUES_MEMO, *SIGNALS})
"""The names of Replan's own memo fields, headers and Signals, which are kept; all other such names get placeholders."""
DETAILED = ApplicationFailureInfo, TimeoutFailureInfo
OUR_METADATA = frozenset({"encoding", "messageType", INLINE})
JSON = ("json/plain", "json/protobuf")
BINARY = ("binary/plain", "binary/protobuf")


class Redaction:
    """Redacts histories; equal values get equal placeholders in all of them."""

    def __init__(self) -> None:
        self._values = Values()
        self._decoder = Decoder(ActivityExecution)
        self.opaque = 0
        """The number of payloads that were left unchanged: a codec encrypted them, or they are in external storage."""

    def text(self, value: str) -> str:
        """The placeholder of a string."""
        return self._values.text(value)

    def events(self, events: Iterable[HistoryEvent]) -> list[HistoryEvent]:
        """Redacted copies of the events; they replay like the originals."""
        redacted = [HistoryEvent.FromString(event.SerializeToString()) for event in events]
        for event in redacted:
            self._values.known_keys.update(_declared_keys(event, self._shape_of_payloads(event)))
        for event in redacted:
            self._redact_message(event, self._shape_of_payloads(event))
        return redacted

    def _shape_of_payloads(self, event: HistoryEvent) -> Shape:
        match self._decoder.read(event):
            case CallEvent(call=call) if call.closed is CallEnd.COMPLETED or call.is_local:
                return (RESULTS.get(call.kind, StepReturn),)
            case CallEvent(call=call) if call.scheduled == self._decoder.event and call.kind in CONVERSING:
                return (Situation,)
            case api.WorkflowExecutionStartedEventAttributes() | api.WorkflowExecutionContinuedAsNewEventAttributes():
                return Task, Progress
            case api.WorkflowExecutionCompletedEventAttributes():
                return (Outcome,)
            case api.WorkflowExecutionUpdateAcceptedEventAttributes(accepted_request=request):
                return _shape_of_answer(request)
            case api.WorkflowExecutionUpdateAdmittedEventAttributes(request=request):
                return _shape_of_answer(request)
            case api.WorkflowExecutionSignaledEventAttributes(signal_name=name):
                return SIGNALS.get(name, ())
        return ()

    def _redact_message(self, message: Message, shape: Shape) -> None:
        match message:
            case Payload():
                message.data = self._redacted_data(message, shape)
                return
            case SearchAttributes():
                for name in set(message.indexed_fields) - ATTRIBUTES - {search_attributes.TENANT.name}:
                    del message.indexed_fields[name]  # a placeholder may not fit its type
            case MarkerRecordedEventAttributes(marker_name=name) if name == PATCH:
                return  # the SDK needs the patch id in it for the replay
            case MarkerRecordedEventAttributes(marker_name=name) if name == LOCAL_ACTIVITY:
                for part in [message.details[RESULT]] if RESULT in message.details else [message.failure]:
                    self._redact_message(part, shape)  # the rest is the SDK's own record
                return
            case Failure() if message.HasField("application_failure_info"):
                self._redact_details(message.application_failure_info)
            case Failure() if message.HasField("timeout_failure_info"):
                for payload in message.timeout_failure_info.last_heartbeat_details.payloads:
                    self._redact_message(payload, (Fault, Held, ReplyProgress, ProgressReport))
        for field, value in message.ListFields():
            self._redact_field(message, field, value, shape)

    def _redact_field(self, message: Message, field: FieldDescriptor, value: Any, shape: Shape) -> None:
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            for name, inner in list(value.items()):
                if isinstance(inner, str):
                    value[name] = self.text(inner)
                elif isinstance(inner, Message) and not (isinstance(message, SearchAttributes) and name in ATTRIBUTES):
                    self._redact_message(inner, BY_NAME.get(name, ()))
                    if isinstance(message, Memo | Header) and name not in OUR_NAMES:
                        value[self.text(name)].CopyFrom(inner)
                        del value[name]
        elif field.message_type is not None:
            for inner in [value] if isinstance(value, Message) else value:
                # The details of a failure are redacted by their own models, in `_redact_details`.
                is_failure = field.name in ("details", "last_heartbeat_details") and isinstance(message, DETAILED)
                # The name of a timer has only ids, kinds, codes and choices (`workflows.ids`).
                is_name = isinstance(message, HistoryEvent) and message.HasField("timer_started_event_attributes")
                if not is_failure and not (is_name and field.name == "user_metadata"):
                    self._redact_message(inner, shape)
        elif field.type == FieldDescriptor.TYPE_BYTES:
            message.ClearField(field.name)
        elif field.type == FieldDescriptor.TYPE_STRING and not (
            field.name in KEPT_NAMES
            or field.full_name in KEPT_STRINGS
            or (field.name == "signal_name" and value in OUR_NAMES)
            or (field.full_name == UPDATE_NAME and value in set(Choice))
        ):
            if isinstance(value, str):  # not by `field.is_repeated`, which older releases of protobuf lack
                setattr(message, field.name, self.text(value))
            else:
                value[:] = [self.text(text) for text in value]

    def _redact_details(self, info: ApplicationFailureInfo) -> None:
        shape: Shape = (Fault,) if info.type in FAILURE_TYPES else (Outcome,) if info.type in set(TaskStatus) else ()
        for payload in info.details.payloads:
            self._redact_message(payload, shape)

    def _redacted_data(self, payload: Payload, shape: Shape) -> bytes:
        encoding = payload.metadata.get("encoding", b"").decode(errors="replace")
        if encoding in (*JSON, *BINARY) and not payload.external_payloads:
            for name in set(payload.metadata) - OUR_METADATA:
                del payload.metadata[name]
            with suppress(ValueError, RecursionError):  # no JSON, or deeper than Python reads
                if encoding in JSON:
                    return json.dumps(self._values.of(json.loads(payload.data), shape), ensure_ascii=False).encode()
            return self.text(payload.data.hex()).encode()
        self.opaque += 1 if payload.data else 0
        return payload.data


def _shape_of_answer(request: Request) -> Shape:
    return (CHOICES[Choice(request.input.name)].given,) if request.input.name in set(Choice) else ()


def _declared_keys(message: Message, shape: Shape) -> Iterator[str]:
    """The keys in a message that tools declare: the arguments of steps and of a `CompanionSpec`, and its paths."""
    for payload in payloads_of(message):
        with suppress(ValueError, RecursionError):
            found = json.loads(payload.data)
            for model in shape:
                with suppress(ValidationError):
                    yield from _declared_keys_in(model.model_validate(found))


def _declared_keys_in(value: Any) -> Iterator[str]:
    match value:
        case Step():
            yield from value.args
        case CompanionSpec():
            yield from value.args
            yield from (part for path in value.args.values() for part in path.split("."))
        case BaseModel():
            yield from (key for _, inner in value for key in _declared_keys_in(inner))
        case dict():
            yield from (key for inner in value.values() for key in _declared_keys_in(inner))
        case list() | tuple():
            yield from (key for inner in value for key in _declared_keys_in(inner))
