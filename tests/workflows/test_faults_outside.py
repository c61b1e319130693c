"""Whatever ends an activity becomes a Fault, also where our boundary had no say."""

import pytest
from pydantic import JsonValue
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    CancelledError,
    RetryState,
    ServerError,
    TerminatedError,
    TimeoutType,
    WorkflowAlreadyStartedError,
)
from temporalio.exceptions import TimeoutError as TemporalTimeout

from workflows.catalogue import Effect, ToolSpec
from workflows.faults import QUADRANT, Applied, Code, Fault, Quadrant, earlier_faults, from_activity_error

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


@pytest.mark.parametrize("code", Code)
def test_a_fault_that_our_boundary_sent_comes_back_as_it_was(code: Code) -> None:
    """Data crosses the border, and nothing is lost on the way."""
    sent = Fault.of(code, "Say why.", observed={"free": [1]}, retry_after=3, effect=Applied.APPLIED, attempt=2)
    wire = ApplicationError("Say why.", sent.model_dump(mode="json"), [], type=sent.quadrant)

    assert from_activity_error(ended(wire), READ, GIVEN) == sent


GARBAGE: list[JsonValue] = [None, 7, "text", [], {}, {"code": "timeout"}, {"quadrant": "x", "code": "y", "reason": "z"}]

OUTSIDE = [
    pytest.param(ApplicationError("?", type="NotFoundError"), Code.MISSING_TOOL, id="unknown activity"),
    pytest.param(ApplicationError("Failed decoding", type="RuntimeError"), Code.UNDECODABLE, id="cannot decode"),
    pytest.param(ApplicationError("?", type="KeyError"), Code.BUG, id="foreign type"),
    pytest.param(ApplicationError("?"), Code.BUG, id="no type"),
    pytest.param(ApplicationError("?", {"code": "timeout"}, type="Mine"), Code.BUG, id="foreign type with details"),
    *[pytest.param(ApplicationError("?", type=cell), Code.BUG, id=f"{cell}, no details") for cell in Quadrant],
    *[
        pytest.param(
            ApplicationError("?", garbage, type=Quadrant.TRANSIENT_SEMANTIC), Code.UNDECODABLE, id=repr(garbage)
        )
        for garbage in GARBAGE
    ],
    pytest.param(timeout(TimeoutType.START_TO_CLOSE), Code.TIMEOUT, id="start to close"),
    pytest.param(timeout(TimeoutType.SCHEDULE_TO_START), Code.TIMEOUT, id="schedule to start"),
    pytest.param(timeout(TimeoutType.SCHEDULE_TO_CLOSE), Code.TIMEOUT, id="schedule to close"),
    pytest.param(timeout(TimeoutType.HEARTBEAT), Code.WORKER_LOST, id="heartbeat"),
    pytest.param(timeout(None), Code.TIMEOUT, id="timeout without a type"),
    pytest.param(ServerError("blob too large"), Code.TOO_LARGE, id="server error"),
    pytest.param(TerminatedError("by hand"), Code.BUG, id="terminated"),
    pytest.param(CancelledError("by hand"), Code.BUG, id="cancelled"),
    pytest.param(WorkflowAlreadyStartedError("id", "type"), Code.BUG, id="another Temporal error"),
    pytest.param(ValueError("?"), Code.BUG, id="no Temporal error at all"),
    pytest.param(None, Code.BUG, id="no cause"),
]


@pytest.mark.parametrize("retry_state", [*RetryState, None])
@pytest.mark.parametrize(("cause", "code"), OUTSIDE)
def test_whatever_ends_an_activity_has_a_code(
    cause: BaseException | None, code: Code, retry_state: RetryState | None
) -> None:
    """The table is total; the reason names the kind and copies nothing foreign."""
    found = from_activity_error(ended(cause, retry_state), READ, GIVEN)

    assert (found.code, found.quadrant, found.source) == (code, QUADRANT[code], "look")
    assert "look" in found.reason


def test_every_type_of_timeout_is_in_the_list() -> None:
    """A timeout type that the SDK adds has to be thought of here."""
    listed = {case.values[0].type for case in OUTSIDE if isinstance(case.values[0], TemporalTimeout)}

    assert listed == {*TimeoutType, None}


@pytest.mark.parametrize("effect", [effect for effect in Effect if effect is not Effect.READ])
@pytest.mark.parametrize(("cause", "code"), OUTSIDE)
def test_the_effect_is_unknown_where_the_boundary_could_not_tell(
    cause: BaseException | None, code: Code, effect: Effect
) -> None:
    """The call may have happened before its answer was lost; no worker took a call that never started."""
    spec = READ.model_copy(update={"effect": effect})
    never_started = code is Code.MISSING_TOOL or getattr(cause, "type", None) == TimeoutType.SCHEDULE_TO_START
    expected = Applied.NONE if never_started else Applied.UNKNOWN

    assert from_activity_error(ended(cause), spec, GIVEN).effect is expected


@pytest.mark.parametrize(("cause", "code"), OUTSIDE)
def test_a_read_leaves_nothing_in_doubt(cause: BaseException | None, code: Code) -> None:
    """Nothing was to be changed, so nothing can have been."""
    found = from_activity_error(ended(cause), READ, GIVEN)

    assert (found.code, found.effect) == (code, Applied.NONE)


@pytest.mark.parametrize(
    ("cause", "retry_state", "taken"),
    [
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
    ],
)
def test_the_attempts_are_counted_where_the_server_does_not_tell_them(
    cause: BaseException | None, retry_state: RetryState | None, taken: int
) -> None:
    """All that were allowed were taken, unless the server refused to retry: then there was one."""
    assert from_activity_error(ended(cause, retry_state), READ, GIVEN).taken == taken


@pytest.mark.parametrize("kind", [TimeoutType.HEARTBEAT, TimeoutType.START_TO_CLOSE])
def test_an_attempt_that_went_with_its_worker_is_none_of_the_tool(kind: TimeoutType) -> None:
    """The attempts before it count; they are in its last heartbeat."""
    before = [Fault.of(Code.TIMEOUT, "Slow.", attempt=1, waited=0.2), Fault.of(Code.BUSY, "Busy.", attempt=2)]
    cause = TemporalTimeout("?", type=kind, last_heartbeat_details=[one.model_dump(mode="json") for one in before])
    error = ended(cause, REFUSED)
    found = from_activity_error(error, ToolSpec(kind="pay", effect=Effect.KEYED), GIVEN)

    assert (found.uncounted, found.attempt, found.taken, found.effect) == (True, 3, 2, Applied.UNKNOWN)
    assert earlier_faults(error) == tuple(before)


def test_the_faults_of_the_attempts_before_come_along() -> None:
    """The second detail of our errors is the list of the earlier, transient faults."""
    faults = [Fault.of(Code.TIMEOUT, "Slow.", attempt=1, waited=0.2), Fault.of(Code.BUSY, "Busy.", attempt=2)]
    wire = ApplicationError("?", {}, [one.model_dump(mode="json") for one in faults], type=Quadrant.TRANSIENT_SEMANTIC)

    assert earlier_faults(ended(wire)) == tuple(faults)


@pytest.mark.parametrize(
    "cause",
    [
        None,
        timeout(TimeoutType.HEARTBEAT),
        ApplicationError("?"),
        ApplicationError("?", {}),
        ApplicationError("?", {}, "text"),
        ApplicationError("?", {}, ["half done"]),
        ApplicationError("?", {}, [{"code": "a code of tomorrow"}]),
    ],
)
def test_earlier_faults_that_cannot_be_read_are_left_out(cause: BaseException | None) -> None:
    """They are for people to read: a tool's own heartbeat or a newer worker's code must not stop the task."""
    assert earlier_faults(ended(cause)) == ()


def test_arguments_that_could_not_be_fetched_cost_nothing() -> None:
    """The SDK wraps what the storage of large arguments said: the tool was not called, and the store is waited for."""
    away = Fault.of(Code.STORE_UNAVAILABLE, "The store is away.")
    wrapped = ApplicationError("Failed decoding arguments")
    wrapped.__cause__ = ApplicationError(away.reason, away.model_dump(mode="json"), type=away.quadrant.value)
    found = from_activity_error(ended(wrapped), ToolSpec(kind="k", effect=Effect.UNKEYED), GIVEN)

    assert (found.code, found.effect, found.taken) == (Code.STORE_UNAVAILABLE, Applied.NONE, 0)
