"""`python -m evals.effects_bench`: published tasks whose tools fail, in each arm, and what is there in the end."""

import asyncio
import json
import random
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from itertools import cycle, islice
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.report import Machine
from evals.effects_bench.environments import ARMS, Environments
from evals.effects_bench.judge import Verdict
from evals.effects_bench.model import TruthModel
from evals.effects_bench.report import pages
from evals.effects_bench.trial import FAULTS, TASKS, Arm, Parents, Stage, Worlds
from evals.fakes.model_api import running
from evals.frameworks.environments import NoEnvironment
from evals.frameworks.trial import TrialFailed
from runtime.process import leave

SEED = 1


def tasks_of(number: int) -> list[tuple[str, str]]:
    """So many tasks, drawn over the worlds in turn."""
    drawing = random.Random(SEED)  # noqa: S311  # no secret
    drawn = {suite: drawing.sample(sorted(about["tasks"]), len(about["tasks"])) for suite, about in TASKS.items()}
    turns = [(suite, iter(tasks)) for suite, tasks in drawn.items()]
    most = sum(map(len, drawn.values()))
    return list(islice(_in_turn(turns), min(number, most)))


def _in_turn(turns: Sequence[tuple[str, Iterator[str]]]) -> Iterator[tuple[str, str]]:
    for suite, tasks in cycle(turns):
        if (task := next(tasks, None)) is not None:
            yield suite, task


def trials_of(tasks: Sequence[tuple[str, str]], seeds: int) -> Iterator[tuple[str, str, str, int, int]]:
    """World, task, fault, seed and the number of the call at which the fault begins; the same for every arm."""
    for number, (suite, task) in enumerate(tasks):
        for seed in range(seeds):
            drawing = random.Random(f"{suite} {task} {seed}")  # noqa: S311  # no secret
            fault = FAULTS[(number * seeds + seed) % len(FAULTS)]  # each as often
            about = TASKS[suite]["tasks"][task]
            if fault == "conflict" and not about["looked"]:
                fault = "none"  # nobody could look again
            yield (
                suite,
                task,
                fault,
                seed,
                drawing.choice(about["looked"] if fault == "conflict" else range(1, about["changes"] + 1)),
            )


def main(
    tasks: Annotated[int, typer.Option(min=1, help="How many tasks are drawn over the worlds.")] = 20,
    seeds: Annotated[int, typer.Option(min=1, help="How many faults each task meets.")] = 3,
    arms: Annotated[str, typer.Option(help=f"Of {', '.join(ARMS)}.")] = ",".join(ARMS),
    full: Annotated[bool, typer.Option("--full", help="All tasks, 10 seeds; it takes a night.")] = False,
    jobs: Annotated[int, typer.Option(min=1, help="How many trials run at once.")] = 2,
    rows: Annotated[
        Path | None,
        typer.Option(help="A file for the raw rows, as JSON lines; trials that it has are not played again."),
    ] = None,
    only_table: Annotated[bool, typer.Option("--table", help="Print the tables of the rows so far.")] = False,
    keep: Annotated[Path | None, typer.Option(help="A new folder for everything, which stays.")] = None,
) -> None:
    """Play each trial in each arm, and print what they came to; exit code 1 if an arm of ours repeats or loses one."""
    chosen = arms.split(",")
    if unknown := [name for name in chosen if name not in ARMS]:
        raise typer.BadParameter(f"{unknown[0]!r} is none of {', '.join(ARMS)}.", param_hint="--arms")
    if only_table and rows is None:
        raise typer.BadParameter("It needs --rows FILE.", param_hint="--table")
    drawn = [] if only_table else tasks_of(10_000 if full else tasks)
    folder = (keep or Path(tempfile.mkdtemp(prefix="replan-effects-bench-"))).absolute()
    folder.mkdir(exist_ok=keep is None)
    try:
        played = read(rows)
        if not only_table:
            played += asyncio.run(play(chosen, drawn, 10 if full else seeds, jobs, folder, rows, played))
    except (NoEnvironment, TrialFailed) as problem:  # before the first trial
        typer.echo(str(problem), err=True)
        leave(6)
    except KeyboardInterrupt:
        leave(130)
    finally:
        if keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    if all(one.broken for one in played):
        typer.echo("No trial was played.", err=True)
        leave(6)
    for page in pages(sorted(played, key=lambda one: list(ARMS).index(one.arm))):
        typer.echo(page + "\n")
    tasks_played = len({(one.suite, one.task) for one in played})
    broken = sum(bool(one.broken) for one in played)
    typer.echo(f"{tasks_played} tasks, {len(played)} trials, {broken} of them not played, on {Machine.this()}")
    leave(1 if any(one.twice or one.lost for one in played if ARMS[one.arm].is_ours) else 0)


async def play(
    chosen: Sequence[str],
    drawn: Sequence[tuple[str, str]],
    seeds: int,
    jobs: int,
    folder: Path,
    rows: Path | None,
    before: Sequence[Verdict] = (),
) -> list[Verdict]:
    """Play all trials but those `before`. Raises NoEnvironment, TrialFailed."""
    done = {(one.arm, one.suite, one.task, one.fault, one.seed) for one in before if not one.broken}
    model, played, places = TruthModel([]), list[Verdict](), asyncio.Semaphore(jobs)
    async with Environments(folder, say) as environments, running(model), Parents(folder) as parents:
        worlds = Worlds(await environments.of_worlds(), folder / "worlds.log")
        stage = Stage(folder, worlds, model, parents)
        made = {name: await environments.arm(name) for name in chosen}
        planned = [
            (made[name], trial)
            for trial in trials_of(drawn, seeds)
            for name in _shuffled(chosen, trial)
            if (name, *trial[:4]) not in done
        ]

        async def one(arm: Arm, trial: tuple[str, str, str, int, int]) -> None:
            suite, task, fault, seed, at = trial
            async with places:
                verdict = Verdict(arm.name, suite, task, fault, seed)
                await stage.play(arm, verdict, at)
                played.append(verdict)
                note(verdict, rows)
                say(f"{len(played)} of {len(planned)}: {arm.name}, {suite} {task[:40]}, {fault}: {_told(verdict)}")

        try:
            async with asyncio.TaskGroup() as group:
                for arm, trial in planned:
                    group.create_task(one(arm, trial))
        finally:
            await worlds.close()
    return played


def _shuffled(chosen: Sequence[str], trial: tuple[str, str, str, int, int]) -> list[str]:
    """Each time in another order: what runs beside an arm is no arm's fate."""
    return random.Random(str(trial)).sample(chosen, len(chosen))  # noqa: S311  # no secret


def read(rows: Path | None) -> list[Verdict]:
    """What was played already."""
    if rows is None or not rows.exists():
        return []
    found = list[Verdict]()
    for line in rows.read_text(encoding="utf-8").splitlines():
        with suppress(json.JSONDecodeError):  # it was cut off when the process was killed
            found.append(Verdict(**json.loads(line)))
    return found


def note(verdict: Verdict, rows: Path | None) -> None:
    if rows is not None:
        with rows.open("a", encoding="utf-8") as file:
            file.write(f"\n{json.dumps(asdict(verdict))}")  # first the end of a line that was cut off


def _told(verdict: Verdict) -> str:
    if verdict.broken:
        return f"not played: {verdict.broken}"
    found = {"twice": verdict.twice, "lost": verdict.lost, "wrong": verdict.wrong, "told": verdict.named}
    return ", ".join(f"{number} {what}" for what, number in found.items() if number) or "each once"


def say(line: str) -> None:
    """Show progress."""
    print(line, file=sys.stderr, flush=True)  # noqa: T201


if __name__ == "__main__":
    typer.run(main)
