"""What an audit keeps of one history: its calls with their failures, sizes and digests, without whole payloads.

A history has one event for all failed attempts of an activity execution: ActivityTaskStarted is written when the
execution ends, with the number of the last attempt and the failure of the attempt before it. The failures of earlier
attempts are not in the history, so an audit reports nothing about them.
"""

import hashlib
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from google.protobuf.message import Message
from pydantic import JsonValue
from pydantic_core import from_json
from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import TimeoutType
from temporalio.api.failure.v1 import Failure
from temporalio.api.history import v1 as api
from temporalio.api.history.v1 import HistoryEvent
from temporalio.exceptions import RetryState

from activities.borders.meaning import fault_in
from activities.scrubbing import text_of
from client.history.decoder import RUN_ENDS, CallEvent, Decoder, is_encrypted, parts_of
from client.history.records import ActivityExecution, CallEnd, Event
from client.text import one_line
from client.workflow_task import HARMLESS, RESET
from extras.audit.errors import Diagnosis, Failing, verdict
from extras.audit.secrets import Secret, secrets_in
from extras.audit.tools import CalledTool, is_model, tokens_of, tool_of
from workflows.account.search_attributes import TYPES
from workflows.calls.header import HEADER
from workflows.json_values import canonical

MAX_VALUE = 2 * 1024 * 1024
"""The most bytes of a payload that are decoded; a larger payload is only counted."""
MAX_SHOWN = 300
"""The most characters of arguments and messages in a finding."""
MAX_SECRETS = 20
"""The most places with a secret that are kept of one history."""
_PACKAGE = re.compile(
    r"(?:site-packages|dist-packages|node_modules)[\\/](@?[\w.-]+)|lib[\\/]python3[.\d]*[\\/](?!site-packages|dist-packages)(\w+)"
)
NO_TOOL = CalledTool("", None, False)


@dataclass
class AuditedCall(ActivityExecution):
    """One activity execution, ordinary or local, with all its attempts, and what an audit keeps of its payloads."""

    args: str = ""
    """The arguments for people, scrubbed and cut; empty if they cannot be read."""
    digest: str = ""
    """The digest of the arguments: equal arguments have equal digests."""
    tool: CalledTool = NO_TOOL
    is_model: bool = False
    last: Failing | None = None
    """The failure of the attempt before the last one."""
    failing: Failing | None = None
    """The failure that ended the call, if it failed or timed out."""
    result: str = ""
    """The digest of its result."""
    tokens: int | None = None

    @property
    def is_replans(self) -> bool:
        """Whether Replan scheduled it: its ledger or key prevents a second effect, or a reconcile or person does."""
        return HEADER in self.header

    @property
    def is_completed(self) -> bool:
        return self.closed is CallEnd.COMPLETED

    @property
    def name(self) -> str:
        """The type of the activity, with the tool behind it in parentheses if its name differs."""
        return self.kind if self.tool.name in ("", self.kind) else f"{self.kind} ({self.tool.name})"

    @property
    def retries(self) -> int:
        return max(0, self.attempt - 1)

    @property
    def event_ids(self) -> tuple[int, ...]:
        return tuple(event.id for event in self.events)

    @property
    def verdict(self) -> Diagnosis | None:
        """The verdict on the failure that ended the call; None without a failure, or if nothing classifies it."""
        return verdict(self.failing, of_model=self.is_model) if self.failing else None

    @property
    def last_verdict(self) -> Diagnosis | None:
        """The verdict on the failure of the attempt before the last one; None as for `verdict`."""
        return verdict(self.last, of_model=self.is_model) if self.last else None

    @property
    def seconds(self) -> float:
        """Seconds from its schedule to the start of its last attempt: failed attempts and waits; 0 without a retry."""
        return (self.started_at - self.at).total_seconds() if self.retries and self.started_at else 0.0

    @property
    def waits(self) -> float:
        """The most seconds that the retry policy can have waited, in total, before the retries that were made."""
        total, wait = 0.0, self.interval
        for _ in range(min(self.retries, 1000)):
            total += min(wait, self.maximum_interval or wait)
            wait = min(wait * self.coefficient, 1e9)
        return total


@dataclass
class Carried:
    """How many bytes of the inputs of a model's activity repeat the input before."""

    bytes: int = 0
    all: int = 0
    """The bytes of all inputs."""
    events: list[int] = field(default_factory=list)


class Leak(NamedTuple):
    """A possible secret, and its place in the history."""

    secret: Secret
    event: int
    where: str


@dataclass
class AuditedHistory:
    """One history, reduced to what findings need."""

    # Set by the first event
    name: str
    workflow_id: str = ""
    run_id: str = ""
    workflow: str = ""
    """The type of the workflow."""
    attempt: int = 1
    """The number of this run by the retry policy of the workflow."""
    continued: Failing | None = None
    """The failure of the run before, if the workflow was retried."""

    # Set by each event
    events: int = 0
    bytes: int = 0
    payloads: int = 0
    opaque: int = 0
    """Payloads that a codec wrote."""
    largest: tuple[int, int] = (0, 0)
    """The bytes of the largest payload, and its event."""
    secrets: list[Leak] = field(default_factory=list)
    unknown: int = 0
    """Events of a type that this version does not know."""

    # Set by the events of activities
    calls: list[AuditedCall] = field(default_factory=list)
    carried: dict[str, Carried] = field(default_factory=dict)

    # Set by the events of workflow tasks, timers and messages
    suggested: int | None = None
    """The event by which the server first suggested continue-as-new."""
    tasks_after: int = 0
    """Workflow tasks that were completed after the event `suggested`."""
    stuck: list[tuple[int, Failing]] = field(default_factory=list)
    """Workflow tasks that failed, each with its event and cause; empty again once a task is completed."""
    pauses: list[Event] = field(default_factory=list)
    """The events of fired timers and arrived messages: a call repeated after such an event may be intended."""
    has_status: bool = False
    """Whether the workflow set search attributes of Replan."""

    # Set by the last event
    status: str = "running"
    ended: int | None = None

    @property
    def is_replans(self) -> bool:
        """Whether a worker of Replan made the history."""
        failures = (one for call in self.calls for one in (call.last, call.failing) if one)
        is_known = self.has_status or any(call.is_replans for call in self.calls)
        return is_known or any(one.is_replans for one in failures)


class Recording:
    """Builds an AuditedHistory from its events, which `add` takes one by one."""

    def __init__(self, name: str) -> None:
        self.record = AuditedHistory(name)
        self._decoder = Decoder(AuditedCall)
        self._inputs = dict[str, bytes]()

    def add(self, event: HistoryEvent) -> None:
        record, found, kind = self.record, self._decoder.read(event), event.WhichOneof("attributes")
        record.events += 1
        record.bytes += event.ByteSize()
        for where, text in self._texts(event.event_id, getattr(event, kind), "") if kind else ():
            if len(record.secrets) < MAX_SECRETS:
                leaks = [Leak(secret, event.event_id, where) for secret in secrets_in(text)]
                record.secrets += leaks[: MAX_SECRETS - len(record.secrets)]
        match found:
            case None:
                record.unknown += 1
            case CallEvent():
                self._add_call_event(*found)
            case api.WorkflowExecutionStartedEventAttributes():
                record.workflow_id = found.workflow_id or record.workflow_id
                record.run_id, record.workflow = found.original_execution_run_id, found.workflow_type.name
                record.attempt = max(1, found.attempt)
                if found.HasField("continued_failure"):
                    record.continued = failing_of(found.continued_failure)
            case api.UpsertWorkflowSearchAttributesEventAttributes():
                named = found.search_attributes.indexed_fields
                record.has_status = record.has_status or not TYPES.keys().isdisjoint(named)
            case api.WorkflowTaskStartedEventAttributes() if found.suggest_continue_as_new:
                record.suggested = record.suggested or event.event_id
            case api.WorkflowTaskCompletedEventAttributes():
                record.stuck.clear()
                record.tasks_after += 0 if record.suggested is None else 1
            case api.WorkflowTaskFailedEventAttributes() if found.cause not in HARMLESS | {RESET}:
                record.stuck.append((event.event_id, failing_of(found.failure)))
            case api.TimerFiredEventAttributes() | api.WorkflowExecutionSignaledEventAttributes():
                record.pauses.append(self._decoder.event)
            case api.WorkflowExecutionUpdateAcceptedEventAttributes():
                record.pauses.append(self._decoder.event)
            case _ if status := RUN_ENDS.get(type(found)):
                record.status, record.ended = status, event.event_id

    def _texts(self, event: int, message: Message, where: str) -> Iterator[tuple[str, str]]:
        """Yield each text in a message after its place, and count the payloads; `where` is the place of the message."""
        if isinstance(message, Payload):
            self.record.payloads += 1
            self.record.opaque += 1 if is_encrypted(message) else 0
            self.record.largest = max(self.record.largest, (len(message.data), event))
            if _is_readable(message):
                yield where, message.data.decode(errors="replace")
            return
        for descriptor, part in parts_of(message):
            if isinstance(part, Message):
                yield from self._texts(event, part, where if descriptor.name in _UNNAMED else descriptor.name)
            elif descriptor.name in ("message", "stack_trace", "reason"):
                yield where or "failure", part

    def _add_call_event(self, call: AuditedCall, payloads: Sequence[Payload], failure: Failure | None) -> None:
        if call.scheduled == self._decoder.event:
            self.record.calls.append(call)
            self._set_arguments(call, () if call.is_local else payloads)  # a marker has none
        if call.closed is CallEnd.COMPLETED:
            call.result = _digest(payloads)
            call.tokens = next((used for payload in payloads if (used := tokens_of(_value(payload)))), None)
        elif call.closed and failure:
            call.failing = failing_of(failure)
            # The time for all attempts passed during a wait: what failed is the cause.
            if call.retry_state == RetryState.TIMEOUT and call.failing.cause is not None:
                call.failing = call.failing.cause
        elif failure:
            call.last = failing_of(failure)

    def _set_arguments(self, call: AuditedCall, payloads: Sequence[Payload]) -> None:
        values = [_value(payload) for payload in payloads]
        known = [value for value in values if value is not None]
        call.tool, call.is_model = tool_of(call.kind, values), is_model(call.kind)
        call.digest = _digest(payloads)
        shown: JsonValue = known[0] if len(known) == 1 else [*known]
        if call.tool.args is not None:  # beside them stand ids and contexts, which differ from call to call
            shown = call.tool.args
            call.digest = hashlib.sha256(canonical([call.tool.name, shown]).encode(errors="replace")).hexdigest()[:32]
            call.tool = call.tool._replace(args=None)
        call.args = one_line(text_of(shown, canonical, MAX_SHOWN)) if known else ""
        if call.is_model and not call.is_local and not any(map(is_encrypted, payloads)):
            self._carry(call, b"".join(payload.data for payload in payloads)[:MAX_VALUE])

    def _carry(self, call: AuditedCall, text: bytes) -> None:
        """Count the bytes at the beginning that an input of a model's activity shares with the input before."""
        carried = self.record.carried.setdefault(call.kind, Carried())
        carried.all += len(text)
        if shared := _shared_prefix_length(self._inputs.get(call.kind, b""), text):
            carried.bytes += shared
            carried.events.append(call.scheduled.id)
        self._inputs[call.kind] = text


_UNNAMED = ("payloads", "fields", "indexed_fields")
"""Fields whose values stand, for people, in the place of the message around them."""


def failing_of(failure: Failure, depth: int = 0) -> Failing:
    """Reduce a failure, and at most ten causes of it, to what an audit keeps; `depth` is the place in the chain."""
    info = failure.WhichOneof("failure_info") or ""
    application = failure.application_failure_info
    delay = application.next_retry_delay
    wait = delay.seconds + delay.nanos / 1e9 if application.HasField("next_retry_delay") else None
    cause = failing_of(failure.cause, depth + 1) if failure.HasField("cause") and depth < 10 else None
    details = application.details.payloads
    detail = _value(details[0]) if details else None
    if info in ("activity_failure_info", "child_workflow_execution_failure_info") and cause is not None:
        return cause  # it only says where the failure was
    return Failing(
        type=application.type or ("" if info != "reset_workflow_failure_info" else "ResetWorkflow"),
        message=failure.message[:2000],
        timeout=_timeout_words(failure.timeout_failure_info.timeout_type) if info == "timeout_failure_info" else "",
        is_server=info == "server_failure_info",
        is_cancelled=info == "canceled_failure_info",
        wait=wait,
        packages=frozenset(first or second for first, second in _PACKAGE.findall(failure.stack_trace[:20_000])),
        code=_fault_code(detail),
        fault=fault_in(detail),
        is_made=info == "application_failure_info" and fault_in(detail) is None and _is_made(failure),
        cause=cause,
    )


def _is_made(failure: Failure) -> bool:
    """Whether a failure of an activity is not just an exception as the SDK of Python translates it.

    Such a failure has a type alone; the last line of its traceback is the one that raised it.
    """
    found = failure.application_failure_info
    own = found.details.payloads or found.non_retryable or found.HasField("next_retry_delay") or found.category
    raised = failure.stack_trace[-2000:].rpartition('  File "')[2]
    return bool(own or failure.source or not found.type or "ApplicationError(" in raised)


def _timeout_words(type: int) -> str:
    with suppress(ValueError):
        return TimeoutType.Name(type).removeprefix("TIMEOUT_TYPE_").replace("_", " ").lower()  # type: ignore[arg-type]
    return "of a kind that is not known"


def _fault_code(detail: JsonValue) -> str:
    code = detail.get("code") if isinstance(detail, dict) else None
    return code if isinstance(code, str) else ""


def _value(payload: Payload) -> JsonValue:
    """The value of a JSON payload; None for an encrypted, too large, unreadable or other payload."""
    if not _is_readable(payload):
        return None
    try:
        found: JsonValue = from_json(payload.data)
    except ValueError:
        return None
    return found


def _is_readable(payload: Payload) -> bool:
    is_json = payload.metadata.get("encoding", b"").startswith(b"json/")
    return is_json and not is_encrypted(payload) and len(payload.data) <= MAX_VALUE


def _digest(payloads: Sequence[Payload]) -> str:
    found = hashlib.sha256()
    for payload in payloads:
        found.update(f"{len(payload.data)} ".encode() + payload.data)
    return found.hexdigest()[:32] if payloads else ""


def _shared_prefix_length(one: bytes, other: bytes) -> int:
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[low:middle] == other[low:middle] else (low, middle - 1)
    return low
