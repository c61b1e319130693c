"""The tables: what each arm came to, by arm and by fault, and how two arms differ in the same trials."""

import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

from evals.effects_bench.judge import Verdict
from evals.effects_bench.trial import FAULTS
from evals.markdown import table

COLUMNS: tuple[tuple[str, Callable[[Verdict], float]], ...] = (
    ("effects twice", lambda one: one.twice),
    ("lost, and nobody is told", lambda one: one.lost),
    ("not made, and somebody is told", lambda one: one.named),
    ("wrong", lambda one: one.wrong),
    ("calls that could not succeed", lambda one: one.futile),
    ("refused because of an own call", lambda one: one.phantom),
    ("ends at a person, or gives up", lambda one: one.asked),
    ("needlessly", lambda one: one.needless),
    ("needless turns", lambda one: one.replans),
    ("tasks that hang", lambda one: one.hangs),
    ("answers that came late", lambda one: one.late),
)
SHARES: tuple[tuple[str, Callable[[Verdict], bool]], ...] = (
    ("trials with an effect twice", lambda one: one.twice > 0),
    ("with one lost, and nobody is told", lambda one: one.lost > 0),
    ("that end at a person, or give up", lambda one: one.asked),
    ("with the world as wanted", lambda one: one.is_right),
)
PAIRS = (
    ("replan_functions", "langgraph_keys"),
    ("replan_functions", "agent_once_verify"),
    ("langgraph_gateway", "langgraph_mcp"),
    ("langgraph_gateway_keys", "langgraph_mcp_keys"),
    ("temporal_faults", "temporal"),
    ("replan_tasks", "temporal_mcp"),
    ("replan_tasks_keys", "temporal_mcp_keys"),
    ("replan_tasks_keys", "pydantic_ai_temporal_keys"),
    ("replan_tasks_keys", "dbos_keys"),
)
"""Of each pair, an arm of ours, and one that is most like it without."""
RESAMPLES = 2_000
By = Mapping[tuple[str, str], Sequence[float]]
"""By task, one value a trial."""


def pages(played: Sequence[Verdict]) -> Iterator[str]:
    """The tables, in Markdown; the best value of a column is bold."""
    played = [one for one in played if not one.broken]
    arms = list(dict.fromkeys(one.arm for one in played))
    by_arm = {arm: [one for one in played if one.arm == arm] for arm in arms}
    sums = {arm: [sum(map(of, by_arm[arm])) for _, of in COLUMNS] for arm in arms}
    right = {arm: sum(one.is_right for one in by_arm[arm]) for arm in arms}
    best = [min(sums[arm][number] for arm in arms) for number in range(len(COLUMNS))]
    lines = list[list[str]]()
    for arm in arms:
        cells = [_cell(value, is_best=value == least) for value, least in zip(sums[arm], best, strict=True)]
        world = _cell(right[arm], f"{right[arm]} of {len(by_arm[arm])}", is_best=right[arm] == max(right.values()))
        seconds = sorted(one.seconds for one in by_arm[arm])
        thousands = sum(one.characters for one in by_arm[arm]) / len(by_arm[arm]) / 1000
        lines.append([arm, *cells, world, f"{seconds[len(seconds) // 2]:.1f}", f"{thousands:.0f}"])
    head = [name for name, _ in COLUMNS]
    yield table(["arm", *head, "world as wanted", "median s", "characters to the model, thousands"], lines)
    yield table(["arm", *FAULTS], [[arm, *(_of_fault(by_arm[arm], fault) for fault in FAULTS)] for arm in arms])
    yield table(
        ["arm", *(name for name, _ in SHARES)],
        [[arm, *(_share(_by_task(by_arm[arm], of)) for _, of in SHARES)] for arm in arms],
    )
    if pairs := [pair for pair in PAIRS if all(arm in by_arm for arm in pair)]:
        lines = [[f"{ours} less {other}", *_differences(by_arm[ours], by_arm[other])] for ours, other in pairs]
        yield table(["the same trials", *(name for name, _ in SHARES)], lines)


def _by_task(played: Sequence[Verdict], of: Callable[[Verdict], float]) -> By:
    found = defaultdict[tuple[str, str], list[float]](list)
    for one in sorted(played, key=lambda one: one.seed):
        found[one.suite, one.task].append(float(of(one)))
    return found


def _share(values: By, sign: str = "") -> str:
    """Their mean, with the central 95% of a bootstrap over tasks, in percent."""
    dice, tasks = random.Random(0), sorted(values)  # noqa: S311  # a bootstrap, no secret
    drawn = sorted(_mean(values, dice.choices(tasks, k=len(tasks))) for _ in range(RESAMPLES))
    low, high = (drawn[round(share * (RESAMPLES - 1))] for share in (0.025, 0.975))
    return f"{_mean(values, tasks):{sign}.0%} [{low:{sign}.0%}, {high:{sign}.0%}]"


def _mean(values: By, tasks: Sequence[tuple[str, str]]) -> float:
    return sum(sum(values[task]) for task in tasks) / sum(len(values[task]) for task in tasks)


def _differences(ours: Sequence[Verdict], others: Sequence[Verdict]) -> Iterator[str]:
    """Of the trials that both have played."""
    for _, of in SHARES:
        mine = {(one.suite, one.task, one.fault, one.seed): of(one) for one in ours}
        theirs = {(one.suite, one.task, one.fault, one.seed): of(one) for one in others}
        found = defaultdict[tuple[str, str], list[float]](list)
        for suite, task, fault, seed in sorted(mine.keys() & theirs.keys()):
            found[suite, task].append(mine[suite, task, fault, seed] - theirs[suite, task, fault, seed])
        yield _share(found, "+") if found else "-"


def _cell(value: float, text: str = "", *, is_best: bool) -> str:
    text = text or f"{value:.0f}"
    return f"**{text}**" if is_best else text


def _of_fault(played: Sequence[Verdict], fault: str) -> str:
    """Of the trials with a fault: how many have an effect twice, and how many lost one silently."""
    some = [one for one in played if one.fault == fault]
    twice, lost = sum(bool(one.twice) for one in some), sum(bool(one.lost) for one in some)
    bad = ", ".join(f"{number} {what}" for what, number in (("twice", twice), ("lost", lost)) if number)
    return f"{bad or '-'} of {len(some)}" if some else ""
