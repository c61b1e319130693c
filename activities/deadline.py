"""The deadline of an attempt: after it, no request is sent.

A worker process that was frozen (SIGSTOP, a paused machine) continues in the middle of a tool. By then Replan may have
found no effect of the call and repeated it: a request that the old attempt sends now would apply the effect twice.
"""

import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import httpx2

from activities import sends, tracing
from activities.errors import Unreachable
from workflows.faults.fault import Code

CONNECT_TIMEOUT = 10.0
"""The most seconds that connecting to a web server may take."""
_ABOUT_TO_SEND = ("send_request_headers.started", "send_request_body.started")


@dataclass
class Deadline:
    """The deadline of the current attempt."""

    at: float
    """The time of the deadline: a value of `clock()`, in seconds."""


class DeadlinePassed(Unreachable):
    """The deadline passed before anything was sent that could change something."""

    default = Code.TIMEOUT
    requests = 0

    def __init__(self) -> None:
        super().__init__("The deadline of this attempt passed before anything was sent; nothing was changed.")


_DEADLINE: ContextVar[Deadline | None] = ContextVar("replan_deadline", default=None)


def clock() -> float:
    """Seconds of a clock that goes on while the process is frozen and, on Linux, also while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if sys.platform == "linux" else time.monotonic()


@contextmanager
def within(seconds: float) -> Iterator[Deadline]:
    """Set the deadline of all code inside the `with` block to `seconds` from now."""
    deadline = Deadline(clock() + seconds)
    token = _DEADLINE.set(deadline)
    try:
        yield deadline
    finally:
        _DEADLINE.reset(token)


def extend(seconds: float) -> None:
    """Move the deadline of the attempt `seconds` later: the attempt waited so long for something else than its tool."""
    deadline = _DEADLINE.get()
    if deadline is not None:
        deadline.at += seconds


def check() -> None:
    """Raise if the deadline of the attempt has passed; outside an attempt there is no deadline, and nothing is raised.

    Raises:
        DeadlinePassed: the attempt has sent no request that may have changed something.
        TimeoutError: an earlier request of the attempt may have changed something.
    """
    deadline = _DEADLINE.get()
    if deadline is not None and clock() >= deadline.at:
        raise TimeoutError if sends.has_changed() else DeadlinePassed


def at() -> float | None:
    """The time of the deadline by `clock()`; None outside an attempt."""
    deadline = _DEADLINE.get()
    return deadline.at if deadline else None


def left() -> float | None:
    """Seconds until the deadline, at least 0; None outside an attempt."""
    deadline = _DEADLINE.get()
    return max(0.0, deadline.at - clock()) if deadline else None


async def before_request(request: httpx2.Request) -> None:
    """Check the deadline before a connection is made, and again before the first byte is sent; raise as `check` does.

    An event hook: `httpx2` calls this function for each request, also for each redirect.
    """
    # The deadline may pass while a connection is made: the Guard checks again when the connection stands.
    check()
    limits, trace = request.extensions.get("timeout", {}), request.extensions.get("trace")
    request.extensions = {
        **request.extensions,
        "timeout": {**limits, **{name: connect_timeout(limits.get(name)) for name in ("connect", "pool")}},
        "trace": trace if isinstance(trace, Guard) else Guard(trace),
    }


def connect_timeout(timeout: float | None) -> float | None:
    """Seconds to connect: `timeout`, but at most half of what is left of the attempt; None for no limit.

    So a failure to connect is reported before the attempt ends, with the proof that nothing was sent.
    """
    half = None if (seconds := left()) is None else seconds / 2
    return min((limit for limit in (timeout, half) if limit is not None), default=None)


@dataclass(frozen=True)
class Guard:
    """A `trace` extension for `httpcore2` that checks the deadline right before something is sent."""

    then: Callable[[str, Mapping[str, Any]], Awaitable[None]] | None = None
    """The tool's own `trace` extension, which is called after the check; None if the tool has no extension."""

    async def __call__(self, event: str, info: Mapping[str, Any]) -> None:
        if event.endswith(_ABOUT_TO_SEND):
            check()
        if self.then is not None:
            await self.then(event, info)


def client(**options: Any) -> httpx2.AsyncClient:
    """Make an HTTP client that checks the deadline before each request; `options` are those of `httpx2.AsyncClient`.

    A request waits for its answer until the attempt ends, as the tool's `timeout=` says.
    """
    waits = httpx2.Timeout(None, connect=CONNECT_TIMEOUT, pool=CONNECT_TIMEOUT)
    return _Client(**{"event_hooks": {"request": [before_request]}, "timeout": waits, **options})


class _Client(httpx2.AsyncClient):
    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        with tracing.http_span(request.method, request.url) as span:
            span.inject(request.headers)
            response = await super().send(request, **options)
            span.answered(response.status_code)
            return response
