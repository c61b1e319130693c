"""A step as lines: its row, and below it what went wrong and what followed. Pure functions of an Outcome."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from rich.cells import cell_len

from console.cells import cut, one_line, pad, printable
from workflows.details import SIGNS
from workflows.faults import Applied, Code
from workflows.outcome import Outcome, OutcomeStep
from workflows.record import FaultRecord, StepStatus

FOLLOWS = {
    "replan": "the same call would fail again -> a new plan, no retry",
    "end": "the same call would fail again: no retry",
    "wait": "waiting, then the same step again",
    "fallback": "another kind takes over",
    "reconcile": "it may have happened -> finding that out before anything else",
    "escalate": "neither time nor another plan can help -> a person, no retry",
}
FOUND = {
    "replan": "it had not happened -> a new plan",
    "end": "it had not happened",
    "wait": "it had not happened -> the same step again",
    "fallback": "it had not happened -> another kind takes over",
    "reconcile": "it had happened: its result was found, nothing was done again",
    "escalate": "it had not happened, but neither time nor another plan can help -> a person",
}
"""What followed where it was found out first whether the call had happened."""
NEW_PLAN, NEXT_TURN = "a new plan", "the model's next turn"
"""What answers a refusal; where a model makes one move at a time, it has no plan."""
TO_A_PERSON = {
    Applied.APPLIED: "it happened, so it is not done once more -> a person",
    Applied.UNKNOWN: "nobody knows whether it happened -> a person, no second call",
}
"""Why a person has to act on a call that changed the world, or may have."""
WIDTH = 80
"""Columns of a terminal that nobody asked for its size."""
MAX_REASON = 400
"""Cells of a fault's reason; `explain` and `--json` have the rest."""
USUAL, LEAST = 52, 12
"""Cells for id, kind and title: as many as fit WIDTH, and what is left of them on a narrow terminal."""
TAIL = 21
"""Cells for attempts and time."""
MAX_ID, MAX_KIND = 14, 20


@dataclass(frozen=True)
class Attempt:
    """The attempt of a running step."""

    number: int
    of: int | None
    """None: without limit."""
    code: str | None = None
    """What the attempt before met."""
    due: datetime | None = None
    """When it begins, while it is waited for."""

    @property
    def words(self) -> str:
        """`attempt 2 of 4`."""
        return f"attempt {self.number}" + (f" of {self.of}" if self.of else "")


@dataclass(frozen=True)
class Now:
    """What is known of a running task beside its Outcome."""

    at: datetime
    attempts: Mapping[str, Attempt] = field(default_factory=dict)
    """By step id."""


class Columns:
    """How wide the parts of a task's rows are, so that they stand below each other."""

    def __init__(self, outcome: Outcome, width: int = WIDTH) -> None:
        """Measure all steps for a terminal of `width` columns; a wide one shows longer titles."""
        self.width = width
        self._ids = _widest(outcome, lambda step: step.id, MAX_ID)
        self._kinds = _widest(outcome, kind, MAX_KIND)
        longest = max((cell_len(self._what(step)) for step in outcome.steps), default=0)
        self._room = max(LEAST, min(width - WIDTH + USUAL, max(USUAL, longest)))

    def row(self, step: OutcomeStep, state: str, time: str) -> str:
        """Sign, id, kind and title, then the state and the time at the right."""
        tail = f"{state:>11} {time:>9}"
        room = self._room - (len(tail) - TAIL)
        return f"  {SIGNS[step.status]} {pad(cut(self._what(step), room), room)} {tail}".rstrip()

    def _what(self, step: OutcomeStep) -> str:
        names = f"{pad(step.id, self._ids[step.revision])} {pad(kind(step), self._kinds[step.revision])}"
        return f"{printable(names)} {one_line(step.title)}"


def lines(outcome: Outcome, step: OutcomeStep, columns: Columns, now: Now | None = None) -> list[str]:
    """The row of a step, and below it what went wrong and what followed."""
    attempt = now.attempts.get(step.id) if now and step.status is StepStatus.RUNNING else None
    said = [columns.row(step, _state(step, attempt), _time(step, now))]
    faults = [fault for fault in outcome.faults if fault.step_id == step.id and fault.revision == step.revision]
    retried = [fault for fault in faults if fault.decision == "retry"]
    if retried:
        said.append("    " + _retries(retried))
    if silent := without_word(outcome, step):
        left = f"{silent} attempt{'' if silent == 1 else 's'} left no word"
        said.append(f"    {left} (worker lost or timed out)")
    for fault in faults:
        if fault.decision != "retry":
            said += [f"    {fault.code}: {cut(one_line(fault.reason), MAX_REASON)}", f"    {_follows(outcome, fault)}"]
    return said + (_again(attempt, now) if attempt and now else [])


def without_word(outcome: Outcome, step: OutcomeStep) -> int:
    """How many attempts before its last one ended without a fault that anybody could record."""
    told = [
        fault
        for fault in outcome.faults
        if fault.step_id == step.id and fault.revision == step.revision and fault.attempt
    ]
    counted = [fault.decision for fault in told if fault.code is not Code.WORKER_SHUTDOWN]
    retried = counted.count("retry")
    was_found = bool(told) and told[-1].reconciled == "applied"
    last = step.status in (StepStatus.COMPLETED, StepStatus.CANCELLED, StepStatus.UNDONE) and not was_found
    return max(0, step.attempts - retried - max(1, len(counted) - retried + last))


def _follows(outcome: Outcome, fault: FaultRecord) -> str:
    """What followed a fault; a task that ended before a new plan came had none."""
    replanned = any(revision.number > fault.revision for revision in outcome.revisions)
    if fault.decision == "escalate" and fault.effect in TO_A_PERSON:
        return TO_A_PERSON[fault.effect]
    known = FOUND if fault.reconciled in ("applied", "not_applied") else FOLLOWS
    if fault.decision == "replan" and outcome.ended_at and not replanned:
        return known["end"]
    said = known[fault.decision]
    return said.replace(NEW_PLAN, NEXT_TURN) if outcome.strategy == "react" and fault.decision == "replan" else said


def kind(step: OutcomeStep) -> str:
    """The kind that a step uses, marked where it is not the planned one."""
    return f"{step.kind} (fallback)" if step.is_fallback else step.kind


def duration(seconds: float, digits: int = 2) -> str:
    """`0.66 s`, `2 min 05 s`, `1 h 02 min`."""
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{max(0.0, seconds):.{digits}f} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"


def _widest(outcome: Outcome, name: Callable[[OutcomeStep], str], most: int) -> dict[int, int]:
    widths = dict[int, int]()
    for step in outcome.steps:
        widths[step.revision] = max(widths.get(step.revision, 0), min(cell_len(name(step)), most))
    return widths


def _state(step: OutcomeStep, attempt: Attempt | None) -> str:
    if attempt:
        return attempt.words
    as_it_is = (StepStatus.PENDING, StepStatus.WAITING, StepStatus.SKIPPED, StepStatus.UNDONE)
    if step.status in as_it_is or not step.attempts:
        return step.status.value
    return f"{step.attempts} attempt{'' if step.attempts == 1 else 's'}"


def _time(step: OutcomeStep, now: Now | None) -> str:
    if step.started is None:
        return ""
    if step.ended is not None:
        return duration((step.ended - step.started).total_seconds())
    return duration((now.at - step.started).total_seconds(), digits=1) if now else ""


def _again(attempt: Attempt, now: Now) -> list[str]:
    """Why it is not the first attempt, and when it comes."""
    if attempt.code is None:
        return []
    wait = (attempt.due - now.at).total_seconds() if attempt.due else 0
    return [f"    {attempt.code}, again in {duration(wait, 1)}" if wait > 0 else f"    after {attempt.code}"]


def _retries(faults: Sequence[FaultRecord]) -> str:
    codes = dict.fromkeys(fault.code for fault in faults)
    counted = [f"{code} {_times(sum(fault.code is code for fault in faults))}" for code in codes]
    waits = [f"{fault.waited:.2f} s" for fault in faults if fault.waited is not None]
    return f"{', '.join(counted)}, waited {' and '.join(waits)}" if waits else ", ".join(counted)


def _times(number: int) -> str:
    return {1: "once", 2: "twice"}.get(number, f"{number} times")
