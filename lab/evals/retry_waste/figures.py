"""The pictures of docs/retry-waste.md; needs matplotlib (extra `benchmarks`), which only this module imports."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure as Canvas

from evals.retry_waste.arms import ARMS
from evals.retry_waste.measures import Row, Verdict
from evals.retry_waste.published import PUBLISHED_SEED, Side, Sides, simulate
from evals.retry_waste.report import OUTCOMES

COLOURS = ("#009E73", "#56B4E9", "#E69F00", "#D55E00", "#999999")
"""Of Okabe and Ito, which colour-blind readers tell apart."""
BLACK = "#000000"
DOTS_PER_INCH = 100
Series = Mapping[str, Callable[[Row], float]]

VERDICTS: Series = {ratio.name: ratio.above for ratio in OUTCOMES[: len(Verdict)]}
LABELS: Series = {
    "first calls": lambda row: row.calls.attempts - row.calls.retries,
    "retries that helped": lambda row: row.calls.helped,
    "retries that could have helped": lambda row: row.calls.possible,
    "retries that could not help": lambda row: row.calls.futile,
}


def draw_arms(rows: Sequence[Row], folder: Path) -> None:
    """Draw what became of the orders, and the calls of a task by their labels, as one bar for each arm."""
    _draw_bars(rows, VERDICTS, "share of the orders", folder / "retry-waste-outcomes.png")
    _draw_bars(rows, LABELS, "calls per task", folder / "retry-waste-calls.png")


def _draw_bars(rows: Sequence[Row], series: Series, title: str, file: Path) -> None:
    names = [name for name in ARMS if any(row.arm == name for row in rows)]
    canvas = Canvas(figsize=(8, 1.5 + 0.45 * len(names)), layout="constrained")
    axes = canvas.subplots()
    begins = [0.0] * len(names)
    for colour, (label, value) in zip(COLOURS, series.items(), strict=False):
        means = [_mean([value(row) for row in rows if row.arm == name]) for name in names]
        axes.barh([ARMS[name].title for name in names], means, left=begins, color=colour, label=label)
        begins = [begin + mean for begin, mean in zip(begins, means, strict=True)]
    axes.invert_yaxis()
    axes.set_xlabel(title)
    canvas.legend(loc="outside upper center", ncols=3, fontsize=8)
    canvas.savefig(file, dpi=DOTS_PER_INCH)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def draw_published(runs: Sequence[Sides], folder: Path) -> None:
    """Draw how the published figures vary over seeds, with the published seed as a line."""
    canvas = Canvas(figsize=(8, 3), layout="constrained")
    ours = simulate(PUBLISHED_SEED).react
    figures: Mapping[str, Callable[[Side], float]] = {
        "ReAct success, of 200": lambda side: side.successes,
        "ReAct retries": lambda side: side.retries,
        "ReAct wasted share": lambda side: side.waste,
    }
    for axes, (title, value) in zip(canvas.subplots(1, len(figures), sharey=True), figures.items(), strict=True):
        values = [value(run.react) for run in runs]
        is_count = title.startswith("ReAct success")  # bins of 2: of any other width some hold more whole numbers
        bins = range(int(min(values)), int(max(values)) + 3, 2) if is_count else 20
        axes.hist(values, bins=bins, color=COLOURS[1])
        axes.axvline(value(ours), color=BLACK, linestyle="--", label=f"seed {PUBLISHED_SEED}, as published")
        axes.set_xlabel(title)
    axes.legend(fontsize=7)
    canvas.savefig(folder / "retry-waste-published.png", dpi=DOTS_PER_INCH)
