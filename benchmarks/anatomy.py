"""What a turn's events are made of: payloads, what Replan adds, and what every workflow has."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from google.protobuf.message import Message
from temporalio.api.history.v1 import HistoryEvent

MODELS = ("plan", "replan", "model")
"""Activities that ask a model, here and in the twin; every other one is a tool."""
COMMON = "what every workflow has"
ELSE = "other events"
PARTS: Mapping[str, str] = {
    "header": "header",
    "user_metadata": "summary",
    "non_retryable_error_types": "errors that are not retried",
}
"""What Replan adds, by the field that holds it."""


def turns(events: Sequence[HistoryEvent]) -> list[Sequence[HistoryEvent]]:
    """The events of each turn: from one question to a model to the next; the last one is the answer's."""
    asked = [number for number, event in enumerate(events) if _kind(event) in MODELS]
    return [events[first:end] for first, end in pairwise([*asked, len(events)])]


def size(events: Sequence[HistoryEvent]) -> int:
    """Bytes."""
    return sum(event.ByteSize() for event in events)


def anatomy(events: Sequence[HistoryEvent]) -> Counter[str]:
    """Bytes of each part."""
    found, whose = Counter[str](), dict[int, str]()
    for event in events:
        named = Counter(dict(_parts(event, whose)))
        found += named
        found[COMMON] += event.ByteSize() - named.total()
    return found


def _parts(event: HistoryEvent, whose: dict[int, str]) -> Iterator[tuple[str, int]]:
    """What is named of an event; `whose` remembers what was scheduled by it."""
    which = event.WhichOneof("attributes") or ""
    held = getattr(event, which)
    if which == "activity_task_scheduled_event_attributes":
        whose[event.event_id] = "model" if _kind(event) in MODELS else "tool"
        yield f"arguments of the {whose[event.event_id]}", _field(held, "input")
        yield PARTS["header"], _field(held, "header")
        yield PARTS["user_metadata"], _field(event, "user_metadata")
        yield PARTS["non_retryable_error_types"], _field(held.retry_policy, "non_retryable_error_types")
    elif which == "activity_task_completed_event_attributes":
        yield f"result of the {whose[held.scheduled_event_id]}", _field(held, "result")
    elif not which.startswith(("activity_task", "workflow_task")):
        yield ELSE, event.ByteSize()


def _kind(event: HistoryEvent) -> str:
    """The activity that an event schedules; empty for every other event."""
    return event.activity_task_scheduled_event_attributes.activity_type.name


def _field(message: Message, name: str) -> int:
    """Bytes that a field takes of its message."""
    without = type(message)()
    without.CopyFrom(message)
    without.ClearField(name)
    return message.ByteSize() - without.ByteSize()
