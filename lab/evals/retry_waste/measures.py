"""What a task came to: labelled by the tape's journal and the world's state, never by the arm."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Literal

from pydantic import BaseModel

from evals.retry_waste.orders import Order
from evals.tape.desk import TOOLS, State
from evals.tape.tape import Point, Trouble
from evals.tape.world import Entry

Claim = Literal["done", "failed", "none"]
"""What an arm says of an order; `none` if the deadline cut it off."""


class Verdict(StrEnum):
    """What became of an order, verified against the world."""

    CORRECT = "correct"
    DEGRADED = "degraded"
    """Done with the price of the old list."""
    FAILED = "explicit failure"
    WRONG = "silently wrong"
    """The arm says that it is done, and it is not, or an effect is there twice."""
    CUT_OFF = "cut off"

    @property
    def is_result(self) -> bool:
        return self in (Verdict.CORRECT, Verdict.DEGRADED)


class Own(BaseModel, frozen=True):
    """What only the arm can tell."""

    claim: Claim
    seconds: float
    model_calls: int = 0
    tokens: int = 0
    replans: int = 0
    events: int = 0
    bytes: int = 0
    """Of the workflow's history."""
    reason: str = ""


class Calls(BaseModel, frozen=True):
    """The calls of a task, counted from the journal."""

    attempts: int = 0
    retries: int = 0
    """Calls after a failure of the same call, with equal arguments."""
    helped: int = 0
    """Retries that succeeded."""
    possible: int = 0
    """Retries that failed, but could have succeeded: what they repeat was transient, or the world has changed."""
    futile: int = 0
    """Retries that could not succeed: the same call against the same state after a persistent fault."""
    transient: int = 0
    """Failures that a retry may cure; those not among them whose effect was applied, and only the answer is missing."""
    retried: int = 0
    """Those of them that were followed by the same call."""
    lies: int = 0
    """Errors whose label is the opposite of the truth."""
    outage: int = 0
    """Calls into an outage."""
    repeated: int = 0
    """Calls whose equal call had already given its result to the caller."""
    made_up: int = 0
    """Calls of tools that do not exist."""
    kills: int = 0

    @property
    def missed(self) -> int:
        return self.transient - self.retried


class Row(BaseModel, frozen=True):
    """One task of one arm."""

    arm: str
    seed: int
    task: str
    setting: str
    """The tape and the hallucination rate, as a digest: rows of other settings are not compared."""
    verdict: Verdict
    duplicates: int
    own: Own
    calls: Calls


def count(entries: Iterable[Entry]) -> Calls:
    """Count the calls of one task."""
    groups, counted = defaultdict[tuple[str, str], list[Entry]](list), defaultdict[str, int](int)
    for entry in entries:
        groups[entry.tool, entry.args].append(entry)
        counted["attempts"] += 1
        counted["lies"] += entry.is_lie
        counted["outage"] += entry.trouble is Trouble.OUTAGE
        counted["made_up"] += entry.tool not in TOOLS
        counted["kills"] += entry.point in (Point.KILL_BEFORE, Point.KILL_AFTER)
    for group in groups.values():
        for number, entry in enumerate(group):
            before = group[number - 1] if number else None
            for name in _labels(before, entry):
                counted[name] += 1
            if entry.is_transient and not (entry.is_success or entry.applied):
                counted["transient"] += 1
                counted["retried"] += number + 1 < len(group)
    return Calls(**counted)


def _labels(before: Entry | None, entry: Entry) -> Sequence[str]:
    if before is None or before.is_absence:
        return ()
    if before.is_success:
        return ("repeated",)
    if entry.is_success:
        return ("retries", "helped")
    is_same = not before.is_transient and before.version == entry.version
    return ("retries", "futile" if is_same else "possible")


def verdict(order: Order, state: State, entries: Sequence[Entry], claim: Claim) -> tuple[Verdict, int]:
    """What became of an order, and how many effects are there more often than once."""
    bookings, notes = [booking.at for booking in state.bookings], state.notes
    duplicates = max(0, len(bookings) - 1) + max(0, len(notes) - 1)
    if claim == "none":
        return Verdict.CUT_OFF, duplicates
    if claim == "failed":
        return Verdict.FAILED, duplicates
    read = {entry.tool for entry in entries if entry.is_success}
    is_booked = not order.wants_slot or bool(bookings)
    is_noted = any(note == order.note(at) for note in notes for at in bookings or ("",))
    is_priced = not order.wants_price or bool(read & {"get_price", "get_list_price"})
    if duplicates or not (is_booked and is_noted and is_priced):
        return Verdict.WRONG, duplicates
    return Verdict.DEGRADED if order.wants_price and "get_price" not in read else Verdict.CORRECT, 0
