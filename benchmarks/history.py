"""What a task's history says of its speed, by the server's own clock, which is the same for both sides."""

from collections.abc import Iterator, Sequence

from temporalio.api.history.v1 import HistoryEvent


def until_first_step(events: Sequence[HistoryEvent], kind: str) -> float:
    """Seconds from the start of a task to the start of its first step of this kind."""
    scheduled = {event.event_id for event in _scheduled(events, kind)}
    started = next(
        event
        for event in events
        if event.HasField("activity_task_started_event_attributes")
        and event.activity_task_started_event_attributes.scheduled_event_id in scheduled
    )
    return _at(started) - _at(events[0])


def span(events: Sequence[HistoryEvent], kind: str) -> float:
    """Seconds from the scheduling of the first step of this kind to the completion of the last."""
    scheduled = list(_scheduled(events, kind))
    ids = {event.event_id for event in scheduled}
    completed = [
        event
        for event in events
        if event.HasField("activity_task_completed_event_attributes")
        and event.activity_task_completed_event_attributes.scheduled_event_id in ids
    ]
    return _at(completed[-1]) - _at(scheduled[0])


def _scheduled(events: Sequence[HistoryEvent], kind: str) -> Iterator[HistoryEvent]:
    for event in events:
        if event.activity_task_scheduled_event_attributes.activity_type.name == kind:
            yield event


def _at(event: HistoryEvent) -> float:
    return event.event_time.seconds + event.event_time.nanos / 1e9
