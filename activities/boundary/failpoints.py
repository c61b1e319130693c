"""Failpoints, for `worker.py --dev --break KIND=FAULT[:N]`: faults that are injected into a call on purpose.

Runs when a worker reads its options, and at four points of each call.

KIND is the kind of a tool, or an activity of the planner: `plan`, `replan` or `compact`. N is the number of calls that
get the fault, by default all. `KIND=die@FAILPOINT[:N]` kills the worker at that point of a call with SIGKILL, and
`KIND=freeze@FAILPOINT[:N]` stops it until somebody sends SIGCONT.
"""

import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from activities.borders.http import DOWN, STATUS
from activities.borders.table import Proof, shows_down
from workflows.faults.fault import Code, Fault
from workflows.plans.catalogue import SAFE, Effect, ToolSpec
from workflows.plans.own_activities import PLANNING
from workflows.text import nearest

T = TypeVar("T")

LOST = "lost"
"""The word in a `--break` option for this fault: the call takes effect, but its answer is lost."""
LEAVES_OUTCOME_UNKNOWN = (LOST, Code.WORKER_LOST)
MAY_BE_REPEATED = (Effect.READ, *SAFE)
"""The effects of tools that can be called again after a lost answer."""
SIGNALS: Mapping[str, signal.Signals] = {"die": signal.SIGKILL, "freeze": signal.SIGSTOP}
"""By the word in a `--break` option, the signal that kills or freezes the whole worker process."""


class Failpoint(StrEnum):
    """Where in a call a fault can be injected. Every call has these four points, even if it claims no key.

    In a call of the planner, `claim` is the search for its turn in the recorded conversation, and `commit` is the
    recording of the turn.
    """

    BEFORE_CLAIM = "before_claim"
    """Before the ledger is searched for the key of the call."""
    AFTER_CLAIM = "after_claim"
    """The key is claimed; the tool is not called yet."""
    BEFORE_COMMIT = "before_commit"
    """The tool has returned; its transaction is not committed, or its result is not recorded yet."""
    AFTER_COMMIT = "after_commit"
    """Everything is recorded; the activity has not completed yet."""


class BadBreak(ValueError):
    """A `--break` cannot be used; the message says what to do."""


@dataclass
class Injection:
    """A fault or signal for the calls of one kind."""

    what: Fault | signal.Signals
    failpoint: Failpoint
    times: float
    """How many more calls get the fault or signal; infinity for every call."""


class FaultInjection:
    """The faults and signals that a worker injects into calls, as its `--break` options say."""

    def __init__(self, options: Sequence[str], specs: Mapping[str, ToolSpec]) -> None:
        """Read options such as `book_slot=conflict:1`; without a number the fault is injected into every call.

        Raises:
            BadBreak: there is no such kind, fault or failpoint, or the outcome would stay unknown for ever.
        """
        self._injections = dict[str, Injection]()
        self._specs = {**specs, **{spec.kind: spec for spec in PLANNING}}
        for option in options:
            self._add(option)

    @contextmanager
    def injected(self, option: str) -> Iterator[None]:
        """Inject the fault of one more option, as long as the block lasts. Raises BadBreak as the constructor."""
        kind = self._add(option)
        try:
            yield
        finally:
            del self._injections[kind]

    def _add(self, option: str) -> str:
        """Add the injection of an option, and return its kind. Raises BadBreak if the option cannot be used."""
        kind, injection = _read(option, self._specs)
        if kind in self._injections:
            raise BadBreak(f"--break {option}: {kind} is broken already: give each kind one --break.")
        self._injections[kind] = injection
        return kind

    def fault(self, kind: str, failpoint: Failpoint) -> Fault | None:
        """The fault with which this call of `kind` must end at `failpoint`; None if no fault is injected.

        A returned fault counts as used, which matters for an option with a number.
        """
        return self._take(kind, failpoint, Fault)

    def stop(self, kind: str, failpoint: Failpoint) -> None:
        """Kill or freeze this process if the options say so; a frozen process continues here after a SIGCONT."""
        number = self._take(kind, failpoint, signal.Signals)
        if number is not None:
            os.kill(os.getpid(), number)

    def _take(self, kind: str, failpoint: Failpoint, type: type[T]) -> T | None:
        """Count as used and return the fault or signal (by `type`) for this call at `failpoint`; None without one."""
        found = self._injections.get(kind)
        if found is None or found.failpoint is not failpoint or not isinstance(found.what, type) or found.times < 1:
            return None
        found.times -= 1
        return found.what


def _read(option: str, specs: Mapping[str, ToolSpec]) -> tuple[str, Injection]:
    """Read the kind and the injection of an option. Raises BadBreak if the option cannot be used."""
    kind, has_fault, rest = option.partition("=")
    what, has_times, times = rest.partition(":")
    if not has_fault:
        raise BadBreak(f"--break {option}: write KIND=FAULT or KIND=FAULT:TIMES, e.g. {kind or 'search'}=503:2.")
    if kind not in specs:
        kinds = nearest(kind, specs) or f": there are {', '.join(sorted(specs))}."
        raise BadBreak(f"--break {option}: there is no kind {kind!r}{kinds}")
    if has_times and not (times.isdecimal() and int(times)):
        raise BadBreak(f"--break {option}: {times!r} is no number of times: write {kind}={what}:1.")
    limit = int(times) if times else float("inf")
    how, _, failpoint = what.partition("@")
    if how in SIGNALS:
        if failpoint not in set(Failpoint):
            names = ", ".join(Failpoint)
            raise BadBreak(f"--break {option}: there is no failpoint {failpoint!r}: write {how}@ and one of {names}.")
        return kind, Injection(SIGNALS[how], Failpoint(failpoint), limit)
    spec = specs[kind]
    if what in LEAVES_OUTCOME_UNKNOWN and spec.effect not in MAY_BE_REPEATED and spec.reconcile is None:
        raise BadBreak(
            f"--break {option}: {kind} is {spec.effect} and has no reconcile, so the outcome of the call would stay"
            " unknown: use another fault."
        )
    code = _code(option, what)
    # Without a number of times it never ends, and a call alone would wait for long.
    is_down = bool(times) and (what == str(DOWN) or (what != LOST and shows_down(code, Proof.NOT_SENT)))
    fault = Fault.of(code, f"Broken on purpose ({what}), as --break said.", is_down=is_down)
    return kind, Injection(fault, Failpoint.AFTER_COMMIT if what == LOST else Failpoint.BEFORE_CLAIM, limit)


def _code(option: str, what: str) -> Code:
    """The code of the fault that `what` names. Raises BadBreak if there is no such fault."""
    if what == LOST:
        return Code.UNREACHABLE
    if what.isdecimal() and 400 <= int(what) < 600:
        known = STATUS.get(int(what))
        return known[0] if known else Code.REFUSED if int(what) < 500 else Code.SERVER_ERROR
    if what in set(Code):
        return Code(what)
    some = ", ".join([LOST, "429", "503", *(code.value for code in Code)])
    raise BadBreak(
        f"--break {option}: there is no fault {what!r}{nearest(what, set(Code))}: use an HTTP status or {some}."
    )
