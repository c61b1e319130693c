"""Histories of our own making: calls that ended as a test wants it."""

from datetime import UTC, datetime, timedelta

from client.history.records import AttemptFailure, Call, CallEnd, Event, History
from client.history.story import Story
from workflows.catalogue import Catalogue, Effect, ToolSpec
from workflows.faults import Applied, Code, Fault

BEGAN = datetime(2026, 1, 2, tzinfo=UTC)
SPECS = {effect.value: ToolSpec(kind=effect.value, effect=effect) for effect in Effect}


def story(*calls: Call) -> Story:
    """A history of these calls."""
    catalogue = Catalogue(specs=SPECS, planner="offline", patience=60)
    return Story(History("a-task", first_run="run", catalogue=catalogue, calls=list(calls)))


def call(
    number: int, id: str, kind: str, fault: Fault | None = None, closed: CallEnd | None = CallEnd.COMPLETED
) -> Call:
    """The call with this number, which completed or, with a fault, failed."""
    at, end = BEGAN + timedelta(seconds=number), Event(1, 10 * number + 2)
    made = Call(id, kind, at, Event(1, 10 * number), started=Event(1, 10 * number + 1), attempt=1)
    made.closed = CallEnd.FAILED if fault else closed
    made.failing = AttemptFailure.of(fault) if fault else None
    made.ended, made.ended_at = (end, at) if made.closed else (None, None)
    return made


def lost(applied: Applied = Applied.UNKNOWN) -> Fault:
    """A fault with this effect."""
    return Fault.of(Code.UNREACHABLE, "It broke.", applied=applied)


def refused() -> Fault:
    """There is no such thing."""
    return Fault.of(Code.NOT_FOUND, "There is none.")
