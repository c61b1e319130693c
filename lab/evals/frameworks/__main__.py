"""`python -m evals.frameworks`: agents of other frameworks, killed after an effect and resumed by their own means.

Their tools come from an MCP server, with the gateway in front of it or without, or they are functions, with
`replan.effects` or without.
"""

import asyncio
import sys
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.report import Machine
from evals.fakes.model_api import running
from evals.frameworks import function_tools
from evals.frameworks.environments import NoEnvironment, python_of, requirements
from evals.frameworks.function_tools import Agents, BankModel, End, Kill
from evals.frameworks.trial import Moment, ShopModel, Stage, Trial, TrialFailed, Way
from evals.markdown import table
from runtime.process import leave

NAMES = ("pydantic_ai", "openai_agents", "langgraph")
CHANNELS = {"langgraph": Way.HTTP}
"""How a framework can send a key, if not over stdio."""


def trials_of(name: str) -> list[Trial]:
    """The runs of a framework."""
    keyed = CHANNELS.get(name, Way.STDIO)
    ways = dict.fromkeys((Way.STDIO, keyed))
    rows = [(Way.DIRECT, Moment.CALLING, False)]
    rows += [(way, moment, False) for way in ways for moment in Moment]
    rows += [(keyed, moment, True) for moment in Moment]
    return [Trial(framework=name, way=way, moment=moment, has_keys=keys) for way, moment, keys in rows]


def main(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME", help=f"Of {', '.join(NAMES)}; all.")] = None,
    keep: Annotated[Path | None, typer.Option(help="A new folder for everything, which stays.")] = None,
    kills: Annotated[int, typer.Option(min=0, help="How often an agent with function tools is killed.")] = 4,
    bare: Annotated[int | None, typer.Option(min=0, help="How often one as it is; as often, if not said.")] = None,
    gateway: Annotated[bool, typer.Option(help="Also run agents whose tools come from an MCP server.")] = True,
    seed: Annotated[int, typer.Option(help="Draws the moments of the kills.")] = 1,
) -> None:
    """Kill agents around an effect, and count it; exit code 1 if one is repeated or lost, or an answer is lost."""
    for name in names or ():
        if name not in NAMES:
            raise typer.BadParameter(f"{name!r} is none of {', '.join(NAMES)}.", param_hint="NAME")
    if keep is not None:
        keep.mkdir(parents=True)
    planned = [trial for name in names or NAMES for trial in trials_of(name)] if gateway else []
    drawn = [
        kill
        for name in names or NAMES
        for is_bare, number in ((True, kills if bare is None else bare), (False, kills))
        for kill in function_tools.drawn(name, number, seed, is_bare=is_bare)
    ]
    try:
        with tempfile.TemporaryDirectory(prefix="replan-frameworks-") as folder:
            asyncio.run(run(planned, (keep or Path(folder)).absolute()))
            asyncio.run(run_kills(drawn, (keep or Path(folder)).absolute()))
    except (NoEnvironment, TrialFailed) as problem:
        typer.echo(str(problem), err=True)
        leave(6)
    except KeyboardInterrupt:
        leave(130)
    if planned:
        typer.echo(outcomes(planned) + "\n")
    if drawn:
        typer.echo(function_tools.rows(drawn) + "\n")
    typer.echo(f"On {Machine.this()}")
    is_wrong = any(kill.end in (End.TWICE, End.LOST) for kill in drawn if not kill.is_bare)
    leave(1 if is_wrong or any(trial.is_broken for trial in planned) else 0)


async def run(planned: Sequence[Trial], folder: Path) -> None:
    """Fill in the trials. Raises NoEnvironment, TrialFailed."""
    if not planned:
        return
    pythons = {
        name: await python_of(requirements(name), say) for name in dict.fromkeys(trial.framework for trial in planned)
    }
    async with AsyncExitStack() as stack:
        model = ShopModel([])
        await stack.enter_async_context(running(model))
        stage = Stage(folder, model)
        await stack.enter_async_context(stage.serving(is_http=any(trial.way is Way.HTTP for trial in planned)))
        for number, trial in enumerate(planned, 1):
            keys = ", keys" if trial.has_keys else ""
            say(f"{number} of {len(planned)}: {trial.framework}, {trial.way}{keys}, {trial.moment}")
            await stage.play(trial, pythons[trial.framework])


async def run_kills(drawn: Sequence[Kill], folder: Path) -> None:
    """Fill in the runs of agents with function tools. Raises NoEnvironment, TrialFailed."""
    pythons = {
        name: await python_of(requirements(name), say) for name in dict.fromkeys(kill.framework for kill in drawn)
    }
    model = BankModel([])
    async with running(model), Agents(folder, pythons, model) as agents:
        for number, kill in enumerate(drawn, 1):
            await agents.play(kill, f"kill-{number}")
            bare = ", as they are" if kill.is_bare else ""
            say(f"{number} of {len(drawn)}: {kill.framework}, function tools{bare}, killed at {kill}: {kill.end}")


def say(line: str) -> None:
    """Show progress."""
    print(line, file=sys.stderr, flush=True)  # noqa: T201


def outcomes(played: Sequence[Trial]) -> str:
    """What the trials came to, in Markdown."""
    columns = ("framework", "its tools come from", "keys", *Moment)
    rows = dict[tuple[str, Way, bool], dict[Moment, Trial]]()
    for trial in played:
        rows.setdefault((trial.framework, trial.way, trial.has_keys), {})[trial.moment] = trial
    lines = list[list[str]]()
    for (name, way, has_keys), trials in rows.items():
        lines.append([name, way, "yes" if has_keys else "no", *(str(trials.get(moment, "-")) for moment in Moment)])
    return table(columns, lines)


if __name__ == "__main__":
    typer.run(main)
