"""The pictures of `docs/performance.md`; needs matplotlib, which only this module and `flames` import."""

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from benchmarks.growth import GrowthReport
from benchmarks.steps import BARE, DEFAULT, StepsReport

BARS = {
    "step_ms": "each additional step",
    "parallel_ms": "20 parallel steps",
    "retry_added_ms": "added to a retry's backoff",
    "first_step_ms": "start to first step",
    "worker_cpu_ms": "worker CPU a step",
    "server_cpu_ms": "server CPU a step",
    "events": "events a step",
    "bytes": "bytes a step",
}
DOTS_PER_INCH = 100


def draw_steps(report: StepsReport, file: Path) -> None:
    """Draw as bars how many times what the bare SDK takes Replan takes: shorter is better."""
    canvas = Canvas(figsize=(8, 4.5), layout="constrained")
    axes = canvas.subplots()
    for shift, arm, title in ((0.2, BARE, "bare, same server"), (-0.2, DEFAULT, "bare, default server")):
        ratios = [report.ratios[name][arm] or 0.0 for name in BARS]
        bars = axes.barh([place + shift for place in range(len(BARS))], ratios, height=0.4, label=f"of {title}")
        axes.bar_label(bars, fmt="%.2f", padding=3, fontsize=8)
    axes.axvline(1.0, color="black", linewidth=0.8)
    axes.set_yticks(range(len(BARS)), BARS.values())
    axes.invert_yaxis()
    axes.set_xlabel("Replan takes so many times what the bare SDK takes")
    axes.margins(x=0.08)  # room for the numbers behind the bars
    canvas.legend(loc="outside upper right", ncols=2)
    canvas.savefig(file, dpi=DOTS_PER_INCH)


def draw_growth(report: GrowthReport, file: Path) -> None:
    """Draw the time of each hundred steps, and the worker's memory at its end."""
    canvas = Canvas(figsize=(8, 4.5), layout="constrained")
    above, below = canvas.subplots(2, sharex=True)
    steps = [one.steps for one in report.hundreds]
    _line(above, steps, [one.seconds for one in report.hundreds], "seconds per 100 steps")
    _line(below, steps, [one.worker_mb for one in report.hundreds], "worker, MB")
    below.set_xlabel("steps of one task")
    canvas.savefig(file, dpi=DOTS_PER_INCH)


def _line(axes: Axes, steps: list[int], values: list[float], title: str) -> None:
    axes.plot(steps, values)
    axes.set_ylim(bottom=0)
    axes.set_ylabel(title)
    axes.grid(alpha=0.3)
