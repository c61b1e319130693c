"""`python -m benchmarks.peers`: steps in Replan, in bare Temporal and in what else remembers steps, in one run."""

import asyncio
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import defaultdict, deque
from collections.abc import Collection, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import psutil
import typer

from benchmarks.peers.service import Service
from benchmarks.processes import ROOT, Server, finish, our_server
from benchmarks.report import Figure, Machine, load
from evals.frameworks.environments import NoEnvironment, python_of
from evals.markdown import table
from runtime.process import leave

HERE = Path(__file__).parent / "arms"
ENVIRONMENTS = ROOT / "lab" / "evals" / "effects_bench" / "arms"
BARE = "temporal"
ARMS: Mapping[str, str] = {
    BARE: "",
    "temporal_faults": "",
    "replan_tasks": "",
    "dbos": "dbos",
    "langgraph": "langgraph",
    "agent_once": "langgraph",
    "replan_functions": "langgraph",
}
"""The arms, and of each the environment that it needs besides this one."""
OF_TEMPORAL = (BARE, "temporal_faults", "replan_tasks")
ONLY_CALLS = ("agent_once", "replan_functions")
"""Arms that do not retry: their caller does."""
PATIENCE_SECONDS = 300.0
BACKOFF_SECONDS = 0.05
"""How long its supervisor waits before it starts an arm again."""


@dataclass(frozen=True)
class Work:
    """What an arm is given to do."""

    shape: str = "chain"
    size: int = 20
    tasks: int = 1
    fails: int = 0
    kill_at: int = 0


WORKS: Mapping[str, Work] = {
    "chain": Work(),
    "fan": Work("fan"),
    "fails": Work(size=1, fails=2),
    "tasks": Work(size=5, tasks=200),
    "killed": Work(kill_at=10),
    "100": Work(size=100),
    "500": Work(size=500),
}
ROWS: Mapping[str, str] = {
    "cold": "from the start of the process to its first step, s; a Temporal server runs already",
    "chain": "a chain of 20 steps, ms",
    "100": "a chain of 100 steps, ms",
    "500": "a chain of 500 steps, ms",
    "fan": "20 steps at once, ms",
    "tasks": "200 tasks of 5 steps at once, s",
    "fails": "a step that fails twice, with the waits that are its default, ms",
    "resumed": "killed at step 10 of 20: from the kill to the end, s",
    "again": "steps that were made again after it",
    "cpu": "CPU of the chain of 100, with its server, s",
    "memory": "peak memory of its processes, with its server, MB",
    "bytes": "written to disk in the chain of 100, with its server, kB",
}
UNRANKED = ("fails",)
"""Rows in which no value is better: they show what somebody chose."""
Samples = dict[str, dict[str, list[float]]]
"""By arm, then by what was measured, one value a round."""


def main(
    rounds: Annotated[int, typer.Option(min=1, help="How often each arm does each work.")] = 3,
    arms: Annotated[str, typer.Option(help=f"Of {', '.join(ARMS)}.")] = ",".join(ARMS),
    works: Annotated[str, typer.Option(help=f"Of {', '.join(WORKS)}.")] = ",".join(WORKS),
    rows: Annotated[Path | None, typer.Option(help="A file for all values, as JSON.")] = None,
) -> None:
    """Measure, and print a table: medians, ratios to bare Temporal, and the best value of each row."""
    chosen, wanted = _among(ARMS, arms, "--arms"), _among(WORKS, works, "--works")
    folder, before = Path(tempfile.mkdtemp(prefix="replan-peers-")), load()
    try:
        measured = finish(measure(chosen, wanted, rounds, folder))
    except NoEnvironment as problem:
        typer.echo(str(problem), err=True)
        leave(6)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if rows is not None:
        rows.write_text(json.dumps(measured, indent=1), encoding="utf-8")
    typer.echo(page(measured))
    typer.echo(f"\n{rounds} rounds, on {Machine.this()}; load {before} before, {load()} after")


def _among(known: Collection[str], said: str, option: str) -> list[str]:
    """The names in a list with commas."""
    names = said.split(",")
    if unknown := [name for name in names if name not in known]:
        raise typer.BadParameter(f"{unknown[0]!r} is none of {', '.join(known)}.", param_hint=option)
    return names


async def measure(chosen: Sequence[str], works: Sequence[str], rounds: int, folder: Path) -> Samples:
    """All values. Raises NoEnvironment, ServerUnavailable."""
    samples: Samples = {name: defaultdict(list) for name in chosen}
    async with AsyncExitStack() as stack:
        pythons = {name: await _python(name) for name in chosen}
        place = folder / "server"
        place.mkdir()
        server = await stack.enter_async_context(our_server(place)) if {*chosen} & {*OF_TEMPORAL} else None
        for number in range(1, rounds + 1):
            for name in works:
                turned = deque(chosen)
                turned.rotate(number)  # what one arm leaves to do falls upon the next: each time another one
                for arm in turned:
                    if name == "fails" and arm in ONLY_CALLS:
                        continue
                    _say(f"round {number} of {rounds}: {name}, {arm}")
                    run = Run(arm, pythons[arm], folder / f"{arm}-{name}-{number}", server)
                    try:
                        await run.play(WORKS[name])
                    except RunFailed as problem:
                        _say(str(problem))
                        continue
                    for what, value in run.figures(name):
                        samples[arm][what].append(value)
    return samples


async def _python(arm: str) -> Path:
    wanted = ARMS[arm]
    return await python_of(ENVIRONMENTS / f"{wanted}-requirements.txt", _say) if wanted else Path(sys.executable)


class RunFailed(RuntimeError):
    """A run did not come to its end; the message says why."""


@dataclass
class Usage:
    """What processes have used so far."""

    cpu: float = 0.0
    written: float = 0.0
    memory: float = 0.0
    """Their peak, in megabytes."""

    def add(self, process: psutil.Process) -> None:
        """Add a process; nothing if it has ended."""
        with suppress(psutil.Error, OSError):
            times, status = process.cpu_times(), Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
            self.cpu += times.user + times.system
            self.written += process.io_counters().write_bytes / 1000
            self.memory += next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1000


class Run:
    """One run of an arm. It reads what Linux says of processes."""

    def __init__(self, arm: str, python: Path, folder: Path, server: Server | None) -> None:
        self._arm, self._python, self._folder = arm, python, folder
        self._server = server if arm in OF_TEMPORAL else None
        self._started, self._process = 0.0, list[psutil.Process]()
        self._used, self._service = list[Usage](), Service()

    async def play(self, work: Work) -> None:
        """Do the work, and start the arm again when it dies. Raises RunFailed."""
        self._folder.mkdir()
        self._service = service = Service(fails=work.fails, kill_at=work.kill_at, look=self._look)
        try:
            async with asyncio.timeout(PATIENCE_SECONDS), service.serving():
                self._started = time.monotonic()
                while not service.ended:
                    await self._once(work)
                    await asyncio.sleep(BACKOFF_SECONDS)
        except TimeoutError:
            raise RunFailed(f"{self._arm} did not end: {self._said}") from None
        if work.kill_at and not service.killed:
            raise RunFailed(f"{self._arm} was not killed")

    @property
    def _said(self) -> str:
        return (self._folder / "arm.log").read_text(encoding="utf-8", errors="replace")[-500:]

    async def _once(self, work: Work) -> None:
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("REPLAN_")},
            **{"PYTHONPATH": os.pathsep.join((str(ROOT), str(HERE))), "FOLDER": str(self._folder)},
            **{"PORT": str(self._service.port), "RUN": self._folder.name, "SHAPE": work.shape},
            **{"SIZE": str(work.size), "TASKS": str(work.tasks)},
            **({"TEMPORAL_ADDRESS": self._server.address} if self._server else {}),
        }
        with (self._folder / "arm.log").open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                *(str(self._python), str(HERE / f"{self._arm}_arm.py")),
                env=environment,
                cwd=self._folder,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        with suppress(psutil.Error):  # it has ended already
            self._process = [psutil.Process(process.pid)]
        try:
            code = await process.wait()
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        if not self._service.ended and not (code == -signal.SIGKILL and self._service.killed):
            raise RunFailed(f"{self._arm} ended with {code}: {self._said}")

    def _look(self) -> None:
        usage = Usage()
        with suppress(psutil.Error):
            for process in (*self._process, *self._process[0].children(recursive=True)):
                usage.add(process)
        if self._server and self._server.meter:
            usage.add(psutil.Process(self._server.meter.pid))
        self._used.append(usage)

    def figures(self, name: str) -> list[tuple[str, float]]:
        """What this run says of some rows of the table."""
        service = self._service
        seconds = service.ended - service.begun
        if name == "killed":
            again = sum(service.steps.values()) - len(service.steps)
            return [("resumed", service.ended - service.killed), ("again", again)]
        found = [(name, seconds if name == "tasks" else seconds * 1000)]
        if name == "chain":
            found.append(("cold", service.first - self._started))
        if name == "100":
            before, after = self._used[0], self._used[-1]
            found += [("cpu", after.cpu - before.cpu), ("memory", after.memory)]
            found.append(("bytes", after.written - before.written))
        return found


def page(measured: Samples) -> str:
    """The table, in Markdown: medians, smallest and largest, and how often bare Temporal's.

    In bold the best of each row, and what cannot be told from it.
    """
    lines = list[list[str]]()
    for row, title in ROWS.items():
        figures = {arm: figure for arm, of in measured.items() if (figure := Figure.of(of.get(row, ())))}
        ranked = {} if row in UNRANKED else figures
        best = min(ranked.values(), key=lambda figure: figure.median, default=None)
        bare = ranked[BARE].median if BARE in ranked else 0.0
        lines.append([title, *(_cell(figures.get(arm), best, 0 if arm == BARE else bare) for arm in measured)])
    return table(["", *measured], lines)


def _cell(figure: Figure | None, best: Figure | None, bare: float) -> str:
    if figure is None:
        return "-"
    is_best = best is not None and figure.low <= best.high
    text = f"**{figure}**" if is_best else str(figure)
    return f"{text}, {figure.median / bare:.2f}" if bare else text


def _say(line: str) -> None:
    """Show progress."""
    print(line, file=sys.stderr, flush=True)  # noqa: T201


if __name__ == "__main__":
    typer.run(main)
