"""One attempt of one activity: heartbeats while it lasts, one log line, and every exception becomes a Fault."""

import asyncio
import contextlib
import random
import re
import threading
import time
import traceback
from collections.abc import AsyncIterator, Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx2
import structlog
from pydantic import JsonValue
from pydantic_core import PydanticSerializationError, from_json, to_json
from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory
from temporalio.worker import (
    ActivityInboundInterceptor,
    ActivityOutboundInterceptor,
    ExecuteActivityInput,
    Interceptor,
)

from activities import deadline
from activities.borders import classify, http
from activities.errors import ToolError
from activities.providers.metering import Meter
from activities.toolbox.declare.kind import Kind
from workflows import routing
from workflows.catalogue import REFUSAL_MAY_FOLLOW_SUCCESS, SAFE, Effect, ToolSpec
from workflows.faults import MAX_TEXT, Applied, Code, Fault, Quadrant, parse_faults
from workflows.header import HEADER, CallHeader

MAX_WORDS = 300
"""Characters."""

_CLOSED = r"[\]),;?(]*(?:[\s\"']|$)"
"""What may follow the placeholder `?` of a statement, up to the next space."""
_SECRETS = (
    re.compile(
        r"(?i)(?<![a-z])(apikey|token|key|secret|password|passwd|authorization|cookie)"
        rf"[\"']?(\s*[:=]\s*|\s+(?![:=]))(?!\?{_CLOSED})([\"']?(bearer|basic)\s+)?\S+"
    ),
    re.compile(r"(?i)\b(bearer|basic)\s+\S+"),
    re.compile(r"\b(sk|pk|rk|ghp|xox[a-z])[-_][\w-]{6,}"),
    re.compile(r"(?<=://)[^/\s@]+@"),
    re.compile(rf"(?<=\?)(?!{_CLOSED})[^\s\"']+"),
    re.compile(r"[A-Za-z0-9+/_=-]{32,}"),
)
"""Named credentials, well-known key forms, user info and queries of URLs, long opaque strings."""


def scrubbed(error: BaseException) -> str:
    """The exception's class and message, scrubbed and cut."""
    message = str(error)[: 4 * MAX_WORDS]
    for secret in _SECRETS:
        message = secret.sub("***", message)
    return f"{type(error).__name__}: {message[:MAX_WORDS]}"


def raised_at(error: BaseException, last: int = 6) -> list[str]:
    """Where it was raised: `file:line function`, the innermost last; no values.

    Of the libraries only the innermost: the tool's own line is what has to be mended.
    """
    whole = traceback.extract_tb(error.__traceback__)
    found = [frame for frame in whole[:-1] if "site-packages" not in frame.filename][1 - last :] + whole[-1:]
    return [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in found]


def applied(
    effect: Effect, fault: Fault, error: BaseException, *, called: bool, returned: bool, committing: bool
) -> Applied:
    """Say it of a call that ended with `error`.

    `called` is whether the tool was called at all, `returned` whether it came back with a result, `committing` whether
    its transaction may have committed.
    """
    match effect:
        case Effect.READ:
            return Applied.NONE
        case Effect.TRANSACTIONAL:  # what did not commit has not happened
            return Applied.UNKNOWN if committing else Applied.NONE
        case _ if returned:
            return Applied.APPLIED
        case Effect.IDEMPOTENT if fault.quadrant is Quadrant.PERSISTENT_SEMANTIC:  # what was refused is as it was
            return fault.applied
        case _:
            return Applied.UNKNOWN if called and not _is_proven(error) else Applied.NONE


def _is_proven(error: BaseException) -> bool:
    """Whether what was raised proves that nothing happened: the author's word, or the only request that was made."""
    if isinstance(error, ToolError):
        return error.requests is None or deadline.sent() <= error.requests
    return http.had_no_effect(error) and _is_alone(error)


def _is_alone(error: BaseException) -> bool:
    """Whether no request before the one that failed may have changed something."""
    return deadline.is_alone(error.request.method if isinstance(error, httpx2.HTTPStatusError) else None)


log = structlog.get_logger("replan.step")
_CALL: ContextVar[CallHeader | None] = ContextVar("replan_boundary_call", default=None)
_JITTER: ContextVar[Callable[[], float]] = ContextVar("replan_backoff_jitter", default=random.random)


class FaultRaised(Exception):
    """Carries a fault that the boundary itself found out of a call."""

    def __init__(self, fault: Fault, *, is_certain: bool = False) -> None:
        """Carry it; one that `is_certain` is no echo of an earlier attempt: the ledger says so."""
        super().__init__(fault.reason)
        self.fault = fault
        self.is_certain = is_certain


@dataclass
class Attempt:
    """One attempt of one call, for whoever runs inside the boundary."""

    spec: ToolSpec
    call: CallHeader
    number: int
    earlier: list[dict[str, Any]]
    """The faults of the attempts before, as far as they are known."""
    shape: JsonValue = None
    """The shape of the input, for the log."""
    called: bool = False
    """Whether the tool itself was called."""
    returned: bool = False
    """Whether the tool came back with a result, whatever is wrong with it."""
    committing: bool = False
    """Whether the effect may have happened even if what follows fails."""
    replayed: bool = False
    """Whether the effect had happened in an earlier attempt, whose result is returned."""
    meter: Meter = field(default_factory=Meter)
    """What the call used of models."""
    time: asyncio.Timeout = field(default_factory=lambda: asyncio.timeout(None))
    """What ends the attempt at its timeout."""

    def applied(self, fault: Fault, error: BaseException) -> Applied:
        """Whether this attempt may have changed the world before it ended with `error`."""
        return applied(
            self.spec.effect,
            fault,
            error,
            called=self.called,
            returned=self.returned,
            committing=self.committing,
        )

    @property
    def may_have_taken_effect(self) -> bool:
        """Whether an attempt before this one may have changed the world: it said so, or left without a word.

        After a reset there may have been some of which nobody here knows; that one of what is harmless twice was
        refused is believed then, unless it can be found out.
        """
        is_guarded = self.spec.effect is Effect.KEYED or self.spec.reconcile is not None
        left_without_a_word = self.number - 1 > len(self.earlier)
        return (
            left_without_a_word
            or (self.call.is_reset and is_guarded)
            or any(fault.get("effect") == Applied.UNKNOWN for fault in self.earlier)
        )


@contextlib.asynccontextmanager
async def attempt(spec: ToolSpec) -> AsyncIterator[Attempt]:
    """Surround one attempt: heartbeats while it lasts, one log line, and whatever it raises becomes a Fault.

    Raises:
        ApplicationError: the attempt failed; its first detail is the Fault.
        CancelledError: the workflow cancelled it; this is no fault.
    """
    info = activity.info()
    call = _CALL.get() or CallHeader(key=f"{info.workflow_run_id}/{info.activity_id}")
    earlier = [fault.model_dump(mode="json") for fault in parse_faults(info.heartbeat_details)]
    this = Attempt(spec, call, info.attempt, earlier)
    began = time.monotonic()
    beating = asyncio.create_task(_heartbeat(this))
    try:
        yield this
    except asyncio.CancelledError as cancel:
        unasked = _unasked()
        if unasked is None:
            _log(this, "cancelled", began)
            raise
        raise _failure(this, unasked, began, cancel) from None
    except FaultRaised as raised:
        raise _failure(this, raised.fault, began, raised) from None
    except (Exception, SystemExit) as error:  # the default deny: total, and what no table knows is `bug`
        fault = classify(error)
        if fault.code is Code.BUG:
            fault = _logged(fault, spec, error)
        raise _failure(this, fault, began, error) from None
    else:
        _log(this, "replayed" if this.replayed else "ok" if this.number == 1 else "retried", began)
    finally:
        beating.cancel()


def _logged(fault: Fault, spec: ToolSpec, error: BaseException) -> Fault:
    """Log what a bug was, and let the fault, which may not quote it, say where to look."""
    info = activity.info()
    words, frames = scrubbed(error), raised_at(error)
    log.error("bug", task=info.workflow_id, kind=spec.kind, step=info.activity_id, error=words, at=frames)
    where = f"The cause is in the worker's log, in its line 'bug' with step {info.activity_id!r}."
    return fault.model_copy(update={"reason": f"{fault.reason[: MAX_TEXT // 8]} {where}"})


async def _heartbeat(this: Attempt) -> None:
    """Beat for the tool, so that a cancel arrives and a crash is noticed whatever the tool does."""
    while True:
        activity.heartbeat(*this.earlier)
        await asyncio.sleep(routing.HEARTBEAT_EVERY.total_seconds())


def is_shutdown() -> bool:
    """Whether this attempt was cancelled since its worker shuts down, and not by the workflow."""
    details = activity.cancellation_details()
    return details is not None and details.worker_shutdown and not details.cancel_requested


def _unasked() -> Fault | None:
    """What a cancel means that the workflow did not ask for; None when it did."""
    if activity.cancellation_details() is None:
        return Fault.of(Code.BUG, "The call was cancelled, and nobody had asked for it: mend the tool.")
    if is_shutdown():
        return Fault.of(Code.WORKER_SHUTDOWN, "The worker was shut down during the call; another one goes on.")
    return None


def _failure(this: Attempt, fault: Fault, began: float, error: BaseException) -> ApplicationError:
    """The form in which a fault leaves the activity: class names never cross, data does."""
    fault = _bounded(fault).model_copy(
        update={"source": this.spec.kind, "attempt": this.number, "applied": _effect(this, fault, error), **_use(this)}
    )
    delay = None
    may_repeat = fault.retryable(is_safe=this.spec.effect in SAFE)
    if may_repeat:
        jittered = routing.backoff(this.spec.retry, this.number, _JITTER.get()())
        delay = max(fault.retry_after or 0.0, jittered)
        activity.heartbeat(*this.earlier, fault.model_copy(update={"waited": delay}).model_dump(mode="json"))
    _log(this, "transient_fail" if fault.quadrant.is_transient else "persistent_fail", began, fault)
    return ApplicationError(
        fault.reason,
        fault,
        this.earlier,
        type=fault.quadrant.value,
        non_retryable=not may_repeat,
        next_retry_delay=timedelta(seconds=delay) if delay is not None else None,
        category=ApplicationErrorCategory.BENIGN  # no failure of the system: metrics leave it out
        if fault.quadrant.is_semantic
        else ApplicationErrorCategory.UNSPECIFIED,
    )


def _use(this: Attempt) -> dict[str, Any]:
    """What the attempt used of models, for a kind that may use them."""
    return {"model_use": this.meter.known_use} if this.spec.tokens else {}


def _effect(this: Attempt, fault: Fault, error: BaseException) -> Applied:
    """Whether this attempt, or one before it, may have changed the world."""
    effect = this.applied(fault, error)
    is_certain = error.is_certain if isinstance(error, FaultRaised) else getattr(error, "is_harmless", False)
    doubtful = (
        SAFE if fault.quadrant.is_transient else REFUSAL_MAY_FOLLOW_SUCCESS
    )  # a refusal may be the echo of an earlier attempt
    if effect is Applied.NONE and not is_certain and this.spec.effect in doubtful and this.may_have_taken_effect:
        return Applied.UNKNOWN
    return effect


def _bounded(fault: Fault) -> Fault:
    """Keep a fault small enough for history, and so that JSON can carry it."""
    return fault.model_copy(update={"reason": fault.reason[: MAX_TEXT // 4], "observed": _observed(fault.observed)})


def _observed(seen: JsonValue) -> JsonValue:
    try:
        text = to_json(seen, inf_nan_mode="null").decode()
    except PydanticSerializationError:  # half a character
        return None
    if len(text.encode()) > MAX_TEXT:
        return text[: (MAX_TEXT - 16) // 4] + "… (cut)"
    plain: JsonValue = from_json(text)
    return plain


def _log(this: Attempt, outcome: str, began: float, fault: Fault | None = None) -> None:
    info = activity.info()
    more = {"code": fault.code.value, "effect": fault.applied.value} if fault else {}
    log.info(
        "step",
        task=info.workflow_id,
        step=info.activity_id,
        kind=this.spec.kind,
        revision=this.call.revision,
        attempt=this.number,
        input=this.shape,
        outcome=outcome,
        ms=round((time.monotonic() - began) * 1000, 1),
        **more,
    )


def shape(value: Any, kind: Kind) -> JsonValue:
    """Type and size of each argument that the kind knows, never a value; the keys of a dictionary are values, too."""
    if not isinstance(value, dict):
        return type(value).__name__
    known = {info.alias or name for name, info in kind.args.model_fields.items()}
    return {name: _size(item) for name, item in value.items() if name in known}


def _size(value: Any) -> str:
    name = type(value).__name__
    return f"{name}[{len(value)}]" if isinstance(value, str | list | dict) else name


class HeaderInterceptor(Interceptor):
    """Reads the `CallHeader` of each activity from its header; registered with the worker.

    `jitter` draws the share of its longest backoff that an attempt waits, evenly from [0, 1).
    """

    def __init__(self, jitter: Callable[[], float] = random.random) -> None:
        self._jitter = jitter

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        """Intercept every activity."""
        return _Inbound(next, self._jitter)


class _Outbound(ActivityOutboundInterceptor):
    """Lets a plain function, which runs in a thread, beat as well; the SDK's own heartbeat needs the loop's thread."""

    def __init__(self, next: ActivityOutboundInterceptor) -> None:
        super().__init__(next)
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()

    def heartbeat(self, *details: Any) -> None:
        if threading.get_ident() == self._thread:
            self.next.heartbeat(*details)
        else:
            self._loop.call_soon_threadsafe(self.next.heartbeat, *details)


class _Inbound(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, jitter: Callable[[], float]) -> None:
        super().__init__(next)
        self._jitter = jitter

    def init(self, outbound: ActivityOutboundInterceptor) -> None:
        super().init(_Outbound(outbound))

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        payload = input.headers.get(HEADER)
        if payload is not None:
            _CALL.set(activity.payload_converter().from_payload(payload, CallHeader))
        _JITTER.set(self._jitter)
        return await super().execute_activity(input)
