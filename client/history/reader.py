"""Reads Temporal's history events, one after the other, into a History."""

from collections.abc import AsyncIterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from google.protobuf.message import Message
from pydantic import BaseModel, JsonValue, ValidationError
from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import TimeoutType, WorkflowTaskFailedCause
from temporalio.api.failure.v1 import Failure
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.sdk.v1.external_storage_pb2 import ExternalStorageReference
from temporalio.api.update.v1 import Request
from temporalio.converter import DataConverter
from temporalio.exceptions import ActivityError, RetryState, TimeoutError as TemporalTimeout

from client import workflow_task
from client.history.account import replayed_progress
from client.history.local import local_activity
from client.history.records import (
    CONVERSING,
    RESULTS,
    AcceptedAnswer,
    AttemptFailure,
    Call,
    CallEnd,
    End,
    Event,
    History,
    Pending,
    Reset,
    Timer,
    Unreadable,
)
from client.tasks import TASK_TYPE, outcome_of
from workflows import ids
from workflows.account.outcome import Outcome
from workflows.account.progress import Progress
from workflows.account.task import Task
from workflows.agent import OUTCOME_MEMO, AgentWorkflow, EarlierEffects
from workflows.faults import retries
from workflows.faults.fault import Code, Fault, Quadrant, number_of, parse_faults
from workflows.faults.outside import earlier_faults, expired, from_activity_error
from workflows.people.requests import CHOICES, Choice, Resolution
from workflows.people.updates import RESOLVE
from workflows.planning.situation import Situation
from workflows.plans.catalogue import Catalogue, Effect, ToolSpec
from workflows.plans.proposal import NewSteps, Proposed, StepReturn

T = TypeVar("T", bound=BaseModel)

PLAIN = frozenset({"json/plain", "json/protobuf", "binary/null", "binary/plain", "binary/protobuf"})
"""The payload encodings that Temporal's own converters write."""
REFERENCES = frozenset({"json/external-storage-reference", ExternalStorageReference.DESCRIPTOR.full_name})
"""The encoding, or the message type, of a payload that only refers to a payload in external storage."""
REFERENCE_MARK = "__temporal_external_storage_reference"


class Payloads:
    """Decodes payloads with the client's converter, and notes each payload that cannot be read."""

    def __init__(self, converter: DataConverter) -> None:
        self._converter = converter
        self.run = 1
        """The number of the run whose events are being read."""
        self.unreadable = list[Unreadable]()

    async def value(self, event: int, what: str, payloads: Sequence[Payload]) -> JsonValue:
        """The first payload as JSON; None without one, or if it cannot be read. `what` is its place in the event."""
        if not payloads:
            return None
        try:
            value: JsonValue = (await self._converter.decode(payloads[:1]))[0]
        except Exception:  # codecs and storage drivers may raise anything; the rest of the history is readable
            self._note(event, what, _why_unreadable(payloads[0]))
            return None
        return None if isinstance(value, bytes) else value

    async def model(self, event: int, what: str, payloads: Sequence[Payload], type: type[T]) -> T | None:
        """The first payload as a `type`; None if it cannot be read or does not validate."""
        noted = len(self.unreadable)
        value = await self.value(event, what, payloads)
        try:
            return type.model_validate(value)
        except ValidationError:
            if payloads and noted == len(self.unreadable):  # else `value` has noted it already
                self._note(event, what, "was written by another version")
            return None

    async def failure(self, event: int, failure: Failure) -> BaseException | None:
        """The exception that a failure stands for, with its details; None if they cannot be decoded."""
        copy = Failure()
        copy.CopyFrom(failure)  # `decode_failure` changes the failure that it gets
        try:
            return await self._converter.decode_failure(copy)
        except Exception:  # see value()
            details = _details(failure)
            self._note(event, "failure", _why_unreadable(details[0]) if details else "cannot be decoded")
            return None

    def _note(self, event: int, what: str, why: str) -> None:
        self.unreadable.append(Unreadable(self.run, event, what, why))


def _details(failure: Failure) -> Sequence[Payload]:
    if failure.HasField("encoded_attributes"):
        return [failure.encoded_attributes]
    if failure.HasField("timeout_failure_info"):
        return failure.timeout_failure_info.last_heartbeat_details.payloads
    return failure.application_failure_info.details.payloads


def _why_unreadable(payload: Payload) -> str:
    if is_encrypted(payload):
        return "is encrypted"
    return "is stored elsewhere" if _is_in_external_storage(payload) else "cannot be decoded"


def is_encrypted(payload: Payload) -> bool:
    """Whether a codec wrote the payload, so that only this codec can read it."""
    encoding = payload.metadata.get("encoding", b"").decode(errors="replace")
    return encoding not in PLAIN and not _is_in_external_storage(payload)


def _is_in_external_storage(payload: Payload) -> bool:
    encoding = payload.metadata.get("encoding", b"").decode(errors="replace")
    kind = payload.metadata.get("messageType", b"").decode(errors="replace")
    return encoding in REFERENCES or kind in REFERENCES or REFERENCE_MARK in payload.metadata


def payloads_of(message: Message) -> Iterator[Payload]:
    """Each payload in a protobuf message, such as an event."""
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        is_map = field.message_type.GetOptions().map_entry
        # Not by `field.is_repeated`, which older releases of protobuf lack.
        for item in value.values() if is_map else (value,) if isinstance(value, Message) else value:
            if isinstance(item, Payload):
                yield item
            elif isinstance(item, Message):
                yield from payloads_of(item)


def earlier(call: Call, cause: BaseException | None) -> tuple[Fault, ...]:
    """The faults of a call's earlier attempts, as reported by its last attempt, whose exception is `cause`."""
    # An attempt that timed out returned nothing, but its heartbeats carried the earlier faults.
    if isinstance(cause, TemporalTimeout):
        return parse_faults(cause.last_heartbeat_details)
    return earlier_faults(_activity_error(call, cause)) if cause is not None else ()


def _activity_error(call: Call, cause: BaseException) -> ActivityError:
    """The ActivityError that the workflow got, rebuilt with the fields that `workflows.faults.fault` reads."""
    error = ActivityError(
        call.id,
        scheduled_event_id=call.scheduled.id,
        started_event_id=call.started.id if call.started else 0,
        identity="",
        activity_type=call.kind,
        activity_id=call.id,
        retry_state=call.retry_state,
    )
    error.__cause__ = cause
    return error


SUFFIX = "_event_attributes"
UNDO_WHEN_CANCELLED = AgentWorkflow.undo_when_cancelled.__name__
KNOW_EARLIER_EFFECTS = AgentWorkflow.know_earlier_effects.__name__
"""The name of the Signal that tells a task of effects of earlier runs."""
RESET = WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_RESET_WORKFLOW


async def read_history(
    task_id: str, events: AsyncIterable[HistoryEvent], converter: DataConverter, *, journal: bool = False
) -> History:
    """Read these events into a History, with its `journal` if asked; `converter` decodes their payloads."""
    reading = Reading(task_id, converter, journal=journal)
    async for event in events:
        await reading.add(event)
    return await reading.complete()


class Reading:
    """Builds a History from events, which must be added in their order.

    With `journal`, each of its runs is replayed for the entries of the task's journal.
    """

    def __init__(self, task_id: str, converter: DataConverter, *, journal: bool = False) -> None:
        self._payloads, self._converter, self._has_journal = Payloads(converter), converter, journal
        self._run = 0
        self._open = dict[Event, Call]()
        self._timers = dict[Event, Timer]()
        self._admitted = dict[str, Request]()
        self._updates = set[str]()
        self._memo: Outcome | None = None
        self._queue = ""
        self._is_task = True
        self._events = list[HistoryEvent]()
        """The events of the newest run."""
        self._streak = list[HistoryEvent]()
        """The events of the failed workflow tasks since a workflow task was last completed, the newest first."""
        self.history = History(task_id, unreadable=self._payloads.unreadable)

    async def add(self, event: HistoryEvent) -> None:
        """Read the next event with the method `_on_NAME` for its type; a type without such a method is skipped."""
        name = (event.WhichOneof("attributes") or "").removesuffix(SUFFIX)
        if name == "workflow_execution_started":
            if self._events and self._has_journal:
                await self._replay()
            self._run += 1
            self._payloads.run = self.history.runs = self._run
            self._events.clear()
        self._events.append(event)
        self.history.last, self.history.last_at = self._event(event.event_id), _when(event)
        if take := getattr(self, f"_on_{name}", None):
            await take(event)

    async def complete(self) -> History:
        """The history of all events that were added, with the account of the task."""
        history = self.history
        has_account = history.outcome is not None and history.outcome.counts is not None
        if self._is_task and history.decided and (self._has_journal or not has_account):
            progress = await self._replay()
            if not has_account:
                history.replayed = progress.outcome(history.last_at) if progress else None
                history.is_untold = progress is None
        return history

    async def _replay(self) -> Progress | None:
        """The state after the events of the newest run, whose entries are added to the journal."""
        progress = await replayed_progress(self.history.task_id, self._events, self._converter)
        if progress is None or not self._has_journal:
            self.history.journal = []
            return progress
        known = self.history.journal[-1].number if self.history.journal else 0
        self.history.journal += [entry for entry in progress.journal if entry.number > known]
        return progress

    async def pending(self, id: str, attempt: int, failure: Failure | None, *, running: bool) -> None:
        """Record the server's state of the open call `id`: its attempt, and the failure of the attempt before."""
        call = next((call for call in reversed(self.history.calls) if call.id == id and call.closed is None), None)
        if call is not None:
            last = await self._failing(call, failure, attempt - 1, call.scheduled.id) if failure else None
            self.history.pending[id] = Pending(attempt, last, running)

    def _event(self, id: int) -> Event:
        return Event(self._run, id)

    async def _on_workflow_execution_started(self, event: HistoryEvent) -> None:
        of = event.workflow_execution_started_event_attributes
        self._queue, self._is_task = of.task_queue.name, of.workflow_type.name == TASK_TYPE
        self._note_related_runs(of.first_execution_run_id, of.original_execution_run_id, of.continued_execution_run_id)
        if self._run == 1:
            self.history.started_at = _when(event)
            self.history.first_run = of.first_execution_run_id
            if of.continued_execution_run_id:  # the events of the run with the task are not read, or were deleted
                progress = await self._payloads.model(event.event_id, "input", of.input.payloads, Progress)
                self.history.effect_key = progress.task.effect_key if progress else None
            else:
                self.history.task = await self._payloads.model(event.event_id, "input", of.input.payloads, Task)
                self.history.effect_key = self.history.task.effect_key if self.history.task else None
        self.history.end = None  # the run before ended by continuing as new

    async def _on_workflow_execution_cancel_requested(self, event: HistoryEvent) -> None:
        self.history.cancels.append(self._event(event.event_id))

    async def _on_workflow_execution_signaled(self, event: HistoryEvent) -> None:
        of = event.workflow_execution_signaled_event_attributes
        if of.signal_name == UNDO_WHEN_CANCELLED:
            self.history.undo_asked.append(self._event(event.event_id))
        elif of.signal_name == KNOW_EARLIER_EFFECTS:
            known = await self._payloads.model(event.event_id, "signal", of.input.payloads, EarlierEffects)
            self.history.earlier_effects += known.root if known else []
        elif of.signal_name == RESOLVE:
            resolution = await self._payloads.model(event.event_id, "signal", of.input.payloads, Resolution)
            if resolution:
                answer = AcceptedAnswer(self._event(event.event_id), _when(event), Choice.RETRY, resolution)
                self.history.answers.append(answer)

    async def _on_workflow_execution_update_admitted(self, event: HistoryEvent) -> None:
        # A reset brings an Update of the earlier run into the new one.
        request = event.workflow_execution_update_admitted_event_attributes.request
        self._admitted[request.meta.update_id] = request

    async def _on_workflow_execution_update_accepted(self, event: HistoryEvent) -> None:
        of = event.workflow_execution_update_accepted_event_attributes
        if of.protocol_instance_id in self._updates:  # an Update that was sent again to a later run changes nothing
            return
        self._updates.add(of.protocol_instance_id)
        sent = (self._admitted.get(of.protocol_instance_id) or of.accepted_request).input
        if sent.name not in set(Choice):
            return
        choice, fields = Choice(sent.name), None
        if any(payload.data not in (b"", b"null") for payload in sent.args.payloads):
            fields = await self._payloads.model(event.event_id, "answer", sent.args.payloads, CHOICES[choice].given)
        update = of.protocol_instance_id
        self.history.answers.append(AcceptedAnswer(self._event(event.event_id), _when(event), choice, fields, update))

    def _note_related_runs(self, *runs: str) -> None:
        self.history.related.update(run for run in runs if run)

    async def _on_workflow_properties_modified(self, event: HistoryEvent) -> None:
        fields = event.workflow_properties_modified_event_attributes.upserted_memo.fields
        if OUTCOME_MEMO in fields:
            self._memo = await self._payloads.model(event.event_id, "memo", [fields[OUTCOME_MEMO]], Outcome)

    async def _on_workflow_execution_completed(self, event: HistoryEvent) -> None:
        payloads = event.workflow_execution_completed_event_attributes.result.payloads
        self._end("completed", event, await self._payloads.model(event.event_id, "result", payloads, Outcome))

    async def _on_workflow_execution_failed(self, event: HistoryEvent) -> None:
        failure = event.workflow_execution_failed_event_attributes.failure
        cause = await self._payloads.failure(event.event_id, failure)
        status = failure.application_failure_info.type or "failed"
        self._end(status, event, outcome_of(cause), failure.message)

    async def _on_workflow_execution_canceled(self, event: HistoryEvent) -> None:
        self._end("cancelled", event, self._memo)

    async def _on_workflow_execution_terminated(self, event: HistoryEvent) -> None:
        self._end("terminated", event, None, event.workflow_execution_terminated_event_attributes.reason)

    async def _on_workflow_execution_timed_out(self, event: HistoryEvent) -> None:
        self._end("timed out", event, None)

    async def _on_workflow_execution_continued_as_new(self, event: HistoryEvent) -> None:
        self._end("continued", event, None)
        self._note_related_runs(event.workflow_execution_continued_as_new_event_attributes.new_execution_run_id)
        for timer in self.history.timers:
            timer.ended = timer.ended or self._event(event.event_id)  # a timer ends with its run

    def _end(self, status: str, event: HistoryEvent, outcome: Outcome | None, reason: str = "") -> None:
        self._taken(event)
        self.history.end = End(status, self._event(event.event_id), _when(event), outcome, reason)

    def _taken(self, event: HistoryEvent) -> None:
        """If a workflow task waited for a worker, record in `gaps` that the wait ended at `event`."""
        if self.history.due is not None:
            self.history.gaps.append((self.history.due, _when(event)))
        self.history.due = None

    async def _on_workflow_task_scheduled(self, event: HistoryEvent) -> None:
        self.history.waits_for_worker = self._event(event.event_id)
        self.history.due = self.history.due or _when(event)  # a repetition does not begin the gap anew

    async def _on_workflow_task_started(self, event: HistoryEvent) -> None:
        self.history.waits_for_worker, self.history.began = None, True
        self._taken(event)

    async def _on_workflow_task_completed(self, event: HistoryEvent) -> None:
        self._streak.clear()
        self.history.failing, self.history.decided = None, True

    async def _on_workflow_task_failed(self, event: HistoryEvent) -> None:
        of = event.workflow_task_failed_event_attributes
        if of.cause == RESET:  # the server writes this event into the new run; no worker failed
            self._note_related_runs(of.base_run_id, of.new_run_id)
            self.history.resets.append(Reset(self._event(event.event_id), _when(event), of.failure.message))
            self._streak.clear()
            self.history.failing = None
        elif workflow_task.is_failure(event):
            self._streak.insert(0, event)
            about = self._streak, self._converter, self.history.task_id, self._queue
            self.history.failing = await workflow_task.of_streak(*about, attempt=1)

    async def _on_activity_task_scheduled(self, event: HistoryEvent) -> None:
        of = event.activity_task_scheduled_event_attributes
        task = of.workflow_task_completed_event_id
        call = Call(of.activity_id, of.activity_type.name, _when(event), self._event(event.event_id), task)
        call.allowed = of.retry_policy.maximum_attempts
        if call.kind in CONVERSING:
            call.situation = await self._payloads.model(event.event_id, "input", of.input.payloads, Situation)
        else:
            call.args = await self._payloads.value(event.event_id, "input", of.input.payloads)
        self._open[call.scheduled] = call
        self._forget_local(call)
        self.history.calls.append(call)

    def _forget_local(self, call: Call) -> None:
        """Forget the failed local activity of a tool that `call` repeats: both are one execution of the step's call."""
        before = next((other for other in reversed(self.history.calls) if other.id == call.id), None)
        if before and before.is_local and before.task == call.task and not before.is_own:
            self.history.calls.remove(before)

    async def _on_activity_task_started(self, event: HistoryEvent) -> None:
        of = event.activity_task_started_event_attributes
        call = self._open[self._event(of.scheduled_event_id)]
        call.started, call.started_at, call.attempt = self._event(event.event_id), _when(event), of.attempt
        if of.HasField("last_failure"):
            call.last = await self._failing(call, of.last_failure, of.attempt - 1, event.event_id)

    async def _on_activity_task_completed(self, event: HistoryEvent) -> None:
        of = event.activity_task_completed_event_attributes
        call = self._close(of.scheduled_event_id, event, CallEnd.COMPLETED)
        await self._completed(call, event, of.result.payloads)
        self._note_wait(call)

    def _note_wait(self, call: Call) -> None:
        """Record how long a call waited for its first attempt; later attempts wait for their backoff, not for a worker.

        The server writes the event of the last attempt when the call ends, and only the end tells whether an operator
        held the call back.
        """
        if call.attempt == 1 and call.started_at is not None:
            self.history.gaps.append((call.at + timedelta(seconds=call.held), call.started_at))

    async def _on_marker_recorded(self, event: HistoryEvent) -> None:
        local = local_activity(event)
        if local is None:
            return
        at, when = self._event(event.event_id), local.at
        call = Call(local.id, local.kind, when, at, local.task, started=at, started_at=when, attempt=local.attempt)
        call.ended, call.ended_at, call.closed, call.is_local = at, when, CallEnd.COMPLETED, True
        self.history.calls.append(call)
        if local.failure is None:
            await self._completed(call, event, local.result)
        elif local.failure.HasField("canceled_failure_info"):
            call.closed = CallEnd.CANCELLED
        else:
            call.closed = CallEnd.FAILED
            call.failing = await self._failing(call, local.failure, local.attempt, event.event_id)

    async def _completed(self, call: Call, event: HistoryEvent, payloads: Sequence[Payload]) -> None:
        back = await self._payloads.model(event.event_id, "result", payloads, RESULTS.get(call.kind, StepReturn))
        if isinstance(back, Proposed):
            call.proposed, call.held = back, back.held
            call.earlier = parse_faults(back.earlier) or call.earlier
            call.attempt = number_of(call.attempt, call.earlier) if call.started else call.attempt
        elif isinstance(back, Catalogue):
            self.history.catalogue = back
            if back.opening is not None:  # the first turn of the planner, in the same activity
                turn = replace(call, id=ids.of_request(1), kind=retries.PLAN.kind, args=None)
                turn.proposed = self._with_hand_written_plan(back.opening)
                self.history.calls.append(turn)
        elif isinstance(back, StepReturn):
            call.returned, call.earlier = back, parse_faults(back.earlier)
            call.result, call.replayed = back.result, back.replayed
            call.attempt, call.held = max(call.attempt, back.attempt), back.held

    def _with_hand_written_plan(self, opening: Proposed) -> Proposed:
        plan = self.history.task.plan if self.history.task else None
        if plan is None or opening.rejected:
            return opening
        return opening.model_copy(update={"proposal": NewSteps(steps=plan)})

    async def _on_activity_task_failed(self, event: HistoryEvent) -> None:
        of = event.activity_task_failed_event_attributes
        await self._failed(self._close(of.scheduled_event_id, event, CallEnd.FAILED), of.failure, event)

    async def _failed(self, call: Call, failure: Failure, event: HistoryEvent) -> None:
        call.failing = await self._failing(call, failure, call.attempt, event.event_id)
        if fault := call.failing.fault:
            call.held = fault.held
            # After `temporal activity reset`, the server counts anew.
            call.attempt = max(call.attempt, fault.attempt) if call.started else call.attempt
        self._note_wait(call)

    async def _on_activity_task_timed_out(self, event: HistoryEvent) -> None:
        of = event.activity_task_timed_out_event_attributes
        call = self._close(of.scheduled_event_id, event, CallEnd.FAILED)
        call.retry_state = RetryState(of.retry_state) if of.retry_state else None
        await self._failed(call, of.failure, event)

    async def _on_activity_task_canceled(self, event: HistoryEvent) -> None:
        of = event.activity_task_canceled_event_attributes
        self._note_wait(self._close(of.scheduled_event_id, event, CallEnd.CANCELLED))

    def _close(self, scheduled: int, event: HistoryEvent, how: CallEnd) -> Call:
        call = self._open[self._event(scheduled)]
        call.ended, call.ended_at, call.closed = self._event(event.event_id), _when(event), how
        return call

    async def _on_timer_started(self, event: HistoryEvent) -> None:
        seconds = event.timer_started_event_attributes.start_to_fire_timeout.ToTimedelta().total_seconds()
        summary = await self._payloads.value(event.event_id, "summary", [event.user_metadata.summary])
        name, number = ids.without_entry(str(summary or ""))
        timer = Timer(self._event(event.event_id), seconds, name, at=_when(event), number=number)
        self._timers[timer.started] = timer
        self.history.timers.append(timer)

    async def _on_timer_fired(self, event: HistoryEvent) -> None:
        timer = self._timers[self._event(event.timer_fired_event_attributes.started_event_id)]
        timer.ended, timer.fired = self._event(event.event_id), True

    async def _on_timer_canceled(self, event: HistoryEvent) -> None:
        timer = self._timers[self._event(event.timer_canceled_event_attributes.started_event_id)]
        timer.ended = self._event(event.event_id)

    async def _failing(self, call: Call, failure: Failure, attempt: int, event: int) -> AttemptFailure:
        """The failure of an attempt as the workflow saw it; writes the faults of earlier attempts to `call.earlier`."""
        cause = await self._payloads.failure(event, failure)
        call.earlier = earlier(call, cause) or call.earlier
        # Without the details, the fields that a codec never encodes still tell something.
        if cause is None and failure.HasField("timeout_failure_info"):
            is_lost = failure.timeout_failure_info.timeout_type == TimeoutType.TIMEOUT_TYPE_HEARTBEAT
            code = Code.WORKER_LOST if is_lost else Code.TIMEOUT
            return AttemptFailure.of(Fault.of(code, failure.message, source=call.kind, attempt=attempt))
        if cause is None:
            type = failure.application_failure_info.type
            return AttemptFailure(failure.message, Quadrant(type) if type in set(Quadrant) else None)
        spec = self.history.spec(call.kind) or ToolSpec(kind=call.kind, effect=Effect.READ)
        error = _activity_error(call, cause)
        return AttemptFailure.of(expired(error, spec) or from_activity_error(error, spec, attempt))


def _when(event: HistoryEvent) -> datetime:
    return event.event_time.ToDatetime(UTC)
