"""The goals: what Replan promises of its speed, each judged by the figures of one run."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict

from benchmarks.figures import Figure

DEFAULT, BARE, REPLAN = "bare_default", "bare", "replan"
"""The arms: bare on the server's defaults, bare on our settings, Replan on our settings."""

Figures = Mapping[str, Mapping[str, Figure | None]]
"""Arm, then what was measured."""


class Verdict(BaseModel):
    """Whether a goal was met."""

    model_config = ConfigDict(frozen=True)

    goal: str
    limit: float
    value: float | None
    """None where it could not be measured."""
    met: bool

    def __str__(self) -> str:
        """One line for people."""
        if self.value is None:
            return f"not measured: {self.goal}"
        by = f" by {self.value / self.limit - 1:.0%}" if self.limit else ""
        return f"{'met' if self.met else f'missed{by}'}: {self.goal}: {self.value:.3g}"


@dataclass(frozen=True)
class Goal:
    """A value that must not be larger than `limit`."""

    text: str
    limit: float
    value: Callable[[Figures], float | None]

    def judged(self, figures: Figures) -> Verdict:
        """Hold the figures against it."""
        value = self.value(figures)
        met = value is not None and value <= self.limit
        return Verdict(goal=self.text, limit=self.limit, value=value, met=met)


def ratio(figures: Figures, name: str, of: str, to: str) -> float | None:
    """The median of one arm over that of another; None where one of them was not measured."""
    upper, lower = figures[of].get(name), figures[to].get(name)
    return upper.median / lower.median if upper and lower and lower.median else None


def _ratio(name: str, of: str, to: str) -> Callable[[Figures], float | None]:
    return lambda figures: ratio(figures, name, of, to)


def _median(name: str) -> Callable[[Figures], float | None]:
    return lambda figures: figure.median if (figure := figures[REPLAN].get(name)) else None


GOALS = (
    Goal("each additional step, at most 1.10 times bare on the same server", 1.10, _ratio("step_ms", REPLAN, BARE)),
    Goal("a step, at most a quarter of bare on default settings", 0.25, _ratio("step_ms", REPLAN, DEFAULT)),
    Goal(
        "what a retry adds to its backoff, at most a tenth of bare on default settings",
        0.10,
        _ratio("retry_added_ms", REPLAN, DEFAULT),
    ),
    Goal("20 parallel steps, at most 1.25 times bare", 1.25, _ratio("parallel_ms", REPLAN, BARE)),
    Goal("events of a step, no more than bare", 1.0, _ratio("events", REPLAN, BARE)),
    Goal("a pure step (calculate), at most 7 ms", 7.0, _median("calculate_ms")),
)
