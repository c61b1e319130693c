"""The calls that a task made, as its history tells them: which, when, and whether each may have changed the world."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType
from temporalio.api.failure.v1 import Failure
from temporalio.api.history.v1 import HistoryEvent
from temporalio.converter import DataConverter
from temporalio.exceptions import ActivityError, RetryState

from workflows import routing
from workflows.catalogue import Catalogue, Effect, ToolSpec
from workflows.faults import Applied, earlier_faults, from_activity_error
from workflows.plan import NewSteps, Proposed

T = TypeVar("T")

UNREADABLE = (ValueError, LookupError, RuntimeError)
"""What decoding raises for payloads that a codec which is not here has written, or another client."""

SINGLE = (Effect.KEYED, Effect.TRANSACTIONAL, Effect.UNKEYED)
"""Effects of which a second call with the same key makes no second one."""
OWN = {spec.kind: spec for spec in routing.INTERNAL}


class Change(StrEnum):
    """What a call did to the world, in the words of a sentence."""

    NONE = "has changed nothing"
    DONE = "has changed the world"
    RUNNING = "runs and may change the world"
    UNKNOWN = "may have changed the world"


@dataclass(frozen=True)
class Call:
    """One scheduling of an activity; `closed` is the number of the event that ended it, None while it runs."""

    id: str
    kind: str
    event: int
    task: int
    """The event of the workflow task that scheduled it."""
    closed: int | None
    change: Change
    is_single: bool = False
    """Whether a second call with its key changes nothing: a ledger or the service itself knows the first."""


@dataclass(frozen=True)
class Calls:
    """All calls of one run, in the order in which they were scheduled, and the ids of all steps ever planned."""

    all: Sequence[Call]
    planned: Sequence[str]

    def first(self, id: str) -> Call | None:
        """The first scheduling of a step."""
        return next((call for call in self.all if call.id == id), None)

    def undone_by(self, call: Call) -> list[Call]:
        """What going back to before `call` would do again although it is, or may be, done.

        A call that was scheduled before and ended after that point is called again as well. What a key protects is
        called again and does nothing: it returns what it came to, or says that it was undone.
        """
        return [
            other
            for other in self.all
            if other.change is not Change.NONE
            and (other.closed is None or (other.closed > call.task and not other.is_single))
        ]


async def read_calls(events: Sequence[HistoryEvent], converter: DataConverter) -> Calls:
    """Read the calls of a run from its events."""
    ends = {_scheduled_by(event): event for event in events if _scheduled_by(event)}
    scheduled = [event for event in events if event.HasField("activity_task_scheduled_event_attributes")]
    specs, planned = dict(OWN), dict[str, None]()
    calls = list[Call]()
    for event in scheduled:
        given, end = event.activity_task_scheduled_event_attributes, ends.get(event.event_id)
        kind = given.activity_type.name
        returned = end.activity_task_completed_event_attributes.result.payloads if end else ()
        if kind == routing.CATALOGUE.kind and (catalogue := await _decoded(returned, Catalogue, converter)):
            specs |= catalogue.specs
        if kind in (routing.PLAN.kind, routing.REPLAN.kind):
            proposed = await _decoded(returned, Proposed, converter)
            if proposed and isinstance(proposed.proposal, NewSteps):
                planned |= dict.fromkeys(step.id for step in proposed.proposal.steps)
        calls.append(
            Call(
                id=given.activity_id,
                kind=kind,
                event=event.event_id,
                task=given.workflow_task_completed_event_id,
                closed=end.event_id if end else None,
                change=await _change(specs.get(kind), event, end, converter),
                is_single=kind in specs and specs[kind].effect in SINGLE,
            )
        )
    return Calls(calls, tuple(planned))


def _scheduled_by(event: HistoryEvent) -> int:
    """The event that scheduled the activity which this event ends; 0 for all other events."""
    name = event.WhichOneof("attributes") or ""
    if event.event_type not in (
        EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED,
        EventType.EVENT_TYPE_ACTIVITY_TASK_FAILED,
        EventType.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT,
        EventType.EVENT_TYPE_ACTIVITY_TASK_CANCELED,
    ):
        return 0
    return int(getattr(event, name).scheduled_event_id)


async def _change(
    spec: ToolSpec | None, event: HistoryEvent, end: HistoryEvent | None, converter: DataConverter
) -> Change:
    if spec is not None and spec.effect is Effect.READ:
        return Change.NONE
    if end is None:
        return Change.RUNNING
    match end.event_type:
        case EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED:
            return Change.DONE
        case EventType.EVENT_TYPE_ACTIVITY_TASK_CANCELED:
            started = end.activity_task_canceled_event_attributes.started_event_id
            return Change.UNKNOWN if started else Change.NONE
        case EventType.EVENT_TYPE_ACTIVITY_TASK_FAILED:
            failed = end.activity_task_failed_event_attributes
            return await _after_failure(spec, failed.failure, failed.retry_state, event, converter)
        case _:
            timed_out = end.activity_task_timed_out_event_attributes
            return await _after_failure(spec, timed_out.failure, timed_out.retry_state, event, converter)


async def _after_failure(
    spec: ToolSpec | None, failure: Failure, retry_state: int, event: HistoryEvent, converter: DataConverter
) -> Change:
    """What the faults of all attempts say, by the same table that the workflow decides with."""
    given = event.activity_task_scheduled_event_attributes
    if spec is None:
        return Change.UNKNOWN
    error = ActivityError(
        failure.message,
        scheduled_event_id=event.event_id,
        started_event_id=0,
        identity="",
        activity_type=given.activity_type.name,
        activity_id=given.activity_id,
        retry_state=RetryState(retry_state) if retry_state else None,
    )
    try:
        error.__cause__ = await converter.decode_failure(failure)
    except UNREADABLE:  # what a codec that is not here has written
        return Change.UNKNOWN
    faults = [*earlier_faults(error), from_activity_error(error, spec, 1)]
    return Change.NONE if all(fault.applied is Applied.NONE for fault in faults) else Change.UNKNOWN


async def _decoded(payloads: Sequence[Payload], to: type[T], converter: DataConverter) -> T | None:
    """What an activity returned; None when it did not, or when a codec that is not here has written it."""
    if not payloads:
        return None
    try:
        decoded: T = (await converter.decode(payloads[:1], [to]))[0]
    except UNREADABLE:
        return None
    return decoded
