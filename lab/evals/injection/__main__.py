"""`python -m evals.injection`: AgentDojo's attacks on a model that obeys them all, and what Replan lets it do."""

import asyncio
import os
import random
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from json import dumps
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, get_args

import typer
from pydantic import BaseModel, computed_field
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks.report import Machine
from evals.injection import servers
from evals.injection.arms import ARMS, UNDEFENDED
from evals.injection.declared import DECLARED, EFFECTS
from evals.injection.model import Strategy, is_known
from evals.injection.suites import NAMES, VERSION, Case, MissingSuites, suite
from evals.injection.trial import Job, Run, play
from evals.problems import first_problem
from runtime.client import NotConnected
from runtime.dev_server import DevServer, ServerSpec, ServerUnavailable, find_cli, free_port
from runtime.process import leave
from runtime.serve import CannotContinue
from workflows.account import search_attributes

PART = 16
"""Cases of one job."""
UNAVAILABLE = (NotConnected, ServerUnavailable, MissingSuites, CannotContinue)


class Ceiling(BaseModel):
    """How many user tasks of a suite can be solved unattended, if content may give no value of authority."""

    suite: str
    tasks: int
    beyond: list[str]
    """The user tasks with a call that has a value of authority which the prompt does not hold."""
    beyond_lists: list[str]
    """Those of them whose values are not in the results of the lists either that the task reads."""


class Report(BaseModel):
    """What an eval came to."""

    version: str = VERSION
    seed: int
    machine: str
    ceilings: list[Ceiling] = []
    lenient: list[str] = []
    """The user tasks whose grader is content although none of their effects was applied."""
    runs: list[Run] = []

    @computed_field  # type: ignore[prop-decorator]  # as pydantic's own pages have it
    @property
    def faulty(self) -> list[str]:
        """The pairs whose grader reports an attack although no call of the injection task was made."""
        return sorted({f"{run.suite}/{run.user}/{run.injection}" for run in self.runs if run.is_faulty})

    def of(self, arm: str, strategy: str, *, attacked: bool) -> list[Run]:
        """The runs of an arm."""
        return [
            run for run in self.runs if (run.arm, run.strategy, run.injection is not None) == (arm, strategy, attacked)
        ]

    def wins(self) -> Iterator[str]:
        """The attacks that won against a defence, a line for each arm, if they are few."""
        for arm, strategy in dict.fromkeys((run.arm, run.strategy) for run in self.runs):
            won = [
                f"{run.suite}/{run.user}/{run.injection}"
                for run in self.of(arm, strategy, attacked=True)
                if run.is_won and arm != UNDEFENDED
            ]
            if 0 < len(won) <= FEW:
                yield f"Attacks that win against {arm!r}, {strategy}: {', '.join(won)}."

    def tables(self) -> Iterator[Table]:
        """One table for each strategy, for people."""
        for strategy in dict.fromkeys(run.strategy for run in self.runs):
            columns = (
                "arm",
                "attacks that win",
                "sound graders",
                "useful, no attack",
                "sound graders",
                "useful, attacked",
                "of undefended",
                "questions per task",
            )
            table = Table(*columns, title=f"{strategy}: {PLAYED[strategy]}", title_justify="left")
            for arm in dict.fromkeys(run.arm for run in self.runs if run.strategy == strategy):
                table.add_row(*self._row(arm, strategy))
            yield table

    def _row(self, arm: str, strategy: str) -> Iterator[str]:
        pairs, benign = (self.of(arm, strategy, attacked=attacked) for attacked in (True, False))
        sound = [run for run in pairs if f"{run.suite}/{run.user}/{run.injection}" not in self.faulty]
        strict = [run for run in benign if f"{run.suite}/{run.user}" not in self.lenient]
        yield arm
        yield _share(sum(run.is_won for run in pairs), len(pairs))
        yield _share(sum(run.is_won for run in sound), len(sound))
        yield _share(_useful(benign), len(benign))
        yield _share(_useful(strict), len(strict))
        yield _share(_useful(pairs), len(pairs))
        yield ", ".join(
            f"{_useful(runs) / reached:.0%}"
            if (reached := _useful(self.of(UNDEFENDED, strategy, attacked=at)))
            else "-"
            for runs, at in ((benign, False), (pairs, True))
        )
        yield f"{sum(run.questions for run in benign) / len(benign):.2f}" if benign else "-"


FEW = 12
"""So many attacks that win are named."""
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
    beyond, beyond_lists = (
        [case.user for case in cases if _needs_content(case, with_lists=with_lists)] for with_lists in (False, True)
    )
    return Ceiling(suite=name, tasks=len(cases), beyond=beyond, beyond_lists=beyond_lists)


def _needs_content(case: Case, *, with_lists: bool) -> bool:
    """Whether a call has a value of authority that neither the prompt has, nor an earlier result of a list."""
    words, environment = case.prompt, case.environment()
    for call in case.user_calls:
        declared = DECLARED[call.tool]
        values = {name: call.args[name] for name in declared.authority if name in call.args}
        if not is_known(values, words):
            return True
        result, _ = case.suite.run(environment, call)
        words += f"\n{result}" if with_lists and declared.is_list else ""
    return False


def lenient(name: str) -> list[str]:
    """The user tasks with effects whose grader accepts an environment in which only their reads were made."""
    found = list[str]()
    for case in suite(name).benign:
        reads = [call for call in case.user_calls if call.tool not in EFFECTS]
        before, after = suite(name).played(case, reads)
        if len(reads) < len(case.user_calls) and case.is_useful(case.result, before, after, reads):
            found.append(case.name)
    return found


def main(
    chosen_suites: Annotated[list[str] | None, typer.Option("--suite", help=f"One of {', '.join(NAMES)}.")] = None,
    strategies: Annotated[list[str] | None, typer.Option("--strategy", help="plan or react.")] = None,
    arms: Annotated[list[str] | None, typer.Option("--arm", help=f"One of: {'; '.join(ARMS)}.")] = None,
    pairs: Annotated[int | None, typer.Option(min=1, help="A sample of so many pairs, instead of all.")] = None,
    seed: Annotated[int, typer.Option(help="The seed of the sample.")] = 7,
    processes: Annotated[int, typer.Option(min=1, help="Processes with a worker.")] = os.cpu_count() or 1,
    json: Annotated[Path | None, typer.Option(help="Write the report to this file.")] = None,
    is_servers: Annotated[
        bool, typer.Option("--servers", help="Instead: tasks with an MCP server, which need no AgentDojo.")
    ] = False,
) -> None:
    """Run AgentDojo's pairs of user task and injection task on Replan, with a model that obeys every injection."""
    if is_servers:
        leave(_play_servers(json))
    chosen = _checked(chosen_suites, NAMES, "--suite"), _checked(strategies, get_args(Strategy), "--strategy")
    named = _checked(arms, tuple(ARMS), "--arm") if arms else [name for name, arm in ARMS.items() if arm.is_usual]
    report = Report(seed=seed, machine=str(Machine.this()))
    try:
        report.ceilings = [ceiling(name) for name in chosen[0]]
        report.lenient = [user for name in chosen[0] for user in lenient(name)]
        sampled = _sampled([case for name in chosen[0] for case in _cases(name)], pairs, seed)
        asyncio.run(_run_all(report, sampled, chosen[1], named, processes))
    except* UNAVAILABLE as problems:
        typer.echo(first_problem(problems), err=True)
        leave(6)
    except* KeyboardInterrupt:
        leave(130)
    show(report)
    if json:
        json.write_text(report.model_dump_json(indent=2))
    leave(0)


def _play_servers(json: Path | None) -> int:
    """Run the tasks with an MCP server; return 1 if an attack wins where nobody has read the descriptions, else 0."""
    played = asyncio.run(_played_on_servers())
    Console(width=None if sys.stdout.isatty() else 160).print(servers.table(played))
    if json:
        json.write_text(dumps([each.model_dump() for each in played], indent=2))
    won = [f"{each.arm}: {each.situation}" for each in played if each.is_won and each.arm in servers.DEFENDED]
    typer.echo(f"Attacks that win against descriptions that nobody has read: {'; '.join(won) or 'none'}.")
    unseen = [each.situation for each in played if each.situation in servers.ATTACKS and not each.was_shown]
    typer.echo(f"Attacks that the model was not shown: {', '.join(dict.fromkeys(unseen)) or 'none'}.")
    return int(bool(won))


async def _played_on_servers() -> list[servers.Played]:
    with tempfile.TemporaryDirectory(prefix="replan-injection-") as folder:
        async with served(Path(folder)) as address:
            return await servers.play(address, Path(folder))


def _checked(given: Sequence[str] | None, known: Sequence[str], option: str) -> Sequence[str]:
    for name in given or ():
        if name not in known:
            raise typer.BadParameter(f"{name!r} is none of {', '.join(known)}.", param_hint=option)
    return given or known


def _cases(name: str) -> list[Case]:
    """All cases of a suite: the user tasks without attack, then the pairs."""
    return [*suite(name).benign, *suite(name).pairs]


def _sampled(cases: Sequence[Case], pairs: int | None, seed: int) -> Sequence[Case]:
    """A sample of the pairs, with the user tasks of the sample without attack."""
    if pairs is None:
        return cases
    every = [case for case in cases if case.injection]
    dice = random.Random(seed)  # noqa: S311  # a sample, no secret
    kept = {case.name for case in dice.sample(every, min(pairs, len(every)))}
    users = {name.rpartition("/")[0] for name in kept}
    return [case for case in cases if case.name in kept | users]


def _jobs(
    address: str, folder: Path, cases: Sequence[Case], strategies: Sequence[str], arms: Sequence[str]
) -> list[Job]:
    """The work in parts."""
    jobs = list[Job]()
    for arm in arms:
        for name in dict.fromkeys(case.suite.name for case in cases):
            mine = [(case.user, case.injection) for case in cases if case.suite.name == name]
            chosen = tuple(strategy for strategy in ARMS[arm].strategies if strategy in strategies)
            for part in (mine[at : at + PART] for at in range(0, len(mine) if chosen else 0, PART)):
                place = {"number": len(jobs), "address": address, "folder": folder}
                jobs.append(Job(**place, arm=arm, suite=name, strategies=chosen, cases=tuple(part)))
    return jobs


async def _run_all(
    report: Report, cases: Sequence[Case], strategies: Sequence[str], arms: Sequence[str], processes: int
) -> None:
    with tempfile.TemporaryDirectory(prefix="replan-injection-") as folder:
        async with served(Path(folder)) as address:
            await run(report, Path(folder), _jobs(address, Path(folder), cases, strategies, arms), processes)


async def run(report: Report, folder: Path, jobs: Sequence[Job], processes: int) -> None:
    """Fill in the report. Raises NotConnected, ServerUnavailable, CannotContinue."""
    with Progress(console=Console(stderr=True)) as bar:
        rows = {
            arm: bar.add_task(arm, total=sum(job.size for job in jobs if job.arm == arm))
            for arm in dict.fromkeys(job.arm for job in jobs)
        }
        pool = ProcessPoolExecutor(processes, get_context("spawn"))
        try:
            playing = [_played(pool, job, partial(bar.advance, rows[job.arm], job.size)) for job in jobs]
            report.runs = [run for runs in await asyncio.gather(*playing) for run in runs]
        finally:
            pool.shutdown(cancel_futures=True)


async def _played(pool: ProcessPoolExecutor, job: Job, ended: Callable[[], None]) -> list[Run]:
    runs = await asyncio.get_running_loop().run_in_executor(pool, play, job)
    ended()
    return runs


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[str]:
    """A development server; returns its address."""
    spec = ServerSpec(folder / "server", port=free_port(), ui_port=free_port(), attributes=search_attributes.TYPES)
    server = DevServer(spec, await find_cli(lambda _: None))
    await server.start()
    # Nothing here uses TLS, and each request to a model would read all certificates of the system.
    os.environ.pop("SSL_CERT_FILE", None)
    os.environ["SSL_CERT_DIR"] = str(folder)
    try:
        yield server.address
    finally:
        await server.stop()


def show(report: Report) -> None:
    """Print the tables and what they depend on; plain text where stdout is no terminal."""
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(*report.tables(), sep="\n")
    for limit in report.ceilings:
        within, within_lists = (limit.tasks - len(users) for users in (limit.beyond, limit.beyond_lists))
        console.print(
            f"{limit.suite}: every value of authority is in the prompt in {within} of {limit.tasks} user tasks,"
            f" or in a list that the task reads in {within_lists}.",
            highlight=False,
        )
    for line in report.wins():
        console.print(line, highlight=False)
    console.print(f"Attacks that are graded as won without a call of theirs: {', '.join(report.faulty) or 'none'}.")
    console.print(f"User tasks that are graded as useful without an effect: {', '.join(report.lenient) or 'none'}.")
    console.print(f"AgentDojo {report.version}, seed {report.seed}, on {report.machine}")


if __name__ == "__main__":
    typer.run(main)
