"""What happened to the planning itself: planners that could not be used, and conversations that grew too long."""

from collections.abc import Iterator

from console.cells import cut, one_line
from console.headings import turn
from workflows.outcome import Outcome
from workflows.record import Compaction, Revision

MAX_REASON = 400
"""Cells of the reason why a planner could not be used."""


def failovers(outcome: Outcome) -> dict[tuple[str, str], list[str]]:
    """What is said of each planner that could not be used, once for each reason, however often it was tried."""
    told = dict[tuple[str, str], list[str]]()
    for one in outcome.failovers:
        took_over = f"; {one_line(outcome.planner)} took over" if outcome.planner not in ("", one.planner) else ""
        reason = cut(one_line(one.reason), MAX_REASON).rstrip(".")
        head = f"  ! {one_line(one.planner)} could not be used ({one_line(one.code)})"
        told.setdefault((one.planner, one.code), [head, f"    {reason}{took_over}"])
    return told


def compaction(one: Compaction) -> str:
    """That the oldest turns of a conversation were summarised."""
    oldest = "the oldest turn" if one.turns == 1 else f"the oldest {one.turns} turns"
    return f"  ≡ {oldest} summarised at turn {one.turn}: the conversation had {one.tokens:,} tokens"


def compactions_before(outcome: Outcome, revision: Revision | None) -> Iterator[Compaction]:
    """The compactions that stand above a revision and below the one before; for None, below all."""
    below = [one for one in outcome.revisions if revision is None or one.number < revision.number]
    since = _turn(outcome, below[-1]) if below else 0
    until = _turn(outcome, revision) if revision else float("inf")
    return (one for one in outcome.compactions if since < one.turn <= until)


def _turn(outcome: Outcome, revision: Revision) -> int:
    """At which turn it was proposed, at the earliest: a plan does not say how often it had been sent back."""
    return turn(outcome, revision) or revision.number
