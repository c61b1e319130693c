"""The report of one run of `benchmarks.ledger`: its JSON document and its table."""

from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field
from rich.table import Table

from benchmarks.figures import Figure
from benchmarks.goals import Figures, Goal, Verdict
from benchmarks.machine import Machine

ALONE, ONCE, REPLAY = "alone", "once", "replay"
TITLES = {
    ALONE: "the effect alone",
    ONCE: "the effect and its row in the ledger",
    REPLAY: "a replay, which only reads what the first call came to",
}
CALL = "call_ms"
LIMIT = 2.0
"""Milliseconds that the ledger may add to an effect."""


def _added(figures: Figures) -> float | None:
    alone, once = figures[ALONE][CALL], figures[ONCE][CALL]
    return round(once.median - alone.median, 3) if alone and once else None


GOAL = Goal(f"what the ledger adds to an effect at the median, at most {LIMIT:g} ms a step", LIMIT, _added)


class LedgerReport(BaseModel):
    """One run."""

    model_config = ConfigDict(frozen=True)

    schema_: Literal[1] = Field(default=1, alias="schema")
    machine: Machine
    load_before: float
    load_after: float
    calls: int
    pragmas: dict[str, str]
    """How SQLite kept what it was given; 2 for `synchronous` is FULL."""
    arms: dict[str, dict[str, Figure | None]]
    """Milliseconds of a call."""
    added_ms: float | None
    goals: tuple[Verdict, ...]

    @classmethod
    def of(
        cls,
        samples: Mapping[str, Sequence[float]],
        calls: int,
        pragmas: Mapping[str, str],
        loads: tuple[float, float],
    ) -> "LedgerReport":
        """Sum the samples up."""
        arms = {arm: {CALL: Figure.of(samples.get(arm, ()))} for arm in TITLES}
        return cls(
            machine=Machine.this(),
            load_before=loads[0],
            load_after=loads[1],
            calls=calls,
            pragmas=dict(pragmas),
            arms=arms,
            added_ms=_added(arms),
            goals=(GOAL.judged(arms),),
        )

    def table(self) -> Table:
        """The figures for people: medians, in brackets the smallest and the largest."""
        table = Table("one call, ms", "median", "more than alone")
        alone = self.arms[ALONE][CALL]
        for arm, title in TITLES.items():
            figure = self.arms[arm][CALL]
            more = f"{figure.median - alone.median:+.2f}" if figure and alone and arm != ALONE else ""
            spread = f"{figure.median:.2f} ({figure.low:.2f}-{figure.high:.2f})" if figure else ""
            table.add_row(title, spread, more)
        return table
