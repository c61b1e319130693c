"""`python -m benchmarks.growth`: one task of 5,000 steps, measured by hundreds, and again with its worker killed."""

import tempfile
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import typer
from pydantic import BaseModel, ConfigDict
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks import processes, report
from benchmarks.long_task import HUNDRED, Audit, Growth, grow
from benchmarks.processes import Server
from benchmarks.report import Machine, Report, Verdict
from runtime.process import leave

FLAT = 1.10
"""The limit of the last fifth of a task over its first fifth, in time and in memory."""


class Hundred(BaseModel):
    """A hundred steps."""

    model_config = ConfigDict(frozen=True)

    steps: int
    """How many were done at its end."""
    seconds: float
    worker_mb: float


class GrowthReport(Report):
    """A task that ran undisturbed, which shows time and memory, and the same with a worker that was killed."""

    load_before: float
    load_after: float
    steps: int
    seconds: float
    hundreds: tuple[Hundred, ...]
    audit: Audit
    kills: int
    seconds_killed: float | None
    """The whole of the second task; None without kills."""
    audit_killed: Audit | None
    goals: tuple[Verdict, ...]

    @classmethod
    def of(
        cls, steps: int, kills: int, calm: Growth, killed: Growth | None, loads: tuple[float, float]
    ) -> "GrowthReport":
        """Sum the two tasks up."""
        hundreds = _hundreds(calm)
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
            goals=(*_flat(hundreds), *_once(steps, [growth.audit for growth in (calm, killed) if growth])),
        )

    def table(self) -> Table:
        """Time and memory of every fifth of the steps."""
        table = Table("steps", "seconds per hundred", "worker, MB at its end")
        for fifth in _fifths(self.hundreds):
            seconds = sum(hundred.seconds for hundred in fifth) / len(fifth)
            table.add_row(f"{fifth[-1].steps}", f"{seconds:.2f}", f"{fifth[-1].worker_mb:.0f}")
        return table

    def lines(self) -> list[str]:
        """What belongs below the table."""
        sizes = ", ".join(f"{run.events} ({run.bytes / 1e6:.1f} MB)" for run in self.audit.runs)
        lines = [f"{self.steps} steps in {self.seconds:g} s; events of each run: {sizes}"]
        if self.audit_killed:
            cut = f"{self.audit_killed.cut} steps were cut off and ran anew"
            lines.append(f"killed {self.kills} times: {self.seconds_killed:g} s, {cut}")
        return [*lines, f"on {self.machine}; load {self.load_before:g} -> {self.load_after:g}"]


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
    first, last = _fifths(hundreds)[0], hundreds[-max(1, len(hundreds) // 5) :]
    time = sum(hundred.seconds for hundred in last) / sum(hundred.seconds for hundred in first)
    memory = max(hundred.worker_mb for hundred in last) / max(hundred.worker_mb for hundred in first)
    return [
        Verdict.of("time of the last fifth of the steps, at most 1.10 times the first", FLAT, time),
        Verdict.of("memory of the worker in the last fifth, at most 1.10 times the first", FLAT, memory),
    ]


def _once(steps: int, audits: Sequence[Audit]) -> list[Verdict]:
    return [
        Verdict.of("steps that did not finish exactly once", 0, sum(steps - audit.finished for audit in audits)),
        Verdict.of("finished steps that ran again", 0, sum(audit.ran_again for audit in audits)),
    ]


def main(
    steps: Annotated[int, typer.Option(min=1, help="Steps of the task.")] = 5000,
    kills: Annotated[int, typer.Option(min=0, help="How often the second task's worker is killed.")] = 10,
    json: Annotated[Path | None, typer.Option(help="Write the figures to this file.")] = None,
    figure: Annotated[Path | None, typer.Option(help="Draw time and memory into this PNG; needs matplotlib.")] = None,
    address: Annotated[str | None, typer.Option(help="A server to use in place of one with our settings.")] = None,
) -> None:
    """Run a long task twice, undisturbed and with its worker killed, and say whether it stays flat."""
    found = processes.finish(run(steps, kills, address))
    report.show(found.table(), found.lines(), found.goals)
    report.write(found, json)
    if figure:
        from benchmarks.picture import draw_growth  # matplotlib is an optional extra

        draw_growth(found, figure)
    leave(0)


async def run(steps: int, kills: int, address: str | None) -> GrowthReport:
    """Start a server, run the task twice, end everything. Raises NotConnected, ServerUnavailable, WorkerUnavailable."""
    before = report.load()
    with tempfile.TemporaryDirectory(prefix="replan-growth-") as folder, Progress(console=Console(stderr=True)) as bar:
        async with processes.our_server(Path(folder) / "server", address) as server:
            calm = await _shown(bar, "undisturbed", server, Path(folder) / "calm", steps, 0)
            what = f"worker killed {kills} times"
            killed = await _shown(bar, what, server, Path(folder) / "killed", steps, kills) if kills else None
    return GrowthReport.of(steps, kills, calm, killed, (before, report.load()))


async def _shown(bar: Progress, what: str, server: Server, folder: Path, steps: int, kills: int) -> Growth:
    task = bar.add_task(what, total=steps)
    return await grow(server, folder, steps, kills, lambda done: bar.update(task, completed=done))


if __name__ == "__main__":
    typer.run(main)
