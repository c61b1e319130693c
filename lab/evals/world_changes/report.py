"""The tables of the runs, and what does not hold."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from math import sqrt

from evals.markdown import table
from evals.world_changes.families import FAMILIES
from evals.world_changes.minds import Planner
from evals.world_changes.mutations import MUTATIONS
from evals.world_changes.scenario import Scenario
from evals.world_changes.trial import Row

Z = 1.96
"""Of a normal distribution, for 95%."""


def interval(held: int, number: int) -> tuple[float, float]:
    """The 95% interval of a share, as Wilson (1927) has it."""
    share, square = held / number, Z * Z / number
    middle = (share + square / 2) / (1 + square)
    half = Z * sqrt(share * (1 - share) / number + square / (4 * number)) / (1 + square)
    return max(0.0, middle - half), min(1.0, middle + half)


def pages(rows: Sequence[Row]) -> Iterator[str]:
    """The tables of these runs, in Markdown."""
    plain, mutated = ([row for row in rows if (row.mutation is None) is is_plain] for is_plain in (True, False))
    if plain:
        yield "**Runs that hold, by family and planner** (of how many; of the planner, the share with its 95% interval)"
        yield _by_planner(plain)
        yield "**What the runs came to**"
        yield _by_scenario(plain)
    if mutated:
        yield "**Without one part of Replan**"
        yield _by_mutation(mutated)


def failures(rows: Sequence[Row], scenarios: Sequence[Scenario]) -> list[str]:
    """What does not hold, a sentence each."""
    found = [
        f"{row.scenario} with {row.planner}: {judged} does not hold: {why}."
        for row in rows
        if row.mutation is None
        for judged, why in row.broken.items()
    ]
    found += [
        f"{row.scenario} without its part ({row.mutation}): everything holds all the same."
        for row in rows
        if row.mutation is not None and not row.broken
    ]
    stubborn = [row for row in rows if row.planner == Planner.STUBBORN and row.mutation is None]
    whole = {scenario.name for scenario in scenarios} <= {row.scenario for row in stubborn}
    without = {row.family for row in stubborn} - {row.family for row in stubborn if row.met_guard}
    found += [f"The stubborn model did not meet the guard in the family {name}." for name in sorted(without) if whole]
    return found


def _by_planner(rows: Sequence[Row]) -> str:
    planners = list(dict.fromkeys(row.planner for row in rows))
    lines = []
    for planner in planners:
        mine = [row for row in rows if row.planner == planner]
        cells = [_held([row for row in mine if row.family == family]) for family in FAMILIES]
        low, high = interval(sum(not row.broken for row in mine), len(mine))
        guard = f"{sum(row.met_guard for row in mine)}"
        share = f"{sum(not row.broken for row in mine) / len(mine):.0%} [{low:.0%}, {high:.0%}]"
        lines.append([planner, *cells, share, guard])
    return table(["planner", *(family.replace("_", " ") for family in FAMILIES), "all", "met the guard"], lines)


def _held(rows: Sequence[Row]) -> str:
    return f"{sum(not row.broken for row in rows)} of {len(rows)}" if rows else "-"


def _by_scenario(rows: Sequence[Row]) -> str:
    of_scenario = defaultdict[str, list[Row]](list)
    order = [*FAMILIES]
    for row in sorted(rows, key=lambda row: (order.index(row.family), row.scenario)):
        of_scenario[row.scenario].append(row)
    lines = []
    for name, mine in of_scenario.items():
        ends = dict.fromkeys(f"{row.status} ({row.code})" if row.code else row.status for row in mine)
        calls, replans = (sorted(values) for values in zip(*((row.calls, row.replans) for row in mine), strict=True))
        broken = dict.fromkeys(judged for row in mine for judged in row.broken)
        lines.append([name, _held(mine), ", ".join(ends), _span(calls), _span(replans), ", ".join(broken) or "none"])
    return table(["scenario", "hold", "ended as", "calls", "replans", "broken"], lines)


def _span(values: Sequence[int]) -> str:
    return str(values[0]) if values[0] == values[-1] else f"{values[0]} to {values[-1]}"


def _by_mutation(rows: Sequence[Row]) -> str:
    lines = []
    for name in dict.fromkeys(row.mutation for row in rows):
        mutation, mine = MUTATIONS[name or ""], [row for row in rows if row.mutation == name]
        failed = sorted(row.scenario for row in mine if row.broken)
        counts = Counter(judged.value for row in mine for judged in row.broken)
        lost = ", ".join(f"{judged} {number}" for judged, number in counts.most_common())
        lines.append([mutation.title, mutation.planner, f"{len(failed)} of {len(mine)}", lost, ", ".join(failed)])
    return table(["without", "planner", "fail", "what does not hold", "scenarios"], lines)
