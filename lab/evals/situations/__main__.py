"""`python -m evals.situations`: the six situations, in each arm so many times, and what they come to."""

import asyncio
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.report import Machine
from evals.markdown import table
from evals.situations import functions, tasks
from evals.situations.functions import ARMS, TOLD, Arm
from evals.situations.situation import SITUATIONS, End, told
from evals.situations.tasks import PLAYED, TASK_ARMS, TaskArm
from runtime.process import leave

REJECTED = 6
Cells = dict[tuple[int, Arm | TaskArm], Counter[End]]


def main(
    runs: Annotated[int, typer.Option(min=1, help="How often each situation is played in each arm.")] = 100,
    task_runs: Annotated[int, typer.Option("--tasks", min=0, help="How often each is played as a task.")] = 0,
    seed: Annotated[int, typer.Option(help="Draws what differs between the runs.")] = 1,
) -> None:
    """Play the situations; exit code 1 if an effect is there too often, or is missing and nobody is asked."""
    folder = Path(tempfile.mkdtemp(prefix="replan-situations-"))
    try:
        cells = play(runs, folder, seed)
        if task_runs:
            cells |= asyncio.run(play_tasks(task_runs, folder))
    except KeyboardInterrupt:
        leave(130)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    typer.echo(rows(cells))
    typer.echo(f"\n{runs} runs a cell, {task_runs} of tasks, on {Machine.this()}")
    leave(1 if any(ends[End.WRONG] for ends in cells.values()) else 0)


def play(runs: int, folder: Path, seed: int) -> Cells:
    """The ends of all runs, by situation and arm."""
    template, cells = functions.empty_store(folder), Cells()
    for number in SITUATIONS:
        for arm in [*ARMS, *(TOLD if number == REJECTED else ())]:
            cells[number, arm] = functions.cell(number, arm, runs, folder, template, seed)
            _say(number, arm, cells[number, arm])
    return cells


async def play_tasks(runs: int, folder: Path) -> Cells:
    """The ends of all tasks."""
    cells = Cells()
    async with tasks.serving(folder) as (server, client):
        for number in PLAYED:
            for arm in TASK_ARMS:
                cells[number, arm] = await tasks.cell(number, arm, runs, folder, server, client)
                _say(number, arm, cells[number, arm])
    return cells


def _say(number: int, arm: Arm | TaskArm, ends: Counter[End]) -> None:
    print(f"{number}, {arm}: {told(ends)}", file=sys.stderr, flush=True)  # noqa: T201


def rows(cells: Cells) -> str:
    """The ends, in Markdown."""
    lines = [
        [str(arm), *(told(cells[number, arm]) if (number, arm) in cells else "-" for number in SITUATIONS)]
        for arm in dict.fromkeys(arm for _, arm in cells)
    ]
    return table(("arm", *map(str, SITUATIONS)), lines)


if __name__ == "__main__":
    typer.run(main)
