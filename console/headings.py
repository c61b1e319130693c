"""The lines above the steps of a plan or, where a model makes one move at a time, of a turn. Pure functions."""

import re
from collections.abc import Iterable

from console.cells import cut, one_line, printable
from workflows.outcome import Outcome
from workflows.record import Revision

MAX_BECAUSE = 400
"""Cells of a planner's reason."""
MANY_TURNS = 12
"""Turns beyond which one that only goes on has no heading: the ids of its steps begin with its number."""
OF_TURN = re.compile(r"t(\d+)\.c\d+(\.b\d+)?")
"""The id of a step that a model called for by itself: `t7.c0`."""


def turn(outcome: Outcome, revision: Revision) -> int | None:
    """The number of the turn that a revision is; None for a plan."""
    if outcome.strategy != "react":
        return None
    return of_turn(step.id for step in outcome.steps if step.revision == revision.number)


def of_turn(ids: Iterable[str]) -> int | None:
    """The number of the turn in which a model called for these steps; None where it planned them."""
    return next((int(found[1]) for found in map(OF_TURN.fullmatch, ids) if found), None)


def name(outcome: Outcome, revision: Revision) -> str:
    """`Plan 2`, `Turn 7`."""
    number = turn(outcome, revision)
    return f"Plan {revision.number}" if number is None else f"Turn {number}"


def lines(outcome: Outcome, revision: Revision) -> list[str]:
    """The lines above its steps; none above one of many turns that went on as the ones before."""
    said = one_line(revision.because)
    facts = _facts(outcome, revision)
    if turn(outcome, revision) is not None and not facts:
        is_shown = revision is outcome.revisions[0] or len(outcome.revisions) <= MANY_TURNS
        return [cut("  ".join(filter(None, [name(outcome, revision), said])), MAX_BECAUSE)] if is_shown else []
    because = [f"    {cut(said, MAX_BECAUSE)}"] if said else []
    return [printable("  ".join(filter(None, [name(outcome, revision), "; ".join(facts)]))), *because]


def _facts(outcome: Outcome, revision: Revision) -> list[str]:
    """Whose it is where that is another than before, why it came, and what was kept."""
    before = next((one.planner for one in reversed(outcome.revisions) if one.number < revision.number), "")
    is_new = bool(before and revision.planner) and revision.planner not in before.split(", ")
    facts = [f"by {revision.planner}"] if is_new else []
    if revision.refused:
        refused = ", ".join(revision.refused)
        facts.append(f"because {refused} {'was' if len(revision.refused) == 1 else 'were'} refused")
        facts += [f"{_kept(revision.kept)} kept"] if revision.kept else []
        facts += [f"looked again with {', '.join(revision.looked)}"] if revision.looked else []
    return facts


def _kept(ids: tuple[str, ...]) -> str:
    return ", ".join(ids) if len(ids) <= 8 else f"{len(ids)} steps"
