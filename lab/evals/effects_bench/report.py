"""The tables: what each arm came to, by arm and by fault."""

from collections.abc import Callable, Iterator, Sequence

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
)


def pages(played: Sequence[Verdict]) -> Iterator[str]:
    """The tables, in Markdown; the best value of a column is bold."""
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


def _cell(value: float, text: str = "", *, is_best: bool) -> str:
    text = text or f"{value:.0f}"
    return f"**{text}**" if is_best else text


def _of_fault(played: Sequence[Verdict], fault: str) -> str:
    """Of the trials with a fault: how many have an effect twice, and how many lost one silently."""
    some = [one for one in played if one.fault == fault]
    twice, lost = sum(bool(one.twice) for one in some), sum(bool(one.lost) for one in some)
    bad = ", ".join(f"{number} {what}" for what, number in (("twice", twice), ("lost", lost)) if number)
    return f"{bad or '-'} of {len(some)}" if some else ""
