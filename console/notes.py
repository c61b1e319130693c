"""What happened to the planning itself: planners and proposals that were not used, conversations that grew too long."""

import re
from collections.abc import Iterator, Sequence

from console.cells import cut, one_line
from console.headings import OF_TURN, turn
from workflows.outcome import Outcome
from workflows.record import Compaction, Rejection, Revision

MAX_REASON = 400
"""Cells of the reason why a planner, or what it proposed, could not be used."""
PLAN_REFUSED = "plan_refused"
"""The code of a task whose hand-written plan was rejected: the reason of its end says it all."""
_OF_CALL = re.compile(rf"step '{OF_TURN.pattern}': ")
"""Which call of a turn a reason is about: nobody has seen the id of a call that was never made."""


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


def rejections(outcome: Outcome) -> Sequence[Rejection]:
    """The proposals that were not used and of which the end of the task does not tell."""
    return () if outcome.code == PLAN_REFUSED else outcome.rejections


def rejection(outcome: Outcome, one: Rejection) -> str:
    """That nothing of a proposal was carried out, and why."""
    what = "Turn" if outcome.strategy == "react" else "Proposal"
    reasons = "; ".join(_OF_CALL.sub("", one_line(reason)) for reason in one.reasons)
    return f"  ! {what} {one.turn} not used: {cut(reasons, MAX_REASON)}"


def above(outcome: Outcome, revision: Revision | None) -> Iterator[tuple[Compaction | Rejection, str]]:
    """What stands above a revision and below the one before, with its line; for None, below all."""
    below = [one for one in outcome.revisions if revision is None or one.number < revision.number]
    since = _turn(outcome, below[-1]) if below else 0
    until = _turn(outcome, revision) if revision else float("inf")
    found: list[Compaction | Rejection] = [*outcome.compactions, *rejections(outcome)]
    for one in sorted(found, key=lambda one: one.turn):
        if since < one.turn <= until:
            yield one, rejection(outcome, one) if isinstance(one, Rejection) else compaction(one)


def _turn(outcome: Outcome, revision: Revision) -> int:
    """At which turn it was proposed: a plan does not say it, but what else the other turns were is known."""
    number = turn(outcome, revision)
    if number is not None:
        return number
    others = {one.turn for one in outcome.rejections}
    others |= {at for one in outcome.compactions for at in (one.turn - 1, one.turn)}  # that it is needed, and itself
    number = revision.number
    for other in sorted(others):
        number += other <= number
    return number
