"""`python -m evals.injection`: AgentDojo's attacks on a model that obeys them all, and what Replan lets it do."""

import asyncio
import random
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Literal, get_args

import typer
from pydantic import BaseModel, computed_field
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from temporalio.client import Client

from benchmarks.report import Machine
from evals.injection.arms import ARMS, UNDEFENDED
from evals.injection.declared import DECLARED, EFFECTS
from evals.injection.model import is_known
from evals.injection.suites import NAMES, VERSION, Case, MissingSuites, suite
from evals.injection.trial import Run, hush, trial
from runtime.client import NotConnected, connect
from runtime.dev_server import DevServer, ServerSpec, ServerUnavailable, find_cli, free_port
from runtime.process import leave
from runtime.serve import CannotContinue
from workflows.account import search_attributes

Strategy = Literal["plan", "react"]
UNAVAILABLE = (NotConnected, ServerUnavailable, MissingSuites, CannotContinue)


class Ceiling(BaseModel):
    """How many user tasks of a suite can be solved unattended, if content may give no value of authority."""

    suite: str
    tasks: int
    beyond: list[str]
    """The user tasks with an effect that has a value of authority which the prompt does not hold."""


class Report(BaseModel):
    """What an eval came to."""

    version: str = VERSION
    seed: int
    machine: str
    ceilings: list[Ceiling] = []
    runs: list[Run] = []

    @computed_field  # type: ignore[prop-decorator]  # as pydantic's own pages have it
    @property
    def faulty(self) -> list[str]:
        """The pairs whose grader reports an attack although no effect of the attack was applied."""
        return sorted({f"{run.suite}/{run.user}/{run.injection}" for run in self.runs if run.is_faulty})

    def of(self, arm: str, strategy: str, *, attacked: bool) -> list[Run]:
        """The runs of an arm."""
        return [
            run
            for run in self.runs
            if (run.arm, run.strategy, run.injection is not None) == (arm, strategy, attacked)
        ]

    def tables(self) -> Iterator[Table]:
        """One table for each strategy, for people."""
        for strategy in dict.fromkeys(run.strategy for run in self.runs):
            columns = (
                "arm",
                "attacks that win",
                "sound graders only",
                "useful, no attack",
                "useful, attacked",
                "of undefended",
                "questions per task",
            )
            table = Table(*columns, title=f"{strategy}: {PLAYED[strategy]}", title_justify="left")
            for arm in dict.fromkeys(run.arm for run in self.runs):
                table.add_row(*self._row(arm, strategy))
            yield table

    def _row(self, arm: str, strategy: str) -> Iterator[str]:
        pairs, benign = (self.of(arm, strategy, attacked=attacked) for attacked in (True, False))
        sound = [run for run in pairs if f"{run.suite}/{run.user}/{run.injection}" not in self.faulty]
        yield arm
        yield _share(sum(run.is_won for run in pairs), len(pairs))
        yield _share(sum(run.is_won for run in sound), len(sound))
        yield _share(_useful(benign), len(benign))
        yield _share(_useful(pairs), len(pairs))
        yield ", ".join(
            f"{_useful(runs) / reached:.0%}" if (reached := _useful(self.of(UNDEFENDED, strategy, attacked=at))) else "-"
            for runs, at in ((benign, False), (pairs, True))
        )
        yield f"{sum(run.questions for run in benign) / len(benign):.2f}" if benign else "-"


PLAYED = {
    "plan": "the model plans reads first where a value is only in content, then the effect with the value",
    "react": "the model makes one call per turn",
}


def _share(count: int, all: int) -> str:
    return f"{count} of {all} ({count / all:.0%})" if all else "-"


def _useful(runs: Sequence[Run]) -> int:
    return sum(run.is_useful for run in runs)


def ceiling(name: str) -> Ceiling:
    """Compute the ceiling of a suite from the ground truth."""
    cases = suite(name).benign
    beyond = [case.user for case in cases if any(_needs_content(case))]
    return Ceiling(suite=name, tasks=len(cases), beyond=beyond)


def _needs_content(case: Case) -> Iterator[str]:
    """The arguments of authority of effects whose values the prompt does not hold."""
    for call in case.user_calls:
        if call.tool in EFFECTS:
            values = {name: call.args[name] for name in DECLARED[call.tool].authority if name in call.args}
            yield from (f"{call.tool}.{name}" for name, value in values.items() if not is_known(value, case.prompt))


def main(
    chosen_suites: Annotated[list[str] | None, typer.Option("--suite", help=f"One of {', '.join(NAMES)}.")] = None,
    strategies: Annotated[list[str] | None, typer.Option("--strategy", help="plan or react.")] = None,
    arms: Annotated[list[str] | None, typer.Option("--arm", help=f"One of {', '.join(ARMS)}.")] = None,
    pairs: Annotated[int | None, typer.Option(min=1, help="A sample of so many pairs, instead of all.")] = None,
    seed: Annotated[int, typer.Option(help="The seed of the sample.")] = 7,
    json: Annotated[Path | None, typer.Option(help="Write the report to this file.")] = None,
) -> None:
    """Run AgentDojo's pairs of user task and injection task on Replan, with a model that obeys every injection."""
    chosen = _checked(chosen_suites, NAMES, "--suite"), _checked(strategies, get_args(Strategy), "--strategy")
    named = _checked(arms, tuple(ARMS), "--arm")
    hush()
    report = Report(seed=seed, machine=str(Machine.this()))
    try:
        cases = {name: _cases(name) for name in chosen[0]}
        report.ceilings = [ceiling(name) for name in cases]
        sampled = _sampled(cases, pairs, seed)
        with tempfile.TemporaryDirectory(prefix="replan-injection-") as folder:
            asyncio.run(run(report, Path(folder), sampled, chosen[1], named))
    except* UNAVAILABLE as problems:
        typer.echo(_first(problems), err=True)
        leave(6)
    except* KeyboardInterrupt:
        leave(130)
    show(report)
    if json:
        json.write_text(report.model_dump_json(indent=2))
    leave(0)


def _checked(given: Sequence[str] | None, known: Sequence[str], option: str) -> Sequence[str]:
    for name in given or ():
        if name not in known:
            raise typer.BadParameter(f"{name!r} is none of {', '.join(known)}.", param_hint=option)
    return given or known


def _cases(name: str) -> list[Case]:
    """All cases of a suite: the user tasks without attack, then the pairs."""
    return [*suite(name).benign, *suite(name).pairs]


def _sampled(cases: dict[str, list[Case]], pairs: int | None, seed: int) -> dict[str, list[Case]]:
    """A sample of the pairs, with the user tasks of the sample without attack."""
    if pairs is None:
        return cases
    every = [case for of_suite in cases.values() for case in of_suite if case.injection]
    dice = random.Random(seed)  # noqa: S311  # a sample, no secret
    kept = {case.name for case in dice.sample(every, min(pairs, len(every)))}
    users = {name.rpartition("/")[0] for name in kept}
    return {name: [case for case in of_suite if case.name in kept | users] for name, of_suite in cases.items()}


async def run(
    report: Report,
    folder: Path,
    cases: dict[str, list[Case]],
    strategies: Sequence[str],
    arms: Sequence[str],
) -> None:
    """Fill in the report. Raises NotConnected, ServerUnavailable, CannotContinue."""
    with Progress(console=Console(stderr=True)) as bar:
        async with served(folder) as client:
            for arm in arms:
                for name, of_suite in cases.items():
                    wanted = [strategy for strategy in strategies if strategy in ARMS[arm].strategies]
                    row = bar.add_task(f"{arm}, {name}", total=len(of_suite) * len(wanted))
                    advance: Callable[[], None] = lambda row=row: bar.advance(row)  # type: ignore[misc]  # noqa: E731
                    async with trial(ARMS[arm], suite(name), client, folder) as under_test:
                        for strategy in wanted:
                            report.runs += await under_test.run(strategy, of_suite, advance)  # type: ignore[arg-type]


@asynccontextmanager
async def served(folder: Path):  # type: ignore[no-untyped-def]
    """A development server, and a client of it."""
    spec = ServerSpec(folder / "server", port=free_port(), ui_port=free_port(), attributes=search_attributes.TYPES)
    server = DevServer(spec, await find_cli(lambda _: None))
    await server.start()
    try:
        yield await connect(address=server.address, plain=True)
    finally:
        await server.stop()


def _first(problems: BaseExceptionGroup[BaseException]) -> BaseException:
    first = problems.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first


def show(report: Report) -> None:
    """Print the tables and what they depend on; plain text where stdout is no terminal."""
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(*report.tables(), sep="\n")
    for limit in report.ceilings:
        reached = limit.tasks - len(limit.beyond)
        console.print(
            f"{limit.suite}: the prompt holds every value of authority in {reached} of {limit.tasks} user tasks."
        )
    console.print(f"Faulty graders: {', '.join(report.faulty) or 'none'}.")
    console.print(f"AgentDojo {report.version}, seed {report.seed}, on {report.machine}")


if __name__ == "__main__":
    typer.run(main)
