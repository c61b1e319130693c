"""The decoder of Temporal's events, on histories of any workflow."""

from datetime import UTC, datetime

import pytest
from temporalio.api.history.v1 import HistoryEvent

from client.history.decoder import LOCAL_ACTIVITY, CallEvent, Decoder, calls_in
from client.history.records import ActivityExecution, CallEnd, Event
from tests.made_histories import Made, failure, payloads, timeout

DONE = b'{"activity_id": "7", "activity_type": "add", "attempt": 2, "complete_time": {"seconds": 60, "nanos": 5999}}'


def marker(data: bytes, **fields: object) -> list[HistoryEvent]:
    """A history with the marker of a local activity, whose data are these bytes."""
    events = Made().add("MARKER_RECORDED", marker_name=LOCAL_ACTIVITY, **fields).events
    details = events[-1].marker_recorded_event_attributes.details
    details["data"].payloads.add(data=data)
    details["result"].CopyFrom(payloads(3))
    return events


def test_an_execution_is_one_record_that_its_events_fill() -> None:
    """Each event gives what is not kept in the record: the input, the failure before, the last failure."""
    events = Made().call("find", 1, failed=timeout("HEARTBEAT"), attempt=3, last=failure("KeyError")).events
    seen = [(found.call.closed, len(found.payloads), found.failure is not None) for found in calls_in(events)]
    call = list(calls_in(events))[-1].call

    assert seen == [(None, 1, False), (None, 0, True), (CallEnd.FAILED, 0, True)]
    assert (call.events, call.attempt, call.allowed) == ((Event(1, 2), Event(1, 3), Event(1, 4)), 3, 4)
    assert (call.interval, call.coefficient, call.schedule_to_close) == (1.0, 2.0, 60.0)


def test_a_local_activity_has_ended_at_its_only_event() -> None:
    """Its time is that of the workflow's clock, in microseconds; the marker of one that was cancelled has a failure."""
    [(call, result, _)] = calls_in(marker(DONE))
    [(stopped, _, why)] = calls_in(marker(DONE, failure={"message": "stop", "canceled_failure_info": {}}))

    assert (call.id, call.kind, call.attempt, call.closed, call.is_local) == ("7", "add", 2, CallEnd.COMPLETED, True)
    assert call.ended_at == call.at == datetime(1970, 1, 1, 0, 1, 0, 5, tzinfo=UTC)
    assert ([payload.data for payload in result], call.events) == ([b"3"], (Event(1, 2),))
    assert (stopped.closed, why and why.message) == (CallEnd.CANCELLED, "stop")


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"activity_id": 1, "activity_type": 2, "attempt": "x"}'])
def test_a_broken_marker_is_an_event_like_any_other(data: bytes) -> None:
    """In a hostile file it is anything."""
    decoder = Decoder(ActivityExecution)
    found = [decoder.read(event) for event in marker(data)]

    assert all(found) and not any(isinstance(one, CallEvent) for one in found)


def test_a_new_run_ends_no_activity_of_the_run_before() -> None:
    """The ids of events begin anew with each run."""
    before, after = Made().call("find").events, Made().call("find").events
    found = [found.call.scheduled for found in calls_in([*before[:2], after[0], *after[2:], *after[1:2]])]

    assert found == [Event(1, 2), Event(2, 2)]
