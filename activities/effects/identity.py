"""The session and the ids of a call, from what surrounds it: a scope, or an activity of Temporal."""

import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, NamedTuple


@dataclass(frozen=True)
class Scope:
    """What the program said of the calls inside a `with effects.scope(...)` block."""

    session: str | None = None
    key: str | None = None
    run: str | None = None
    call: str | None = None


MAX_LENGTH = 1000
"""The most characters of a session, a key or an id."""


def checked(what: str, value: str) -> str:
    """A session, key or id as it was given; raises ValueError if no store can keep it."""
    if not isinstance(value, str) or not value or len(value) > MAX_LENGTH or not value.isprintable():
        raise ValueError(f"{what}={value!r}: give a text of 1 to {MAX_LENGTH} printable characters.")
    return value


_SCOPE: ContextVar[Scope] = ContextVar("replan_effects_scope", default=Scope())  # noqa: B039  # it is frozen


@contextmanager
def scope(session: str | None, key: str | None, run: str | None, call: str | None) -> Iterator[None]:
    """Inside the block, calls have these; what is None stays as it is outside of it."""
    outside = _SCOPE.get()
    named = (("session", session), ("key", key), ("run", run), ("call", call))
    changes = {name: checked(name, value) for name, value in named if value is not None}
    token = _SCOPE.set(replace(outside, **changes))
    try:
        yield
    finally:
        _SCOPE.reset(token)


def current_scope() -> Scope:
    """What the innermost blocks say."""
    return _SCOPE.get()


class TemporalIds(NamedTuple):
    """The identity of a call inside an activity of Temporal; all attempts of the activity have the same."""

    workflow: str
    run: str
    call: str


MAX_ATTEMPTS = 10_000
"""The most attempts whose calls are counted at a time; the oldest are forgotten."""


class Ordinals:
    """How often each attempt of an activity has made an equal call."""

    def __init__(self) -> None:
        self._counts = dict[tuple[object, ...], Counter[str]]()
        self._lock = threading.Lock()

    def ids(self, digest: str) -> TemporalIds | None:
        """The identity of the next call with this digest; None outside of an activity of a workflow."""
        info = _activity_info()
        if info is None or not info.workflow_id:
            return None
        attempt = (info.workflow_run_id, info.activity_id, info.attempt)
        with self._lock:
            counts = self._counts.setdefault(attempt, Counter())
            counts[digest] += 1
            if len(self._counts) > MAX_ATTEMPTS:
                self._counts.pop(next(iter(self._counts)))
        return TemporalIds(
            info.workflow_id, info.workflow_run_id or "", f"{info.activity_id}/{digest}/{counts[digest]}"
        )


def temporal_workflow() -> str | None:
    """The id of the workflow whose activity this is; None outside of one."""
    info = _activity_info()
    return info.workflow_id if info is not None else None


def _activity_info() -> Any:
    """What Temporal's SDK says of the current activity; None outside of one, and where nobody has imported the SDK."""
    activity = sys.modules.get("temporalio.activity")
    return activity.info() if activity is not None and activity.in_activity() else None
