"""What the failures of a history stand for: the fault that the workflow saw, or the Outcome of the task."""

from pydantic import ValidationError
from temporalio.api.enums.v1 import TimeoutType
from temporalio.api.failure.v1 import Failure
from temporalio.exceptions import ActivityError, ApplicationError
from temporalio.exceptions import TimeoutError as TemporalTimeout

from console.call import Call, Failing
from console.history import History
from workflows.catalogue import Effect, ToolSpec
from workflows.faults import Code, Fault, Quadrant, earlier_faults, from_activity_error, readable
from workflows.outcome import Outcome


def failing(history: History, call: Call, failure: Failure, cause: BaseException | None, attempt: int) -> Failing:
    """The fault that ended an attempt; `cause` is what `failure` stands for, None where that cannot be read."""
    if cause is None and failure.HasField("timeout_failure_info"):
        return Failing.of(Fault.of(_timed_out(failure), failure.message, source=call.kind, attempt=attempt))
    if cause is None:
        type = failure.application_failure_info.type
        return Failing(failure.message, Quadrant(type) if type in set(Quadrant) else None)
    spec = history.spec(call.kind) or ToolSpec(kind=call.kind, effect=Effect.READ)
    return Failing.of(from_activity_error(_activity_error(call, cause), spec, attempt))


def _timed_out(failure: Failure) -> Code:
    """What a timeout stands for whose details cannot be read."""
    of = failure.timeout_failure_info.timeout_type
    return Code.WORKER_LOST if of == TimeoutType.TIMEOUT_TYPE_HEARTBEAT else Code.TIMEOUT


def earlier(call: Call, cause: BaseException | None) -> tuple[Fault, ...]:
    """The faults of the attempts before, as far as the last one passed them on."""
    if isinstance(cause, TemporalTimeout):
        return readable(cause.last_heartbeat_details)
    return earlier_faults(_activity_error(call, cause)) if cause is not None else ()


def outcome(cause: BaseException | None) -> Outcome | None:
    """The Outcome in the details of the failure that closed a task; None where there is none that can be read."""
    if not isinstance(cause, ApplicationError) or not cause.details:
        return None
    try:
        return Outcome.model_validate(cause.details[0])
    except ValidationError:
        return None


def _activity_error(call: Call, cause: BaseException) -> ActivityError:
    """The exception that the workflow got, as far as it is looked at."""
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
