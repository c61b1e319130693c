"""`worker.py --dev --break KIND=FAULT[:N]`: breaks a tool, or the planner, on purpose, to see what Replan makes of it.

KIND is a tool's, or `plan`, `replan` and `compact`, by which the planner is asked. `KIND=die@POINT[:N]` kills the
worker there, as the kernel would, and `KIND=freeze@POINT[:N]` stops it until somebody sends SIGCONT.
"""

import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from activities.borders.http import STATUS
from workflows import routing
from workflows.catalogue import SAFE, Effect, ToolSpec
from workflows.faults import Code, Fault
from workflows.plan import nearest

T = TypeVar("T")

LOST = "lost"
"""The call goes through and its answer is lost."""
UNCERTAIN = (LOST, Code.WORKER_LOST)
"""What leaves open whether the call went through."""
HARMLESS = (Effect.READ, *SAFE)
"""The effects whose lost answer can be asked for again."""
STOPS: Mapping[str, signal.Signals] = {"die": signal.SIGKILL, "freeze": signal.SIGSTOP}
"""What happens to the whole worker, and the signal that does it."""


PLANNER = (routing.PLAN, routing.REPLAN, routing.COMPACT)
"""What can be broken beside the tools."""


class Point(StrEnum):
    """Where in a call a worker can be stopped; a kind without claim or commit has them where they would be.

    The planner has the transcript for a ledger: its turn is looked up there, asked for, and written down.
    """

    BEFORE_CLAIM = "before_claim"
    """Before the ledger is asked."""
    AFTER_CLAIM = "after_claim"
    """The key is claimed, and the tool was not called."""
    BEFORE_COMMIT = "before_commit"
    """The tool returned, and neither its transaction is committed nor its result written down."""
    AFTER_COMMIT = "after_commit"
    """All is written down, and the answer has not left."""


class BadBreak(ValueError):
    """A `--break` cannot be used; the message names the remedy."""


@dataclass
class Break:
    """What to break and how often it still happens."""

    what: Fault | signal.Signals
    point: Point
    times: float


class Breaks:
    """The breaks of one worker."""

    def __init__(self, wanted: Sequence[str], specs: Mapping[str, ToolSpec]) -> None:
        """Read `KIND=FAULT[:N]`, e.g. `book_slot=conflict:1`; without N it happens every time.

        Raises:
            BadBreak: there is no such kind, fault or point, or the kind's answer may not be lost.
        """
        self._breaks = dict[str, Break]()
        known = {**specs, **{spec.kind: spec for spec in PLANNER}}
        for one in wanted:
            kind, found = _read(one, known)
            if kind in self._breaks:
                raise BadBreak(f"--break {one}: {kind} is broken already: give each kind one --break.")
            self._breaks[kind] = found

    def next(self, kind: str, *, after: bool) -> Fault | None:
        """The fault that this call of `kind` meets now, before or after the tool ran."""
        return self._due(kind, Point.AFTER_COMMIT if after else Point.BEFORE_CLAIM, Fault)

    def reach(self, kind: str, point: Point) -> None:
        """Stop this whole process here if that is wanted; a frozen one goes on from here after a SIGCONT."""
        number = self._due(kind, point, signal.Signals)
        if number is not None:
            os.kill(os.getpid(), number)

    def _due(self, kind: str, point: Point, type: type[T]) -> T | None:
        found = self._breaks.get(kind)
        if found is None or found.point is not point or not isinstance(found.what, type) or found.times < 1:
            return None
        found.times -= 1
        return found.what


def _read(text: str, specs: Mapping[str, ToolSpec]) -> tuple[str, Break]:
    kind, given, rest = text.partition("=")
    what, limited, times = rest.partition(":")
    if not given:
        raise BadBreak(f"--break {text}: write KIND=FAULT or KIND=FAULT:TIMES, e.g. {kind or 'search'}=503:2.")
    if kind not in specs:
        there = nearest(kind, specs) or f": there are {', '.join(sorted(specs))}."
        raise BadBreak(f"--break {text}: there is no kind {kind!r}{there}")
    if limited and not (times.isdecimal() and int(times)):
        raise BadBreak(f"--break {text}: {times!r} is no number of times: write {kind}={what}:1.")
    often = int(times) if times else float("inf")
    if what.partition("@")[0] in STOPS:
        return kind, Break(*_stop(text, what), often)
    if what in UNCERTAIN and specs[kind].effect not in HARMLESS and specs[kind].reconcile is None:
        raise BadBreak(
            f"--break {text}: {kind} is {specs[kind].effect} and has no reconcile, so after that nobody could say"
            " whether its effect happened: use another fault."
        )
    fault = Fault.of(_code(text, what), f"Broken on purpose ({what}), as --break said.")
    return kind, Break(fault, Point.AFTER_COMMIT if what == LOST else Point.BEFORE_CLAIM, often)


def _stop(text: str, what: str) -> tuple[signal.Signals, Point]:
    how, _, point = what.partition("@")
    if point not in set(Point):
        raise BadBreak(f"--break {text}: there is no point {point!r}: write {how}@ and one of {', '.join(Point)}.")
    return STOPS[how], Point(point)


def _code(text: str, what: str) -> Code:
    if what == LOST:
        return Code.UNREACHABLE
    if what.isdecimal() and 400 <= int(what) < 600:
        found = STATUS.get(int(what))
        return found[0] if found else Code.REFUSED if int(what) < 500 else Code.SERVER_ERROR
    if what in set(Code):
        return Code(what)
    some = ", ".join(["lost", "429", "503", *(code.value for code in Code)])
    raise BadBreak(
        f"--break {text}: there is no fault {what!r}{nearest(what, set(Code))}: use an HTTP status or {some}."
    )
