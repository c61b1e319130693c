"""Faults of what arises outside a tool, where no boundary is: timeouts, lost workers, what the server refuses.

Runs when an activity has failed for good, before it is decided what follows, and when a client reads that failure in a
history.
"""

from typing import assert_never

from pydantic import ValidationError
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    CancelledError,
    RetryState,
    ServerError,
    TerminatedError,
    TimeoutError as TemporalTimeout,
    TimeoutType,
)

from workflows.faults import retries
from workflows.faults.fault import FAILURE_TYPES, Applied, Code, Fault, parse_faults
from workflows.plans.catalogue import Effect, ToolSpec

SILENT = (TimeoutType.HEARTBEAT, TimeoutType.START_TO_CLOSE)
"""Types of timeout which mean that the worker died or froze: a live worker reports the tool's timeout earlier."""


def from_activity_error(error: ActivityError, spec: ToolSpec, attempts: int) -> Fault:
    """The fault in the error of an activity, which must not be a cancellation.

    `attempts` is how many attempts were allowed; this number counts if the server does not report how many were made.
    """
    cause = error.cause
    is_at_once = error.retry_state == RetryState.NON_RETRYABLE_FAILURE
    assumed = 1 if is_at_once else attempts
    match cause:
        case TemporalTimeout() if is_at_once and cause.type in SILENT:
            # An attempt carries the faults of those before it, so their number tells the number of the attempt.
            lost = _from_timeout(cause, spec, attempts=1 + len(earlier_faults(error)))
            return lost.model_copy(update={"uncounted": True})
        case ApplicationError():
            return from_application_error(cause, spec, assumed)
        case TemporalTimeout():
            return _from_timeout(cause, spec, assumed)
        case ServerError():
            reason = f"The server refused what {spec.kind} returned; it is probably too large: return less."
            return _fault_outside(Code.TOO_LARGE, reason, spec, attempts=1)
        case TerminatedError() | CancelledError():
            return _fault_outside(Code.BUG, f"{spec.kind} was terminated from outside without a result.", spec, assumed)
        case _:
            return _fault_outside(Code.BUG, f"{spec.kind} ended without a cause that we know.", spec, assumed)


def expired(error: ActivityError, spec: ToolSpec) -> Fault | None:
    """The fault of an activity whose schedule-to-close timeout passed while no attempt ran; None for any other error.

    What the attempts did is known: the server retries only an attempt that has reported its fault with a heartbeat.
    """
    cause = error.cause
    is_running = bool(error.started_event_id)
    if not isinstance(cause, TemporalTimeout) or cause.type is not TimeoutType.SCHEDULE_TO_CLOSE or is_running:
        return None
    last = parse_faults(cause.last_heartbeat_details)[-1:]
    reason = f"The step's deadline passed before {spec.kind} was called{' again' if last else ''}: an operator had"
    return Fault.of(
        Code.TIMEOUT,
        f"{reason} paused it, or no worker took it.",
        applied=last[0].applied if last else Applied.NONE,
        source=spec.kind,
        attempt=last[0].attempt if last else 0,
    )


def earlier_faults(error: ActivityError) -> tuple[Fault, ...]:
    """The known transient faults of the attempts that were made before the final attempt."""
    cause = error.cause
    if isinstance(cause, TemporalTimeout):  # an attempt hands the faults before it on with each heartbeat
        is_at_once = error.retry_state == RetryState.NON_RETRYABLE_FAILURE
        return tuple(fault for fault in parse_faults(cause.last_heartbeat_details) if is_at_once or fault.still_running)
    if not isinstance(cause, ApplicationError) or len(cause.details) < 2 or not isinstance(cause.details[1], list):
        return ()
    return parse_faults(cause.details[1])


def from_application_error(cause: ApplicationError, spec: ToolSpec, attempts: int) -> Fault:
    """The fault in an error's details; without it, a fault that describes the error, with attempt number `attempts`."""
    inner = cause.cause
    if cause.type is None and isinstance(inner, ApplicationError) and inner.type in FAILURE_TYPES:
        fault = from_application_error(inner, spec, attempts)  # the arguments could not be fetched: nothing was called
        return fault.model_copy(update={"applied": Applied.NONE, "attempt": 0, "source": spec.kind})
    if cause.type == "NotFoundError":
        reason = f"No worker on the queue knows the kind {spec.kind!r}: start one with the tools file that defines it."
        return Fault.of(Code.MISSING_TOOL, reason, source=spec.kind, attempt=1)
    if cause.type not in FAILURE_TYPES or not cause.details:
        reason = f"{spec.kind} failed before our boundary could classify it ({cause.type or 'no type'})."
        # The SDK raises RuntimeError when it cannot decode the arguments of an activity.
        return _fault_outside(Code.UNDECODABLE if cause.type == "RuntimeError" else Code.BUG, reason, spec, attempts)
    try:
        return Fault.model_validate(cause.details[0])
    except ValidationError:
        return _fault_outside(Code.UNDECODABLE, f"{spec.kind} sent a fault that cannot be read.", spec, attempts)


def _from_timeout(cause: TemporalTimeout, spec: ToolSpec, attempts: int) -> Fault:
    match cause.type:
        case TimeoutType.HEARTBEAT:
            reason = f"The worker that ran {spec.kind} went away or froze: no heartbeat came."
            return _fault_outside(Code.WORKER_LOST, reason, spec, attempts)
        case TimeoutType.START_TO_CLOSE:
            seconds = spec.timeout + retries.overtime(spec)
            return _fault_outside(Code.TIMEOUT, f"{spec.kind} gave no answer within {seconds:g} s.", spec, attempts)
        case TimeoutType.SCHEDULE_TO_START:
            reason = f"No worker took {spec.kind} from the queue in time."
            return Fault.of(Code.TIMEOUT, reason, source=spec.kind, attempt=0)
        case TimeoutType.SCHEDULE_TO_CLOSE | None:
            return _fault_outside(
                Code.TIMEOUT, f"{spec.kind} did not finish within the step's deadline.", spec, attempts
            )
        case unreachable:
            assert_never(unreachable)


def _fault_outside(code: Code, reason: str, spec: ToolSpec, attempts: int) -> Fault:
    # What happened outside of the tool proves nothing about the effect of its call.
    applied = Applied.NONE if spec.effect is Effect.READ else Applied.UNKNOWN
    return Fault.of(code, reason, applied=applied, source=spec.kind, attempt=attempts)
