"""`worker.py --dev --break KIND=FAULT[:N]`: breaks a tool on purpose, to see what Replan makes of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from activities.borders.http import STATUS
from workflows.catalogue import SAFE, Effect, ToolSpec
from workflows.faults import Code, Fault
from workflows.plan import nearest

LOST = "lost"
"""The call goes through and its answer is lost."""
UNCERTAIN = (LOST, Code.WORKER_LOST)
"""What leaves open whether the call went through."""
HARMLESS = (Effect.READ, Effect.IDEMPOTENT, *SAFE)
"""The effects whose lost answer can be asked for again."""


class BadBreak(ValueError):
    """A `--break` cannot be used; the message names the remedy."""


@dataclass
class Break:
    """What to break and how often it still happens."""

    fault: Fault
    after: bool
    """Whether the tool is called first."""
    times: float


class Breaks:
    """The breaks of one worker."""

    def __init__(self, wanted: Sequence[str], specs: Mapping[str, ToolSpec]) -> None:
        """Read `KIND=FAULT[:N]`, e.g. `book_slot=conflict:1`; without N it happens every time.

        Raises:
            BadBreak: there is no such kind or fault, or the kind's answer may not be lost.
        """
        self._breaks = dict[str, Break]()
        for one in wanted:
            kind, found = _read(one, specs)
            if kind in self._breaks:
                raise BadBreak(f"--break {one}: {kind} is broken already: give each kind one --break.")
            self._breaks[kind] = found

    def next(self, kind: str, *, after: bool) -> Fault | None:
        """The fault that this call of `kind` meets now, before or after the tool ran."""
        found = self._breaks.get(kind)
        if found is None or found.after is not after or found.times < 1:
            return None
        found.times -= 1
        return found.fault


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
    if what in UNCERTAIN and specs[kind].effect not in HARMLESS:
        raise BadBreak(
            f"--break {text}: {kind} is {specs[kind].effect}, and after that nobody could say whether its effect"
            " happened: use another fault."
        )
    fault = Fault.of(_code(text, what), f"Broken on purpose ({what}), as --break said.")
    return kind, Break(fault, after=what == LOST, times=int(times) if times else float("inf"))


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
