"""What every report of a benchmark is made of: figures, goals, the machine; and how one is printed."""

import os
import platform
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

import psutil
from pydantic import BaseModel, ConfigDict, Field
from rich.console import Console
from rich.table import Table

from runtime.temporal_cli import VERSION

GIGABYTE = 2**30


class Figure(BaseModel):
    """The median of some values, with the smallest and the largest."""

    model_config = ConfigDict(frozen=True)

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Figure | None":
        """The figure of these values; None without values."""
        if not values:
            return None
        median, low, high = (round(value, 3) for value in (statistics.median(values), min(values), max(values)))
        return cls(median=median, low=low, high=high)

    def __str__(self) -> str:
        if self.low == self.high:
            return _short(self.median)
        return f"{_short(self.median)} ({_short(self.low)}-{_short(self.high)})"


def _short(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}"


Figures = Mapping[str, Mapping[str, Figure | None]]
"""By arm, then by what was measured."""


class Verdict(BaseModel):
    """Whether a goal was met."""

    model_config = ConfigDict(frozen=True)

    goal: str
    limit: float
    value: float | None
    """None where it could not be measured."""
    met: bool

    @classmethod
    def of(cls, goal: str, limit: float, value: float | None) -> "Verdict":
        """A goal is met by a value up to its limit."""
        return cls(goal=goal, limit=limit, value=value, met=value is not None and value <= limit)

    def __str__(self) -> str:
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
        """Compare the figures with it."""
        return Verdict.of(self.text, self.limit, self.value(figures))


class Machine(BaseModel):
    """The machine that a benchmark ran on, and the versions of what was measured."""

    model_config = ConfigDict(frozen=True)

    cores: int
    memory_gb: float
    system: str
    python: str
    temporalio: str
    temporal_cli: str
    """The version that Replan fetches if none is installed."""

    @classmethod
    def this(cls) -> "Machine":
        """The one that this process runs on."""
        return cls(
            cores=psutil.cpu_count() or 0,
            memory_gb=round(psutil.virtual_memory().total / GIGABYTE, 1),
            system=f"{platform.system()} {platform.machine()}",
            python=platform.python_version(),
            temporalio=metadata.version("temporalio"),
            temporal_cli=VERSION,
        )

    def __str__(self) -> str:
        return (
            f"{self.cores} cores, {self.memory_gb:g} GB, {self.system}, Python {self.python},"
            f" temporalio {self.temporalio}, Temporal CLI {self.temporal_cli}"
        )


def load() -> float:
    """The load average of the last minute."""
    return round(os.getloadavg()[0], 2)


class Report(BaseModel):
    """One run of a benchmark, a JSON document."""

    model_config = ConfigDict(frozen=True)

    schema_: Literal[1] = Field(default=1, alias="schema")
    machine: Machine


def show(table: Table, lines: Sequence[str], goals: Sequence[Verdict]) -> None:
    """Print a table, lines about it, and the verdicts; plain text where stdout is no terminal."""
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(table)
    for line in lines:
        console.print(line)
    for verdict in goals:
        console.print(str(verdict), highlight=False, markup=False)


def write(report: Report, file: Path | None) -> None:
    """Write the JSON document, if a file is named."""
    if file:
        file.write_text(report.model_dump_json(indent=2, by_alias=True))
