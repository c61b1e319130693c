"""Reads Temporal's history events, one after the other, into a History.

Runs when a history has been fetched from the server, before anything is said about the task.
"""

from collections.abc import AsyncIterable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TypeVar

from google.protobuf.message import Message
from pydantic import BaseModel, JsonValue, ValidationError
from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import TimeoutType
from temporalio.api.failure.v1 import Failure
from temporalio.api.history import v1 as api
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.update.v1 import Request
from temporalio.converter import DataConverter
from temporalio.exceptions import ActivityError, TimeoutError as TemporalTimeout

from client import workflow_task
from client.history.account import replayed_progress
from client.history.decoder import RUN_ENDS, CallEvent, Decoder, is_encrypted, is_in_external_storage
from client.history.records import (
    CONVERSING,
    RESULTS,
    AcceptedAnswer,
    AttemptFailure,
    Call,
    CallEnd,
    Event,
    History,
    Pending,
    Reset,
    RunEnd,
    Timer,
    UnreadablePayload,
)
from client.tasks import TASK_TYPE, outcome_of
from workflows import ids
from workflows.account.outcome import Outcome
from workflows.account.progress import Progress
from workflows.account.task import Task
from workflows.agent import OUTCOME_MEMO, AgentWorkflow, EarlierEffects
from workflows.faults.fault import Code, Fault, Quadrant, number_of, parse_faults
from workflows.faults.outside import earlier_faults, expired, from_activity_error
from workflows.people.requests import CHOICES, Choice, Given, Resolution
from workflows.people.updates import RESOLVE
from workflows.planning.situation import Situation
from workflows.plans import own_activities
from workflows.plans.catalogue import Catalogue, Effect, ToolSpec
from workflows.plans.proposal import NewSteps, Proposed, StepReturn

T = TypeVar("T", bound=BaseModel)


class Payloads:
    """Decodes payloads with the client's converter, and notes each payload that cannot be read."""

    def __init__(self, converter: DataConverter) -> None:
        self._converter = converter
        self.event = Event(1, 0)
        """The event whose payloads are being read."""
        self.unreadable = list[UnreadablePayload]()

    async def value(self, what: str, payloads: Sequence[Payload]) -> JsonValue:
        """The first payload as JSON; None without one, or if it cannot be read. `what` is its place in the event."""
        if not payloads:
            return None
        try:
            value: JsonValue = (await self._converter.decode(payloads[:1]))[0]
        except Exception:  # codecs and storage drivers may raise anything; the rest of the history is readable
            self._note(what, _why_unreadable(payloads[0]))
            return None
        return None if isinstance(value, bytes) else value

    async def model(self, what: str, payloads: Sequence[Payload], type: type[T]) -> T | None:
        """The first payload as a `type`; None if it cannot be read or does not validate."""
        noted = len(self.unreadable)
        value = await self.value(what, payloads)
        try:
            return type.model_validate(value)
        except ValidationError:
            if payloads and noted == len(self.unreadable):  # else `value` has noted it already
                self._note(what, "was written by another version")
            return None

    async def failure(self, failure: Failure) -> BaseException | None:
        """The exception that a failure stands for, with its details; None if they cannot be decoded."""
        copy = Failure()
        copy.CopyFrom(failure)  # `decode_failure` changes the failure that it gets
        try:
            return await self._converter.decode_failure(copy)
        except Exception:  # see value()
            details = _details(failure)
            self._note("failure", _why_unreadable(details[0]) if details else "cannot be decoded")
            return None

    def _note(self, what: str, why: str) -> None:
        self.unreadable.append(UnreadablePayload(*self.event, what, why))


def _details(failure: Failure) -> Sequence[Payload]:
    if failure.HasField("encoded_attributes"):
        return [failure.encoded_attributes]
    if failure.HasField("timeout_failure_info"):
        return failure.timeout_failure_info.last_heartbeat_details.payloads
    return failure.application_failure_info.details.payloads


def _why_unreadable(payload: Payload) -> str:
    if is_encrypted(payload):
        return "is encrypted"
    return "is stored elsewhere" if is_in_external_storage(payload) else "cannot be decoded"


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


UNDO_WHEN_CANCELLED = AgentWorkflow.undo_when_cancelled.__name__
KNOW_EARLIER_EFFECTS = AgentWorkflow.know_earlier_effects.__name__
"""The name of the Signal that tells a task of effects of earlier runs."""


async def read_history(
    task_id: str, events: AsyncIterable[HistoryEvent], converter: DataConverter, *, journal: bool = False
) -> History:
    """Read these events into a History, with its `journal` if asked; `converter` decodes their payloads."""
    reading = HistoryBuilder(task_id, converter, journal=journal)
    async for event in events:
        await reading.add(event)
    return await reading.complete()


class HistoryBuilder:
    """Builds a History from events, which must be added in their order.

    With `journal`, each of its runs is replayed for the entries of the task's journal.
    """

    def __init__(self, task_id: str, converter: DataConverter, *, journal: bool = False) -> None:
        self._has_journal = journal
        self._payloads, self._converter, self._decoder = Payloads(converter), converter, Decoder(Call)
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
        """Read the next event; an event of a type that says nothing about a task is skipped."""
        history, found = self.history, self._decoder.read(event)
        history.last = at = self._payloads.event = self._decoder.event
        history.last_at = when = self._decoder.at
        if isinstance(found, api.WorkflowExecutionStartedEventAttributes):
            if self._events and self._has_journal:
                await self._replay()
            self._events.clear()
        self._events.append(event)
        match found:
            case CallEvent():
                await self._add_call_event(*found)
            case api.WorkflowExecutionStartedEventAttributes():
                await self._add_start(found)
            case api.WorkflowExecutionCancelRequestedEventAttributes():
                history.cancels.append(at)
            case api.WorkflowExecutionSignaledEventAttributes():
                await self._add_signal(found.signal_name, found.input.payloads)
            case api.WorkflowExecutionUpdateAdmittedEventAttributes():
                # A reset brings an Update of the earlier run into the new one.
                self._admitted[found.request.meta.update_id] = found.request
            case api.WorkflowExecutionUpdateAcceptedEventAttributes():
                await self._add_answer(found)
            case api.WorkflowPropertiesModifiedEventAttributes(upserted_memo=memo) if OUTCOME_MEMO in memo.fields:
                self._memo = await self._payloads.model("memo", [memo.fields[OUTCOME_MEMO]], Outcome)
            case api.WorkflowTaskScheduledEventAttributes():
                history.waits_for_worker = at
                history.due = history.due or when  # a repetition does not begin the gap anew
            case api.WorkflowTaskStartedEventAttributes():
                history.waits_for_worker, history.began = None, True
                self._end_wait_for_worker()
            case api.WorkflowTaskCompletedEventAttributes():
                self._streak.clear()
                history.failing, history.decided = None, True
            case api.WorkflowTaskFailedEventAttributes():
                await self._add_failed_task(event, found)
            case api.TimerStartedEventAttributes():
                summary = await self._payloads.value("summary", [event.user_metadata.summary])
                name, number = ids.without_entry(str(summary or ""))
                seconds = found.start_to_fire_timeout.ToTimedelta().total_seconds()
                self._timers[at] = timer = Timer(at, seconds, name, at=when, number=number)
                history.timers.append(timer)
            case api.TimerFiredEventAttributes() | api.TimerCanceledEventAttributes():
                timer = self._timers[Event(at.run, found.started_event_id)]
                timer.ended, timer.fired = at, isinstance(found, api.TimerFiredEventAttributes)
            case Message() if status := RUN_ENDS.get(type(found)):
                self._end_wait_for_worker()
                await self._add_end(status, found)

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
        journal = self.history.journal
        progress = await replayed_progress(self.history.task_id, self._events, self._converter)
        if progress is None:
            journal.clear()
        elif self._has_journal:
            journal += [entry for entry in progress.journal if not journal or entry.number > journal[-1].number]
        return progress

    async def pending(self, id: str, attempt: int, failure: Failure | None, *, running: bool) -> None:
        """Record the server's state of the open call `id`: its attempt, and the failure of the attempt before."""
        call = next((call for call in reversed(self.history.calls) if call.id == id and call.closed is None), None)
        if call is not None:
            self._payloads.event = call.scheduled
            last = await self._failing(call, failure, attempt - 1) if failure else None
            self.history.pending[id] = Pending(attempt, last, running)

    def _end_wait_for_worker(self) -> None:
        """If a workflow task waited for a worker, record in `gaps` that the wait ended at the event."""
        if self.history.due is not None:
            self.history.gaps.append((self.history.due, self.history.last_at))
        self.history.due = None

    def _note_related_runs(self, *runs: str) -> None:
        self.history.related.update(run for run in runs if run)

    async def _add_start(self, of: api.WorkflowExecutionStartedEventAttributes) -> None:
        history, self._is_task = self.history, of.workflow_type.name == TASK_TYPE
        self._queue, history.runs = of.task_queue.name, self._decoder.event.run
        self._note_related_runs(of.first_execution_run_id, of.original_execution_run_id, of.continued_execution_run_id)
        history.end = None  # the run before ended by continuing as new
        if history.runs > 1:
            return
        history.started_at, history.first_run = history.last_at, of.first_execution_run_id
        if of.continued_execution_run_id:  # the events of the run with the task are not read, or were deleted
            progress = await self._payloads.model("input", of.input.payloads, Progress)
            history.effect_key = progress.task.effect_key if progress else None
        else:
            history.task = await self._payloads.model("input", of.input.payloads, Task)
            history.effect_key = history.task.effect_key if history.task else None

    async def _add_signal(self, name: str, payloads: Sequence[Payload]) -> None:
        if name == UNDO_WHEN_CANCELLED:
            self.history.undo_asked.append(self._decoder.event)
        elif name == KNOW_EARLIER_EFFECTS:
            known = await self._payloads.model("signal", payloads, EarlierEffects)
            self.history.earlier_effects += known.root if known else []
        elif name == RESOLVE and (resolution := await self._payloads.model("signal", payloads, Resolution)):
            self._note_answer(Choice.RETRY, resolution, resolution.id)

    async def _add_answer(self, of: api.WorkflowExecutionUpdateAcceptedEventAttributes) -> None:
        if of.protocol_instance_id in self._updates:  # an Update that was sent again to a later run changes nothing
            return
        self._updates.add(of.protocol_instance_id)
        sent = (self._admitted.get(of.protocol_instance_id) or of.accepted_request).input
        if sent.name not in set(Choice):
            return
        choice, fields = Choice(sent.name), None
        if any(payload.data not in (b"", b"null") for payload in sent.args.payloads):
            fields = await self._payloads.model("answer", sent.args.payloads, CHOICES[choice].given)
        self._note_answer(choice, fields, of.protocol_instance_id)

    def _note_answer(self, choice: Choice, given: Given | Resolution | None, id: str) -> None:
        self.history.answers.append(AcceptedAnswer(self._decoder.event, self._decoder.at, choice, given, id))

    async def _add_end(self, status: str, of: Message) -> None:
        outcome, reason = None, ""
        match of:
            case api.WorkflowExecutionCompletedEventAttributes():
                outcome = await self._payloads.model("result", of.result.payloads, Outcome)
            case api.WorkflowExecutionFailedEventAttributes():
                outcome, reason = outcome_of(await self._payloads.failure(of.failure)), of.failure.message
                status = of.failure.application_failure_info.type or status
            case api.WorkflowExecutionCanceledEventAttributes():
                outcome = self._memo
            case api.WorkflowExecutionTerminatedEventAttributes():
                reason = of.reason
            case api.WorkflowExecutionContinuedAsNewEventAttributes():
                self._note_related_runs(of.new_execution_run_id)
                for timer in self.history.timers:
                    timer.ended = timer.ended or self._decoder.event  # a timer ends with its run
        self.history.end = RunEnd(status, self._decoder.event, self._decoder.at, outcome, reason)

    async def _add_failed_task(self, event: HistoryEvent, of: api.WorkflowTaskFailedEventAttributes) -> None:
        history = self.history
        if of.cause == workflow_task.RESET:  # the server writes this event into the new run; no worker failed
            self._note_related_runs(of.base_run_id, of.new_run_id)
            history.resets.append(Reset(self._decoder.event, self._decoder.at, of.failure.message))
            self._streak.clear()
            history.failing = None
        elif workflow_task.is_failure(event):
            self._streak.insert(0, event)
            about = self._streak, self._converter, history.task_id, self._queue
            history.failing = await workflow_task.of_streak(*about, attempt=1)

    async def _add_call_event(self, call: Call, payloads: Sequence[Payload], failure: Failure | None) -> None:
        if call.scheduled == self._decoder.event:
            self._forget_local(call)
            self.history.calls.append(call)
        match call.closed:
            case CallEnd.COMPLETED:
                await self._complete_call(call, payloads)
            case CallEnd.FAILED if failure:
                await self._fail_call(call, failure)
            case None if failure:
                call.last = await self._failing(call, failure, call.attempt - 1)
            case None if not call.started and call.kind in CONVERSING:
                call.situation = await self._payloads.model("input", payloads, Situation)
            case None if not call.started:
                call.args = await self._payloads.value("input", payloads)
        if call.closed and call.attempt == 1 and call.started_at and not call.is_local:
            # How long it waited for its first attempt: later attempts wait for their backoff, not for a worker. The
            # server writes the event of the last attempt when the call ends, and only the end tells `held`.
            self.history.gaps.append((call.at + timedelta(seconds=call.held), call.started_at))

    def _forget_local(self, call: Call) -> None:
        """Forget the failed local activity of a tool that `call` repeats: both are one execution of the step's call."""
        before = next((other for other in reversed(self.history.calls) if other.id == call.id), None)
        if before and before.is_local and before.task == call.task and not (before.is_own or call.is_local):
            self.history.calls.remove(before)

    async def _complete_call(self, call: Call, payloads: Sequence[Payload]) -> None:
        back = await self._payloads.model("result", payloads, RESULTS.get(call.kind, StepReturn))
        if isinstance(back, Proposed):
            call.proposed, call.held = back, back.held
            call.earlier = parse_faults(back.earlier) or call.earlier
            call.attempt = number_of(call.attempt, call.earlier) if call.started else call.attempt
        elif isinstance(back, Catalogue):
            self.history.catalogue = back
            if back.opening is not None:  # the first turn of the planner, in the same activity
                turn = replace(call, id=ids.of_request(1), kind=own_activities.PLAN.kind, args=None)
                plan = self.history.task.plan if self.history.task else None
                by_hand = {"proposal": NewSteps(steps=plan)} if plan is not None and not back.opening.rejected else {}
                turn.proposed = back.opening.model_copy(update=by_hand)
                self.history.calls.append(turn)
        elif isinstance(back, StepReturn):
            call.returned, call.earlier = back, parse_faults(back.earlier)
            call.result, call.replayed = back.result, back.replayed
            call.attempt, call.held = max(call.attempt, back.attempt), back.held

    async def _fail_call(self, call: Call, failure: Failure) -> None:
        call.failing = await self._failing(call, failure, call.attempt)
        if (fault := call.failing.fault) and not call.is_local:
            call.held = fault.held
            # After `temporal activity reset`, the server counts anew.
            call.attempt = max(call.attempt, fault.attempt) if call.started else call.attempt

    async def _failing(self, call: Call, failure: Failure, attempt: int) -> AttemptFailure:
        """The failure of an attempt as the workflow saw it; writes the faults of earlier attempts to `call.earlier`."""
        cause = await self._payloads.failure(failure)
        # Without the details, the fields that a codec never encodes still tell something.
        if cause is None and failure.HasField("timeout_failure_info"):
            is_lost = failure.timeout_failure_info.timeout_type == TimeoutType.TIMEOUT_TYPE_HEARTBEAT
            code = Code.WORKER_LOST if is_lost else Code.TIMEOUT
            return AttemptFailure.of(Fault.of(code, failure.message, source=call.kind, attempt=attempt))
        if cause is None:
            type = failure.application_failure_info.type
            return AttemptFailure(failure.message, Quadrant(type) if type in set(Quadrant) else None)
        error = _activity_error(call, cause)
        # An attempt that timed out returned nothing, but its heartbeats carried the earlier faults.
        beats = cause.last_heartbeat_details if isinstance(cause, TemporalTimeout) else None
        call.earlier = (earlier_faults(error) if beats is None else parse_faults(beats)) or call.earlier
        spec = self.history.spec(call.kind) or ToolSpec(kind=call.kind, effect=Effect.READ)
        return AttemptFailure.of(expired(error, spec) or from_activity_error(error, spec, attempt))
