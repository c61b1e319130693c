"""Whatever ends an activity becomes a Fault, also where our boundary had no say."""

from itertools import product
from typing import Any

import pytest
from pydantic import JsonValue
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    CancelledError,
    RetryState,
    ServerError,
    TerminatedError,
    TimeoutError as TemporalTimeout,
    TimeoutType,
    WorkflowAlreadyStartedError,
)

from workflows.faults.fault import QUADRANT, Applied, Code, Fault, Quadrant
from workflows.faults.outside import earlier_faults, from_activity_error
from workflows.plans.catalogue import Effect, ToolSpec

READ = ToolSpec(kind="look", effect=Effect.READ, timeout=7)
GIVEN = 4
"""Attempts that were allowed."""
EXHAUSTED = RetryState.MAXIMUM_ATTEMPTS_REACHED
REFUSED = RetryState.NON_RETRYABLE_FAILURE


def ended(cause: BaseException | None, retry_state: RetryState | None = EXHAUSTED) -> ActivityError:
    """What a workflow catches when an activity ended by `cause`."""
    error = ActivityError(
        "Activity task failed",
        scheduled_event_id=5,
        started_event_id=6,
        identity="worker",
        activity_type="look",
        activity_id="a",
        retry_state=retry_state,
    )
    error.__cause__ = cause
    return error


def timeout(kind: TimeoutType | None) -> TemporalTimeout:
    """A timeout that the server reports."""
    return TemporalTimeout("activity timeout", type=kind, last_heartbeat_details=[])


def test_a_fault_that_our_boundary_sent_comes_back_as_it_was() -> None:
    """Data crosses the border, and nothing is lost on the way."""
    more: dict[str, Any] = {"observed": {"free": [1]}, "retry_after": 3, "applied": Applied.APPLIED, "attempt": 2}
    sent = [Fault.of(code, "Say why.", **more) for code in Code]
    wire = [ApplicationError("Say why.", one.model_dump(mode="json"), [], type=one.quadrant) for one in sent]

    assert [from_activity_error(ended(one), READ, GIVEN) for one in wire] == sent


GARBAGE: list[JsonValue] = [None, 7, "text", [], {}, {"code": "timeout"}, {"quadrant": "x", "code": "y", "reason": "z"}]

OUTSIDE: list[tuple[str, BaseException | None, Code]] = [
    ("unknown activity", ApplicationError("?", type="NotFoundError"), Code.MISSING_TOOL),
    ("cannot decode", ApplicationError("Failed decoding", type="RuntimeError"), Code.UNDECODABLE),
    ("foreign type", ApplicationError("?", type="KeyError"), Code.BUG),
    ("no type", ApplicationError("?"), Code.BUG),
    ("foreign type with details", ApplicationError("?", {"code": "timeout"}, type="Mine"), Code.BUG),
    *[(f"{cell}, no details", ApplicationError("?", type=cell), Code.BUG) for cell in Quadrant],
    *[
        (f"garbage {garbage!r}", ApplicationError("?", garbage, type=Quadrant.TRANSIENT_SEMANTIC), Code.UNDECODABLE)
        for garbage in GARBAGE
    ],
    ("start to close", timeout(TimeoutType.START_TO_CLOSE), Code.TIMEOUT),
    ("schedule to start", timeout(TimeoutType.SCHEDULE_TO_START), Code.TIMEOUT),
    ("schedule to close", timeout(TimeoutType.SCHEDULE_TO_CLOSE), Code.TIMEOUT),
    ("heartbeat", timeout(TimeoutType.HEARTBEAT), Code.WORKER_LOST),
    ("timeout without a type", timeout(None), Code.TIMEOUT),
    ("server error", ServerError("blob too large"), Code.TOO_LARGE),
    ("terminated", TerminatedError("by hand"), Code.BUG),
    ("cancelled", CancelledError("by hand"), Code.BUG),
    ("another Temporal error", WorkflowAlreadyStartedError("id", "type"), Code.BUG),
    ("no Temporal error at all", ValueError("?"), Code.BUG),
    ("no cause", None, Code.BUG),
]


def test_whatever_ends_an_activity_has_a_code() -> None:
    """The table is total; the reason names the kind and copies nothing foreign."""
    wrong = []
    for (name, cause, code), retry_state in product(OUTSIDE, [*RetryState, None]):
        found = from_activity_error(ended(cause, retry_state), READ, GIVEN)
        expected = (code, QUADRANT[code], "look")
        if (found.code, found.quadrant, found.source) != expected or "look" not in found.reason:
            wrong.append((name, retry_state, found))

    assert wrong == []
    # a timeout type that the SDK adds has to be thought of here
    assert {cause.type for _, cause, _ in OUTSIDE if isinstance(cause, TemporalTimeout)} == {*TimeoutType, None}


def test_the_effect_is_unknown_where_the_boundary_could_not_tell() -> None:
    """The call may have happened before its answer was lost; no worker took a call that never started.

    A read leaves nothing in doubt: nothing was to be changed.
    """
    wrong = []
    for (name, cause, code), effect in product(OUTSIDE, Effect):
        is_none = effect is Effect.READ or code is Code.MISSING_TOOL
        never_started = is_none or getattr(cause, "type", None) == TimeoutType.SCHEDULE_TO_START
        found = from_activity_error(ended(cause), READ.model_copy(update={"effect": effect}), GIVEN)
        if found.applied is not (Applied.NONE if never_started else Applied.UNKNOWN):
            wrong.append((name, effect, found))

    assert wrong == []


TAKEN: list[tuple[BaseException | None, RetryState | None, int]] = [
    (timeout(TimeoutType.START_TO_CLOSE), EXHAUSTED, GIVEN),
    (timeout(TimeoutType.START_TO_CLOSE), REFUSED, 0),
    (timeout(TimeoutType.HEARTBEAT), EXHAUSTED, GIVEN),
    (timeout(TimeoutType.HEARTBEAT), REFUSED, 0),
    (timeout(TimeoutType.SCHEDULE_TO_CLOSE), RetryState.TIMEOUT, GIVEN),
    (timeout(TimeoutType.SCHEDULE_TO_START), RetryState.TIMEOUT, 0),
    (ApplicationError("?", type="RuntimeError"), REFUSED, 1),
    (ApplicationError("?", type="KeyError"), EXHAUSTED, GIVEN),
    (ApplicationError("?", type="NotFoundError"), REFUSED, 0),
    (ServerError("blob too large", non_retryable=True), REFUSED, 1),
    (None, None, GIVEN),
]


def test_the_attempts_are_counted_where_the_server_does_not_tell_them() -> None:
    """All that were allowed were taken, unless the server refused to retry: then there was one."""
    found = [from_activity_error(ended(cause, retry_state), READ, GIVEN).taken for cause, retry_state, _ in TAKEN]

    assert found == [taken for _, _, taken in TAKEN]


@pytest.mark.parametrize("kind", [TimeoutType.HEARTBEAT, TimeoutType.START_TO_CLOSE])
def test_an_attempt_that_went_with_its_worker_is_none_of_the_tool(kind: TimeoutType) -> None:
    """The attempts before it count; they are in its last heartbeat."""
    before = [Fault.of(Code.TIMEOUT, "Slow.", attempt=1, waited=0.2), Fault.of(Code.BUSY, "Busy.", attempt=2)]
    cause = TemporalTimeout("?", type=kind, last_heartbeat_details=[one.model_dump(mode="json") for one in before])
    error = ended(cause, REFUSED)
    found = from_activity_error(error, ToolSpec(kind="pay", effect=Effect.KEYED), GIVEN)

    assert (found.uncounted, found.attempt, found.taken, found.applied) == (True, 3, 2, Applied.UNKNOWN)
    assert earlier_faults(error) == tuple(before)


def test_the_faults_of_the_attempts_before_come_along() -> None:
    """The second detail of our errors is their list. It is for people: what cannot be read must not stop the task."""
    faults = [Fault.of(Code.TIMEOUT, "Slow.", attempt=1, waited=0.2), Fault.of(Code.BUSY, "Busy.", attempt=2)]
    wire = ApplicationError("?", {}, [one.model_dump(mode="json") for one in faults], type=Quadrant.TRANSIENT_SEMANTIC)
    others: list[Any] = ["text", ["half done"], [{"code": "a code of tomorrow"}]]
    unreadable = [None, timeout(TimeoutType.HEARTBEAT), ApplicationError("?"), ApplicationError("?", {})]
    unreadable += [ApplicationError("?", {}, other) for other in others]

    assert earlier_faults(ended(wire)) == tuple(faults)
    assert [earlier_faults(ended(cause)) for cause in unreadable] == [()] * 7


def test_arguments_that_could_not_be_fetched_cost_nothing() -> None:
    """The SDK wraps what the storage of large arguments said: the tool was not called, and the store is waited for."""
    away = Fault.of(Code.STORE_UNAVAILABLE, "The store is away.")
    wrapped = ApplicationError("Failed decoding arguments")
    wrapped.__cause__ = ApplicationError(away.reason, away.model_dump(mode="json"), type=away.quadrant.value)
    found = from_activity_error(ended(wrapped), ToolSpec(kind="k", effect=Effect.UNKEYED), GIVEN)

    assert (found.code, found.applied, found.taken) == (Code.STORE_UNAVAILABLE, Applied.NONE, 0)
