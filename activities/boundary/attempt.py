"""One attempt of one activity: it sends heartbeats, writes one log line, and turns every exception into a Fault.

Runs around each attempt of an activity, other than a notification, from its start to the report of its end.
"""

import asyncio
import contextlib
import logging
import time
import traceback
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

import structlog
from pydantic import JsonValue
from pydantic_core import PydanticSerializationError, from_json, to_json
from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from activities import counting, tracing
from activities.borders import judge
from activities.borders.proof import proves_no_effect
from activities.borders.table import Verdict, attribute, class_name, is_pythons_own, traceback_of
from activities.boundary.interceptor import CALL, JITTER, LOGS_VALUES
from activities.errors import ToolError
from activities.log_redaction import MAX_VALUES, outside_libraries, raised_at, scrubbed
from activities.progress import CallProgress, start_progress
from activities.providers.metering import Meter, start_meter, total
from activities.scrubbing import text_of
from activities.sends import Sends
from activities.toolbox.declare.kind import Kind
from workflows.account.metrics import ATTEMPT_DURATION, Sample
from workflows.calls.header import CallHeader
from workflows.faults import retries
from workflows.faults.fault import (
    MAX_TEXT,
    MAX_WORDS,
    Applied,
    Code,
    Fault,
    Held,
    Quadrant,
    ReplyProgress,
    applied_by_call,
    number_of,
    parse_faults,
    parse_held,
)
from workflows.plans import own_activities
from workflows.plans.catalogue import SAFE, Effect, ToolSpec

HEARTBEAT_EVERY = timedelta(seconds=5) / 3
"""The time between two heartbeats of an attempt, independent of the heartbeat timeout: a cancel comes with their
answers."""

log = structlog.get_logger("replan.step")


class Settle(Protocol):
    """Records how an attempt ended: a fault, a result (`is_done`), or neither after a cancel; returns the fault."""

    async def __call__(self, fault: Fault | None, *, is_done: bool = False) -> Fault | None: ...


class FaultRaised(Exception):
    """Carries a fault that Replan found itself, without an exception of the tool."""

    def __init__(self, fault: Fault, *, is_certain: bool = False) -> None:
        """`is_certain` says that the ledger proves the rejection, whatever earlier attempts of the call did.

        Any other rejection, such as "exists already", may be the consequence of an earlier attempt that took effect.
        """
        super().__init__(fault.reason)
        self.fault = fault
        self.is_certain = is_certain


@dataclass
class CallAttempt:
    """The state of one attempt of one call."""

    # Set when the attempt begins
    spec: ToolSpec
    call: CallHeader
    number: int
    """The number of the attempt within its activity execution, from 1; a reset by an operator does not restart it."""
    earlier: list[dict[str, Any]]
    """The faults of earlier attempts, as JSON; an attempt that ended without reporting (crash or timeout) has none."""
    held: float = 0.0
    """Seconds that an operator held this attempt and those before it back, added up."""
    kind: Kind | None = None
    """The kind of the tool, with what it declares about exceptions and requests; None for Replan's own activities."""
    meter: Meter = field(default_factory=Meter)
    """The model calls of this attempt, with their tokens and cost."""
    progress: CallProgress = field(default_factory=CallProgress)
    """The progress of the call, as a server reports it."""

    # Set as soon as it is known, for the log line
    shape: JsonValue = None
    """The type and size of each argument, for the log."""
    more: dict[str, Any] = field(default_factory=dict)
    """Further fields of the attempt's log line."""

    # Set before the tool is called
    settle: Settle | None = None
    """Records how the attempt ended, before the attempt reports its end."""
    time: asyncio.Timeout = field(default_factory=lambda: asyncio.timeout(None))
    """The timer that ends the attempt at its timeout."""
    called: bool = False
    """Whether the tool was called."""

    # Set by the call of the tool
    reached: bool = False
    """Whether the tool's function began to run, for which a plain function needs a thread; or a fault was injected."""
    sends: Sends = field(default_factory=Sends)
    """What the tool's function has sent."""
    raised: BaseException | None = None
    """What the tool's function raised before the attempt's time was over."""
    returned: bool = False
    """Whether the tool returned a result, valid or not."""
    ended: bool = False
    """Whether the tool's function returned. A transaction that it took may still have to commit."""

    # Set when the effect is recorded
    committing: bool = False
    """Whether the effect's transaction may have been committed: a failure then leaves the outcome unknown."""
    replayed: bool = False
    """Whether the result was recorded by an earlier attempt, and this attempt did not call the tool."""

    async def end(self, fault: Fault | None, *, is_done: bool = False) -> Fault | None:
        """Record how the attempt ended (`is_done`: with a result); return the fault, to which `settle` may add data."""
        return await self.settle(fault, is_done=is_done) if self.settle else fault

    def show(self, **values: Any) -> None:
        """Add the `repr` of values, cut and without secrets, to the attempt's log line, if this worker logs values."""
        if LOGS_VALUES.get():
            self.more |= {name: text_of(value, repr, MAX_VALUES) for name, value in values.items()}

    def judge(self, error: BaseException) -> Verdict:
        """The verdict on an exception of this attempt; the tool's `raises=` counts only if its function raised it."""
        is_own = self.called and not self.ended and (error is self.raised or not self.time.expired())
        return judge(error, self.kind.raises if self.kind and is_own else None)

    def applied(self, fault: Fault, error: BaseException) -> Applied:
        """Whether this attempt, which ended with `error`, applied its effect; earlier attempts do not count."""
        match self.spec.effect:
            case Effect.READ:
                return Applied.NONE
            case Effect.TRANSACTIONAL:
                return Applied.UNKNOWN if self.committing else Applied.NONE
            case _ if self.returned:
                return Applied.APPLIED
            # A rejection changes nothing.
            case Effect.IDEMPOTENT if fault.quadrant is Quadrant.PERSISTENT_SEMANTIC and not fault.guessed:
                return fault.applied
            case _ if not self.called or self._proves_no_effect(error):
                return Applied.NONE
            case _:
                return Applied.UNKNOWN

    def _proves_no_effect(self, error: BaseException) -> bool:
        """Whether `error` and the counted requests prove that this attempt had no effect."""
        if self.ended:  # the function may have had its effect, whatever became of its transaction
            return False
        is_alone = self.kind is not None and self.kind.requests is not None  # as the tool promises
        kind = self.kind if self.reached else None
        libraries = (lambda: kind.libraries) if kind else None
        return proves_no_effect(self.judge(error), error, self.sends, libraries, is_alone=is_alone)

    def applied_so_far(self, fault: Fault, error: BaseException) -> Applied:
        """Whether this attempt, which ended with `error`, or an earlier attempt applied the effect."""
        own = fault.model_copy(update={"applied": self.applied(fault, error)})
        if _is_certain(error):
            return own.applied
        earlier, is_unreported = parse_faults(self.earlier), self._may_be_unreported or self._failed_uncalled(fault)
        return applied_by_call(self.spec.effect, own, earlier, is_unreported=is_unreported)

    @property
    def _may_be_unreported(self) -> bool:
        """Whether an earlier attempt may have ended without reporting, so that its fault is not known.

        After a reset, attempts may have run that the new history does not show: then True for a keyed tool and for a
        tool with `reconcile`. For any other tool, a rejection after a reset is taken as proof of no effect.
        """
        is_guarded = self.spec.effect is Effect.KEYED or self.spec.reconcile is not None
        return self.number - 1 > len(self.earlier) or (self.call.is_reset and is_guarded)

    def _failed_uncalled(self, fault: Fault) -> bool:
        """Whether, after a reset, the call failed for good before its tool was called, e.g. its arguments were pruned.

        The run before the reset may have applied the effect. False for a fault after which the call is made later.
        """
        is_for_good = fault.quadrant is Quadrant.PERSISTENT_INFRASTRUCTURAL and (
            fault.is_counted or fault.code is Code.CHANGED_TOOL  # a new plan may follow
        )
        return self.call.is_reset and not self.called and is_for_good


@contextlib.asynccontextmanager
async def attempt_of(spec: ToolSpec, kind: Kind | None = None) -> AsyncIterator[CallAttempt]:
    """Surround one attempt: send heartbeats, write one log line, and turn every exception into a Fault.

    Every other log line that is written meanwhile has the fields that identify the attempt.
    `kind` is the tool's kind; None for an activity of Replan's own.

    Raises:
        ApplicationError: the attempt failed; its first detail is the Fault.
        CancelledError: the workflow cancelled the activity (no fault), and there are no earlier costs to report.
    """
    info = activity.info()
    call = CALL.get() or CallHeader(key=f"{info.workflow_run_id}/{info.activity_id}")
    if kind is not None and call.effect not in (None, spec.effect):  # not called, but earlier attempts may have been
        spec = spec.model_copy(update={"effect": call.effect})
    faults = parse_faults(info.heartbeat_details)
    meter, progress = start_meter([model for fault in faults for model in fault.unreadable]), start_progress()
    number, before = number_of(info.attempt, faults), parse_held(info.heartbeat_details)
    late = 0.0 if info.is_local else _seconds_late(info, before)
    if late < 0 and faults and faults[-1].waited is not None:  # an operator ended the backoff
        faults = (*faults[:-1], faults[-1].model_copy(update={"waited": max(0.0, faults[-1].waited + late)}))
    known, held = [fault.model_dump(mode="json") for fault in faults], (before.held if before else 0.0) + max(0.0, late)
    attempt = CallAttempt(spec, call, number, known, meter=meter, progress=progress, held=held, kind=kind)
    # For all lines of this attempt, also of its threads. The context of an activity ends with it.
    structlog.contextvars.bind_contextvars(
        task=call.task or info.workflow_id,
        run=info.workflow_run_id,
        step=info.activity_id,
        kind=spec.kind,
        revision=call.revision,
        attempt=number,
    )
    began = time.monotonic()
    # The server does not know of a local activity, so it can take no heartbeat of it.
    heartbeats = None if info.is_local else asyncio.create_task(_send_heartbeats(attempt))
    try:
        yield attempt
    except asyncio.CancelledError as cancel:
        fault = _fault_of_cancel(spec)
        # Else the costs of earlier attempts are lost: the server takes no details of a cancelled activity of the SDK.
        if fault is None and spec in own_activities.PLANNING and number > 1:
            fault = Fault.of(Code.TIMEOUT, "It was cut off.")
        if fault is None:
            await attempt.end(None)
            _log(attempt, "cancelled", began)
            raise
        # Without its cause, here and below: Temporal would write the message of the cause into history.
        raise await _failure(attempt, fault, began, cancel) from None
    except FaultRaised as raised:
        raise await _failure(attempt, raised.fault, began, raised) from None
    except BaseException as error:  # an exception that no table knows is a `bug`, also one that ends a process
        raise await _failure(attempt, _fault_of_exception(attempt, error), began, error) from None
    else:
        await attempt.end(None, is_done=True)
        _log(attempt, "replayed" if attempt.replayed else "ok" if attempt.number == 1 else "retried", began)
    finally:
        attempt.raised = None  # its traceback has frames that know the attempt
        if heartbeats:
            heartbeats.cancel()


async def _send_heartbeats(attempt: CallAttempt) -> None:
    """Send a heartbeat at intervals, so that a cancel or a crash is noticed before the attempt's timeout."""
    # Not at once: it would cost the server a write for every call, and it keeps the last one of the attempt before.
    while True:
        await asyncio.sleep(HEARTBEAT_EVERY.total_seconds())
        # The server keeps only the last heartbeat, so each one repeats the earlier faults.
        tokens = attempt.meter.tokens_arriving
        thinking = [] if tokens is None else [ReplyProgress(thinking=tokens).model_dump()]
        working = [attempt.progress.last.model_dump()] if attempt.progress.last else []
        activity.heartbeat(*attempt.earlier, *thinking, *working)


def _is_certain(error: BaseException) -> bool:
    """Whether an error proves that no attempt of the call had an effect; only Replan's own classes can say so."""
    if issubclass(type(error), FaultRaised | ToolError):
        return bool(attribute(error, "is_certain" if issubclass(type(error), FaultRaised) else "is_harmless"))
    return False


def is_shutdown() -> bool:
    """Whether this attempt was cancelled because its worker shuts down, and not by the workflow."""
    details = activity.cancellation_details()
    return details is not None and details.worker_shutdown and not details.cancel_requested


def is_interruption() -> bool:
    """Whether this attempt was cancelled because an operator paused or reset its activity."""
    details = activity.cancellation_details()
    return details is not None and (details.paused or details.reset) and not (details.cancel_requested or is_shutdown())


def _fault_of_cancel(spec: ToolSpec) -> Fault | None:
    """The fault of a cancellation that the workflow did not request; None if the workflow requested it."""
    details = activity.cancellation_details()
    if details is None:
        return Fault.of(Code.BUG, "The tool cancelled its own call, the workflow did not: fix the tool.")
    if is_shutdown():
        return Fault.of(Code.WORKER_SHUTDOWN, "The worker was shut down during the call.")
    if is_interruption():
        how = "paused" if details.paused else "reset"
        return Fault.of(Code.INTERRUPTED, f"An operator {how} the call of {spec.kind} while it ran.")
    return None


SHORTEST_HOLD = 1.0
"""Seconds; a smaller difference from the planned time of an attempt is usual, and not caused by an operator."""


def _seconds_late(info: activity.Info, last: Held | None) -> float:
    """Seconds by which an operator made the server schedule this attempt later than planned; negative if earlier.

    0 if that is not known. `last` is what the previous attempt sent with its last heartbeat; None without one.
    """
    # A resumed attempt is scheduled anew, at another time than the one that the attempt before, or the workflow, set.
    due = last.due if last else info.scheduled_time if info.attempt == 1 else info.current_attempt_scheduled_time
    late = (info.current_attempt_scheduled_time - due).total_seconds()
    return late if abs(late) > SHORTEST_HOLD else 0.0


async def _failure(attempt: CallAttempt, fault: Fault, began: float, error: BaseException) -> ApplicationError:
    """Log the fault, and make the error with which the activity fails; its details are this fault and earlier faults.

    If the attempt will be retried, the fault is also sent with a heartbeat. `began` is a time of `time.monotonic`.
    """
    found = {
        "reason": fault.reason[: MAX_TEXT // 4],  # the limit is in bytes; a character has up to 4
        "observed": _observed(fault.observed),
        "source": attempt.spec.kind,
        "attempt": attempt.number,
        "applied": attempt.applied_so_far(fault, error),
        "held": attempt.held,
        **(_model_use(attempt.meter) if attempt.spec.tokens or attempt.spec in own_activities.PLANNING else {}),
    }
    found_fault = fault.model_copy(update=found)
    fault = await attempt.end(found_fault) or found_fault
    delay = None
    may_repeat = fault.retryable(is_safe=attempt.spec.effect in SAFE)
    if may_repeat:
        jittered = retries.backoff(attempt.spec.retry, attempt.number, JITTER.get()())
        delay = max(fault.retry_after or 0.0, jittered)
        attempt.more["retry_in"] = round(delay, 2)
        # The last heartbeat is all that the next attempt knows of this one; a local activity has one attempt.
        if not activity.info().is_local:
            waited = None if fault.code is Code.INTERRUPTED else delay  # only an operator knows when it goes on
            reported = fault.model_copy(update={"waited": waited, "held": 0.0})
            # By the server's clock, since the next attempt may run on a machine with another one.
            due = activity.info().started_time + timedelta(seconds=time.monotonic() - began + (waited or 0.0))
            activity.heartbeat(
                *attempt.earlier,
                reported.model_dump(mode="json"),
                Held(held=attempt.held, due=due).model_dump(mode="json"),
            )
    asks = fault.code is Code.NEEDS_APPROVAL  # nothing went wrong: a person is asked
    outcome = "needs_approval" if asks else "transient_fail" if fault.quadrant.is_transient else "persistent_fail"
    _log(attempt, outcome, began, fault)
    return ApplicationError(
        fault.reason,
        fault,
        attempt.earlier,
        type=fault.failure_type,
        non_retryable=not may_repeat,
        next_retry_delay=timedelta(seconds=delay) if delay is not None else None,
        category=ApplicationErrorCategory.BENIGN  # no failure of the system: metrics leave it out
        if fault.quadrant.is_semantic or asks
        else ApplicationErrorCategory.UNSPECIFIED,
    )


def _model_use(meter: Meter) -> dict[str, Any]:
    lost = {"lost_model": meter.lost[-1].model, "lost_use": total(meter.use)} if meter.lost else {}
    return {"model_use": meter.known_use, "unreadable": tuple(meter.unreadable), **lost}


def _observed(value: JsonValue) -> JsonValue:
    """The value as JSON of at most MAX_TEXT bytes; a longer value is cut to a text, an invalid value becomes None."""
    try:
        text = to_json(value, inf_nan_mode="null").decode()
    except PydanticSerializationError:  # a lone surrogate, half of a character
        return None
    if len(text.encode()) > MAX_TEXT:
        return text[: (MAX_TEXT - 16) // 4] + "… (cut)"
    plain: JsonValue = from_json(text)
    return plain


def _log(attempt: CallAttempt, outcome: str, began: float, fault: Fault | None = None) -> None:
    """Write the log line of an attempt, and record the attempt in the metrics and its span."""
    seconds = time.monotonic() - began
    counting.count(Sample(ATTEMPT_DURATION, (attempt.spec.kind, outcome), seconds))
    tracing.describe_attempt(
        {
            "replan.effect": attempt.spec.effect.value,
            "replan.revision": attempt.call.revision,
            "replan.attempt": attempt.number,
            "replan.outcome": outcome,
            "replan.replayed": attempt.replayed,
            **({"replan.quadrant": fault.quadrant.value, "replan.fault_effect": fault.applied.value} if fault else {}),
        },
        fault.code.value if fault else None,
    )
    about = {"shape": attempt.shape, "outcome": outcome, "ms": round(seconds * 1000, 1)}
    if fault is not None:
        about |= {"code": fault.code.value, "quadrant": fault.quadrant.value, "effect": fault.applied.value}
    level = logging.ERROR if fault is not None and fault.code is Code.BUG else logging.INFO
    log.log(level, "step", **about, **attempt.more)


def _fault_of_exception(attempt: CallAttempt, error: BaseException) -> Fault:
    """The fault of an exception; the attempt's log line gets the exception's class and, for a bug, its place."""
    verdict, spec = attempt.judge(error), attempt.spec
    attempt.more["error"] = class_name(error)
    if LOGS_VALUES.get():
        attempt.more["message"] = scrubbed(error)
    if verdict.fault.guessed:
        attempt.more["guessed"] = verdict.fault.guessed
    # What a service writes may quote a key that it was sent.
    known = verdict.fault.model_copy(update={"words": text_of(verdict.words, str, MAX_WORDS)})
    if known.code is not Code.BUG:
        return known
    # The fault goes into history and to the planner, so it does not quote the exception.
    attempt.more["at"] = raised_at(error)
    reason = verdict.fault.reason
    # One of Python's own classes is a mistake in the code, and nothing to declare.
    if verdict.unknown and not is_pythons_own(error):
        own = outside_libraries(traceback.extract_tb(traceback_of(error)))
        where = f" at {Path(own[-1].filename).name}:{own[-1].lineno}" if own else ""
        reason = (
            f"{spec.kind} raised {verdict.unknown}{where}, which no table knows: fix the tool, or declare the class."
            f' With raises={{{verdict.unknown}: "server_error"}} it is retried, with "refused" the planner makes a new'
            " plan; docs/errors.md lists the codes."
        )
    step = activity.info().activity_id
    log_line = f"The cause is in the worker's log, in its line with step {step!r} and code 'bug'."
    return known.model_copy(update={"reason": f"{reason[: MAX_TEXT // 8]} {log_line}"})
