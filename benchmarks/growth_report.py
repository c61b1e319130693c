"""The report of one run of `benchmarks.growth`: its JSON document and its table."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field
from rich.table import Table

from benchmarks.goals import Verdict
from benchmarks.long_task import HUNDRED, Growth
from benchmarks.machine import Machine
from benchmarks.tally import Audit

FLAT = 1.10
"""What the last fifth of a task may take in time, and hold in memory, of what the first does."""


class Hundred(BaseModel):
    """A hundred steps."""

    model_config = ConfigDict(frozen=True)

    steps: int
    """How many were done at its end."""
    seconds: float
    worker_mb: float


class GrowthReport(BaseModel):
    """A task that ran undisturbed, which shows time and memory, and the same with a worker that was killed."""

    model_config = ConfigDict(frozen=True)

    schema_: Literal[1] = Field(default=1, alias="schema")
    machine: Machine
    load_before: float
    load_after: float
    steps: int
    seconds: float
    hundreds: tuple[Hundred, ...]
    audit: Audit
    kills: int
    seconds_killed: float | None
    """The whole of the second task; None where no kill was asked for."""
    audit_killed: Audit | None
    goals: tuple[Verdict, ...]

    @classmethod
    def of(
        cls, steps: int, kills: int, calm: Growth, killed: Growth | None, loads: tuple[float, float]
    ) -> "GrowthReport":
        """Sum the two tasks up."""
        hundreds = _hundreds(calm)
        audits = [growth.audit for growth in (calm, killed) if growth]
        return cls(
            machine=Machine.this(),
            load_before=loads[0],
            load_after=loads[1],
            steps=steps,
            seconds=round(calm.seconds, 1),
            hundreds=hundreds,
            audit=calm.audit,
            kills=kills,
            seconds_killed=round(killed.seconds, 1) if killed else None,
            audit_killed=killed.audit if killed else None,
            goals=(*_flat(hundreds), *_once(steps, audits)),
        )

    def table(self) -> Table:
        """Every fifth of the steps: time, memory."""
        table = Table("steps", "seconds per hundred", "worker, MB at its end")
        for fifth in _fifths(self.hundreds):
            seconds = sum(one.seconds for one in fifth) / len(fifth)
            table.add_row(f"{fifth[-1].steps}", f"{seconds:.2f}", f"{fifth[-1].worker_mb:.0f}")
        return table


def _hundreds(growth: Growth) -> tuple[Hundred, ...]:
    return tuple(
        Hundred(steps=number * HUNDRED, seconds=round(after - before, 3), worker_mb=round(memory, 1))
        for number, ((before, after), memory) in enumerate(
            zip(pairwise(growth.marks), growth.memory[1:], strict=False), start=1
        )
    )


def _fifths(hundreds: Sequence[Hundred]) -> list[Sequence[Hundred]]:
    size = max(1, len(hundreds) // 5)
    return [hundreds[first : first + size] for first in range(0, len(hundreds), size)]


def _flat(hundreds: Sequence[Hundred]) -> list[Verdict]:
    if not hundreds:
        return []
    first, *_, last = [*_fifths(hundreds), hundreds[-max(1, len(hundreds) // 5) :]]
    time = sum(one.seconds for one in last) / sum(one.seconds for one in first)
    memory = max(one.worker_mb for one in last) / max(one.worker_mb for one in first)
    return [
        _verdict("time of the last fifth of the steps, at most 1.10 times the first", FLAT, time),
        _verdict("memory of the worker in the last fifth, at most 1.10 times the first", FLAT, memory),
    ]


def _once(steps: int, audits: Sequence[Audit]) -> list[Verdict]:
    missing = sum(steps - audit.finished for audit in audits)
    again = sum(audit.ran_again for audit in audits)
    return [
        _verdict("steps that did not finish exactly once", 0, missing),
        _verdict("finished steps that ran again", 0, again),
    ]


def _verdict(goal: str, limit: float, value: float) -> Verdict:
    return Verdict(goal=goal, limit=limit, value=value, met=value <= limit)
