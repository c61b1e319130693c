"""The report of one run of `benchmarks.steps`: its JSON document and its table."""

from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field
from rich.table import Table

from benchmarks.figures import Figure
from benchmarks.goals import BARE, DEFAULT, GOALS, REPLAN, Verdict, ratio
from benchmarks.machine import Machine
from benchmarks.rounds import Samples
from benchmarks.work import Sizes

TITLES = {
    DEFAULT: "bare, default server",
    BARE: "bare, our server",
    REPLAN: "Replan, our server",
}
ROWS = {
    "step_ms": "each additional sequential step, ms",
    "first_step_ms": "start to first step, ms",
    "task_ms": "a whole task of one step, ms",
    "steps_per_s": "100 tasks of 5 steps, steps/s",
    "parallel_ms": "20 parallel steps, ms",
    "parallel_task_ms": "the whole task of these 20, ms",
    "retry_added_ms": "two retries: added to the backoff, ms",
    "backoff_ms": "the backoff itself, ms",
    "events": "history events a step",
    "bytes": "history bytes a step",
    "worker_cpu_ms": "CPU of the worker a step, ms",
    "server_cpu_ms": "CPU of the server a step, ms",
    "worker_peak_mb": "peak memory of the worker, MB",
    "server_peak_mb": "peak memory of the server, MB",
    "calculate_ms": "a pure step (calculate), ms",
}
"""What was measured, in the words of the table."""
MEANS = frozenset({"worker_cpu_ms", "server_cpu_ms"})
"""Measured in steps of 10 ms, so that only the mean over the rounds says something."""


class Report(BaseModel):
    """One run."""

    model_config = ConfigDict(frozen=True)

    schema_: Literal[1] = Field(default=1, alias="schema")
    machine: Machine
    load_before: float
    load_after: float
    rounds: int
    sizes: Sizes
    arms: dict[str, dict[str, Figure | None]]
    """Arm, then what was measured."""
    ratios: dict[str, dict[str, float | None]]
    """What was measured, then Replan over each bare arm."""
    goals: tuple[Verdict, ...]

    @classmethod
    def of(cls, samples: Mapping[str, Samples], sizes: Sizes, rounds: int, loads: tuple[float, float]) -> "Report":
        """Sum the samples up."""
        arms = {arm: {name: _figure(name, measured) for name in ROWS} for arm, measured in samples.items()}
        ratios = {name: {arm: ratio(arms, name, REPLAN, arm) for arm in (DEFAULT, BARE)} for name in ROWS}
        return cls(
            machine=Machine.this(),
            load_before=loads[0],
            load_after=loads[1],
            rounds=rounds,
            sizes=sizes,
            arms=arms,
            ratios=ratios,
            goals=tuple(goal.judged(arms) for goal in GOALS),
        )

    def table(self) -> Table:
        """The figures for people: medians, in brackets the smallest and the largest of the rounds."""
        table = Table("", *(TITLES[arm] for arm in self.arms), "of default", "of bare")
        for name, title in ROWS.items():
            figures = [str(figure) if (figure := self.arms[arm][name]) else "" for arm in self.arms]
            table.add_row(title, *figures, *(_times(self.ratios[name][arm]) for arm in (DEFAULT, BARE)))
        return table


def _figure(name: str, measured: Samples) -> Figure | None:
    values = measured.get(name, [])
    return Figure.of([sum(values) / len(values)] if name in MEANS and values else values)


def _times(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
