"""A measured value over the rounds: the median and how far the others lay from it."""

import statistics
from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict


class Figure(BaseModel):
    """The median of some rounds with its spread."""

    model_config = ConfigDict(frozen=True)

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Figure | None":
        """The figure of these values; None where nothing was measured."""
        if not values:
            return None
        rounded = [round(value, 3) for value in (statistics.median(values), min(values), max(values))]
        return cls(median=rounded[0], low=rounded[1], high=rounded[2])

    def __str__(self) -> str:
        """The median, and in brackets the smallest and the largest where they differ."""
        if self.low == self.high:
            return _spoken(self.median)
        return f"{_spoken(self.median)} ({_spoken(self.low)}-{_spoken(self.high)})"


def _spoken(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}"
