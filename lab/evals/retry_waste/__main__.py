"""`python -m evals.retry_waste`: what retries come to, in real workflows or in the published model."""

import asyncio
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress, track

from benchmarks.report import Machine
from evals.injection.__main__ import UNAVAILABLE, served
from evals.retry_waste.arms import ARMS, Arm
from evals.retry_waste.measures import Row
from evals.retry_waste.published_report import Published
from evals.retry_waste.report import pages
from evals.retry_waste.trial import Setting, TrialBroken, play_seed
from evals.tape.player import TapeNotPlayed
from evals.tape.tape import Tape
from runtime.process import leave

PUBLISHED_SEEDS, SEEDS = 1000, 10


class Canary(StrEnum):
    """A tape whose result is known before."""

    CALM = "calm"
    """Nothing fails."""
    DOWN = "down"
    """Every call fails."""


def main(
    published: Annotated[bool, typer.Option("--published", help="The published model instead of workflows.")] = False,
    seeds: Annotated[
        int | None,
        typer.Option(min=2, help=f"How many seeds, from 0; {SEEDS}, with --published {PUBLISHED_SEEDS}."),
    ] = None,
    arms: Annotated[list[str] | None, typer.Option("--arm", help=f"One of {', '.join(ARMS)}; all.")] = None,
    tasks: Annotated[int, typer.Option(min=1, help="Tasks of a seed.")] = 16,
    hallucination: Annotated[
        float, typer.Option(min=0, max=1, help="Of the model's turns, with a made-up kind.")
    ] = 0.28,
    lying: Annotated[float, typer.Option(min=0, max=1, help="Of the errors, with the label of the opposite.")] = 0.0,
    canary: Annotated[Canary | None, typer.Option(help="A tape whose result is known before.")] = None,
    rows: Annotated[Path, typer.Option(help="The raw rows, one task a line; what is there is not run again.")] = Path(
        "retry-waste.jsonl"
    ),
    figures: Annotated[
        Path | None, typer.Option(help="Draw pictures into this folder; needs matplotlib, extra `benchmarks`.")
    ] = None,
    only_table: Annotated[bool, typer.Option("--table", help="Run nothing: the table of the rows so far.")] = False,
) -> None:
    """Measure wasted retries; interrupted, the same command goes on.

    With --published, exit code 1 if a figure of the model is not what is expected of it.
    """
    if published:
        leave(_publish(seeds or PUBLISHED_SEEDS, figures))
    for name in arms or ():
        if name not in ARMS:
            raise typer.BadParameter(f"{name!r} is none of {', '.join(ARMS)}.", param_hint="--arm")
    chosen = [ARMS[name] for name in arms or ARMS]
    settings = [
        Setting(tape=_tape(seed, lying, canary), hallucination=0 if canary else hallucination, tasks=tasks)
        for seed in range(seeds or SEEDS)
    ]
    code = 0
    try:
        if not only_table:
            asyncio.run(_run(settings, chosen, rows))
    except* (*UNAVAILABLE, TapeNotPlayed, TrialBroken) as problems:
        for problem in problems.exceptions:
            typer.echo(str(problem), err=True)
        code = 6
    except* KeyboardInterrupt:
        typer.echo(f"Interrupted; the same command goes on. The rows so far are in {rows}.", err=True)
        code = 130
    found = [
        row for row in _read(rows) if row.setting == settings[0].digest and row.arm in {arm.name for arm in chosen}
    ]
    if found:
        typer.echo("\n\n".join(pages(found)))
        typer.echo(f"\nOn {Machine.this()}")
    if found and figures:
        from evals.retry_waste.figures import draw_arms  # matplotlib

        draw_arms(found, figures)
    leave(code)


def _publish(seeds: int, figures: Path | None) -> int:
    def shown(numbers: Iterable[int]) -> Iterable[int]:
        return track(list(numbers), "seeds", console=Console(stderr=True), disable=not sys.stderr.isatty())

    report = Published.run(seeds, shown)
    typer.echo("\n\n".join(report.pages()))
    if figures:
        from evals.retry_waste.figures import draw_published  # matplotlib

        draw_published(report.runs, figures)
    return 0 if all(check.holds for check in report.checks) else 1


def _tape(seed: int, lying: float, canary: Canary | None) -> Tape:
    match canary:
        case Canary.CALM:
            return Tape.calm(seed)
        case Canary.DOWN:
            return Tape.down(seed)
    return Tape(seed=seed, lying=lying)


def _read(file: Path) -> list[Row]:
    lines = file.read_text().splitlines() if file.exists() else []
    return [Row.model_validate_json(line) for line in lines]


async def _run(settings: Sequence[Setting], arms: Sequence[Arm], file: Path) -> None:
    """Run what the file does not have, and append the rows of each arm of a seed to it."""
    had = {(row.seed, row.arm, row.setting) for row in _read(file)}
    jobs = [
        (setting, missing)
        for setting in settings
        if (missing := [arm for arm in arms if (setting.tape.seed, arm.name, setting.digest) not in had])
    ]
    if not jobs:
        return
    with (
        tempfile.TemporaryDirectory(prefix="replan-retry-waste-") as name,
        Progress(console=Console(stderr=True)) as bar,
    ):
        total = bar.add_task("tasks", total=sum(setting.tasks * len(missing) for setting, missing in jobs))
        async with served(Path(name)) as address:
            for setting, missing in jobs:
                bar.update(total, description=f"seed {setting.tape.seed}, tasks")
                folder = Path(name) / f"seed-{setting.tape.seed}"
                advance: Callable[[], None] = partial(bar.advance, total)
                await play_seed(address, folder, missing, setting, advance, partial(_append, file))


def _append(file: Path, rows: Sequence[Row]) -> None:
    with file.open("a") as written:
        written.write("".join(f"{row.model_dump_json()}\n" for row in rows))


if __name__ == "__main__":
    typer.run(main)
