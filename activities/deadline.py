"""The deadline of an attempt: what is not sent by then is not sent at all.

A process that was frozen goes on where it stood. By then somebody may have looked, found that the call had not
happened, and made it again: a request that is still sent would be the second one.
"""

import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import httpx2

from activities.errors import Unreachable
from workflows.faults import Code

_ABOUT_TO_SEND = ("send_request_headers.started", "send_request_body.started")
_HARMLESS = frozenset({b"GET", b"HEAD", b"OPTIONS", b"TRACE", b"CONNECT"})
"""Methods whose requests change nothing (RFC 9110, section 9.2.1); CONNECT only asks a proxy for a way."""


@dataclass
class Deadline:
    """When the attempt that we are in ends, and what it has sent by now."""

    at: float
    """In seconds of `clock`."""
    sent: int = 0
    """Requests that may have changed something."""


class DeadlinePassed(Unreachable):
    """The time of the attempt was over before anything was sent that could change something."""

    default = Code.TIMEOUT

    def __init__(self) -> None:
        """Say that nothing happened."""
        super().__init__("The time of this attempt was over before anything was sent; nothing happened.")


_DEADLINE: ContextVar[Deadline | None] = ContextVar("replan_deadline", default=None)


def clock() -> float:
    """Seconds that go on while the process is stopped and, where the system counts that, while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if sys.platform == "linux" else time.monotonic()


@contextmanager
def within(seconds: float) -> Iterator[Deadline]:
    """Let the deadline of everything inside be so many seconds from now."""
    deadline = Deadline(clock() + seconds)
    token = _DEADLINE.set(deadline)
    try:
        yield deadline
    finally:
        _DEADLINE.reset(token)


def check() -> None:
    """Go on only before the deadline; outside an attempt there is none.

    Raises:
        DeadlinePassed: it is over, and nothing was sent.
        TimeoutError: it is over, and an earlier request may have changed something.
    """
    deadline = _DEADLINE.get()
    if deadline is not None and clock() >= deadline.at:
        raise TimeoutError if deadline.sent else DeadlinePassed


def left() -> float | None:
    """Seconds that are left; none below zero, and None outside an attempt."""
    deadline = _DEADLINE.get()
    return max(0.0, deadline.at - clock()) if deadline else None


def sent() -> int:
    """Requests of this attempt that may have changed something; those of other HTTP clients are not counted."""
    deadline = _DEADLINE.get()
    return deadline.sent if deadline else 0


def is_alone(method: str | None) -> bool:
    """Whether no request of this attempt may have changed something but the last one; `method` is its, if it was sent.

    Only then does its refusal prove that nothing happened.
    """
    own = 1 if method is not None and method.encode() not in _HARMLESS else 0
    return sent() <= own


async def before_request(request: httpx2.Request) -> None:
    """Check the deadline now, before a connection is made, and again when the first byte is about to be sent.

    A hook of `httpx2` for the event `request`: it is called for each redirect, too.
    """
    check()
    asked = request.extensions.get("trace")
    if not isinstance(asked, Guard):
        request.extensions = {**request.extensions, "trace": Guard(asked)}


@dataclass(frozen=True)
class Guard:
    """The extension `trace` of `httpcore2` that checks the deadline right before something is sent."""

    then: Callable[[str, Mapping[str, Any]], Awaitable[None]] | None = None
    """A `trace` that the tool itself has asked for."""

    async def __call__(self, event: str, info: Mapping[str, Any]) -> None:
        """Look at one event."""
        if event.endswith(_ABOUT_TO_SEND):
            check()
        if event.endswith(_ABOUT_TO_SEND[0]) and info["request"].method not in _HARMLESS:
            deadline = _DEADLINE.get()
            if deadline is not None:
                deadline.sent += 1
        if self.then is not None:
            await self.then(event, info)


def client(**more: Any) -> httpx2.AsyncClient:
    """The HTTP client that a worker gives to its tools; `more` is what `httpx2.AsyncClient` takes."""
    return httpx2.AsyncClient(event_hooks={"request": [before_request]}, **more)
