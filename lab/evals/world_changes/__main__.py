"""`python -m evals.world_changes`: does Replan do the right thing when the world changes while a task runs?"""

import asyncio
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from benchmarks.report import Machine
from evals.injection.__main__ import UNAVAILABLE, served
from evals.problems import first_problem
from evals.retry_waste.trial import TrialBroken
from evals.tape.player import TapeNotPlayed
from evals.world_changes.families import FAMILIES
from evals.world_changes.minds import USUAL, Planner
from evals.world_changes.mutations import MUTATIONS
from evals.world_changes.report import failures, pages
from evals.world_changes.scenario import BadScenario, Scenario, scenarios
from evals.world_changes.trial import Planned, Row, Stage, batches, staged
from runtime.process import leave

HALLUCINATION = 0.28


def main(
    names: Annotated[list[str] | None, typer.Argument(metavar="SCENARIO", help="Only these; all.")] = None,
    families: Annotated[list[str] | None, typer.Option("--family", help=f"One of {', '.join(FAMILIES)}; all.")] = None,
    planners: Annotated[
        list[str] | None,
        typer.Option("--planner", help=f"One of {', '.join(Planner)}, or a model as PROVIDER:MODEL; the first six."),
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, help="How often each scenario is run with a planner.")] = 1,
    mutations: Annotated[
        bool, typer.Option("--mutations", help="Without one part of Replan each: named scenarios must fail.")
    ] = False,
    hallucination: Annotated[
        float, typer.Option(min=0, max=1, help="Of the turns of the hallucinating model, with a made-up kind.")
    ] = HALLUCINATION,
    rows: Annotated[Path, typer.Option(help="The raw rows, one run a line; what is there is not run again.")] = Path(
        "world-changes.jsonl"
    ),
    only_table: Annotated[bool, typer.Option("--table", help="Run nothing: the tables of the rows so far.")] = False,
) -> None:
    """Let the world change while tasks run; interrupted, the same command goes on.

    Exit code 1 if a property of a scenario does not hold, or holds although the part is missing that it needs.
    """
    try:
        chosen = _chosen(names, families)
    except BadScenario as bad:
        typer.echo(str(bad), err=True)
        leave(2)
    if mutations:
        planned = [
            Planned(scenario, mutation.planner, 0, mutation.name)
            for mutation in MUTATIONS.values()
            for scenario in chosen
            if mutation.name in scenario.breaks
        ]
    else:
        planned = [
            Planned(scenario, planner, repeat)
            for planner in planners or USUAL
            for repeat in range(repeats)
            for scenario in chosen
        ]
    code = 0
    try:
        if not only_table:
            stage_for = partial(staged, scenarios=chosen, hallucination=hallucination)
            asyncio.run(_run(planned, stage_for, rows))
    except* (*UNAVAILABLE, TapeNotPlayed, TrialBroken) as problems:
        typer.echo(str(first_problem(problems)), err=True)
        code = 6
    except* KeyboardInterrupt:
        typer.echo(f"Interrupted; the same command goes on. The rows so far are in {rows}.", err=True)
        code = 130
    wanted = {run.key for run in planned}
    found = [row for row in read_rows(rows) if row.key in wanted]
    if found:
        typer.echo("\n\n".join(pages(found)))
        typer.echo(f"\n{len(found)} of {len(planned)} runs. On {Machine.this()}")
    broken = failures(found, chosen)
    for sentence in broken:
        typer.echo(sentence, err=True)
    leave(code or (1 if broken else 0))


def _chosen(names: Sequence[str] | None, families: Sequence[str] | None) -> list[Scenario]:
    """The scenarios that are asked for. Raises BadScenario."""
    for family in families or ():
        if family not in FAMILIES:
            raise typer.BadParameter(f"{family!r} is none of {', '.join(FAMILIES)}.", param_hint="--family")
    known = scenarios()
    for name in names or ():
        if name not in {scenario.name for scenario in known}:
            raise typer.BadParameter(f"There is no scenario {name!r}.", param_hint="SCENARIO")
    return [
        scenario
        for scenario in known
        if (not names or scenario.name in names) and (not families or scenario.family in families)
    ]


def read_rows(file: Path) -> list[Row]:
    """The rows of a file; none if there is no such file."""
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return [Row.model_validate_json(line) for line in lines]


async def _run(
    planned: Sequence[Planned], stage_for: Callable[[str, Path], AbstractAsyncContextManager[Stage]], file: Path
) -> None:
    """Make the runs that the file does not have, and append the row of each to it as soon as it has ended."""
    had = {row.key for row in read_rows(file)}
    missing = [run for run in planned if run.key not in had]
    if not missing:
        return
    with (
        tempfile.TemporaryDirectory(prefix="replan-world-changes-") as name,
        Progress(console=Console(stderr=True)) as bar,
    ):
        progress = bar.add_task("runs", total=len(missing))

        def keep(row: Row) -> None:
            with file.open("a", encoding="utf-8") as written:
                written.write(f"{row.model_dump_json()}\n")
            bar.advance(progress)

        async with (
            served(Path(name)) as address,
            stage_for(address, Path(name)) as stage,
            asyncio.TaskGroup() as group,
        ):
            for batch in batches(missing):
                group.create_task(stage.play(batch, keep))


if __name__ == "__main__":
    typer.run(main)
