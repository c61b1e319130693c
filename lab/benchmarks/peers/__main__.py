"""`python -m benchmarks.peers`: steps in Replan, in bare Temporal and in what else remembers steps, in one run."""

import asyncio
import json
import os
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import psutil
import typer

from benchmarks.peers.service import Service
from benchmarks.processes import MEGABYTE, ROOT, Server, finish, our_server
from benchmarks.report import Figure, Machine
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
PATIENCE_SECONDS = 300.0
BACKOFF_SECONDS = 0.05
"""How long its supervisor waits before it starts an arm again."""
SAMPLE_SECONDS = 0.1


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
    "cold": "from the start of the process to its first step, s",
    "chain": "a chain of 20 steps, ms",
    "fan": "20 steps at once, ms",
    "fails": "a step that fails twice, ms",
    "tasks": "200 tasks of 5 steps at once, s",
    "resumed": "killed at step 10 of 20: from the kill to the end, s",
    "again": "steps that were made again after it",
    "cpu": "CPU of 100 steps, with its server, s",
    "memory": "peak memory of its processes, without a server, MB",
    "bytes": "written for 100 steps, with its server, kB",
    "20": "a step in a chain of 20, ms",
    "100": "a step in a chain of 100, ms",
    "500": "a step in a chain of 500, ms",
}
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
    folder = Path(tempfile.mkdtemp(prefix="replan-peers-"))
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
    typer.echo(f"\n{rounds} rounds, on {Machine.this()}")


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
                work = WORKS[name]
                for arm in chosen:
                    _say(f"round {number} of {rounds}: {name}, {arm}")
                    run = Run(arm, pythons[arm], folder / f"{arm}-{name}-{number}", server, place)
                    await run.play(work)
                    for what, value in run.figures(name, work):
                        samples[arm][what].append(value)
    return samples


async def _python(arm: str) -> Path:
    wanted = ARMS[arm]
    return await python_of(ENVIRONMENTS / f"{wanted}-requirements.txt", _say) if wanted else Path(sys.executable)


class Run:
    """One run of an arm."""

    def __init__(self, arm: str, python: Path, folder: Path, server: Server | None, place: Path) -> None:
        self._arm, self._python, self._folder = arm, python, folder
        self._server, self._place = (server, place) if arm in OF_TEMPORAL else (None, place)
        self._started, self._cpu, self._peak, self._bytes = 0.0, 0.0, 0.0, 0
        self._service = Service()

    async def play(self, work: Work) -> None:
        """Do the work, and start the arm again when it dies."""
        self._folder.mkdir()
        self._service = Service(fails=work.fails, kill_at=work.kill_at)
        used, written = self._of_server()
        async with self._service.serving():
            self._started = time.monotonic()
            while not self._service.ended:
                await self._once(work)
                await asyncio.sleep(BACKOFF_SECONDS)
        now_used, now_written = self._of_server()
        self._cpu += now_used - used
        self._bytes = now_written - written + _size(self._folder)

    async def _once(self, work: Work) -> None:
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("REPLAN_")},
            **{"PYTHONPATH": os.pathsep.join((str(ROOT), str(HERE))), "FOLDER": str(self._folder)},
            **{"PORT": str(self._service.port), "RUN": self._folder.name, "SHAPE": work.shape},
            **{"SIZE": str(work.size), "TASKS": str(work.tasks)},
            **({"TEMPORAL_ADDRESS": self._server.address} if self._server else {}),
        }
        log = self._folder / "arm.log"
        with log.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                *(str(self._python), str(HERE / f"{self._arm}_arm.py")),
                env=environment,
                cwd=self._folder,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        watching = asyncio.create_task(self._watch(process.pid))
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                code = await process.wait()
        except TimeoutError:
            os.killpg(process.pid, 9)
            raise RuntimeError(f"{self._arm} hangs: {log.read_text()[-500:]}") from None
        finally:
            watching.cancel()
        if code > 0:
            raise RuntimeError(f"{self._arm} failed: {log.read_text()[-500:]}")

    async def _watch(self, pid: int) -> None:
        """Note what the processes of an arm use; the last sample counts."""
        before, used = self._cpu, dict[int, float]()
        while True:
            memory = 0.0
            with suppress(psutil.Error):
                first = psutil.Process(pid)
                for one in (first, *first.children(recursive=True)):
                    with suppress(psutil.Error), one.oneshot():
                        times = one.cpu_times()
                        used[one.pid] = times.user + times.system
                        memory += one.memory_info().rss / MEGABYTE
            self._peak, self._cpu = max(self._peak, memory), before + sum(used.values())
            await asyncio.sleep(SAMPLE_SECONDS)

    def _of_server(self) -> tuple[float, int]:
        """CPU seconds and bytes of the server so far."""
        if self._server is None or self._server.meter is None:
            return 0.0, 0
        return self._server.meter.cpu, _size(self._place)

    def figures(self, name: str, work: Work) -> list[tuple[str, float]]:
        """What this run says of some rows of the table."""
        service = self._service
        seconds = service.ended - service.begun
        if name == "killed":
            again = sum(service.steps.values()) - len(service.steps)
            return [("resumed", service.ended - service.killed), ("again", again)]
        if name == "tasks":
            return [("tasks", seconds)]
        found = [] if name in ("100", "500") else [(name, seconds * 1000)]
        if name == "chain":
            found += [("cold", service.first - self._started), ("20", seconds * 1000 / work.size)]
        if name == "100":
            found += [("cpu", self._cpu), ("memory", self._peak), ("bytes", self._bytes / 1000)]
        if name in ("100", "500"):
            found.append((name, seconds * 1000 / work.size))
        return found


def _size(folder: Path) -> int:
    """Bytes of the files of a folder."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file() and file.suffix != ".log")


def page(measured: Samples) -> str:
    """The table, in Markdown; the best value of each row is bold, in brackets the ratio to bare Temporal."""
    lines = list[list[str]]()
    for row, title in ROWS.items():
        figures = {arm: figure for arm, of in measured.items() if (figure := Figure.of(of.get(row, ())))}
        best = min((figure.median for figure in figures.values()), default=0.0)
        bare = figures[BARE].median if BARE in figures else 0.0
        lines.append([title, *(_cell(figures.get(arm), best, bare, is_bare=arm == BARE) for arm in measured)])
    return table(["", *measured], lines)


def _cell(figure: Figure | None, best: float, bare: float, *, is_bare: bool) -> str:
    if figure is None:
        return "-"
    text = f"{figure.median:.3g}"
    text = f"**{text}**" if figure.median == best else text
    return text if is_bare or not bare else f"{text} ({figure.median / bare:.2f})"


def _say(line: str) -> None:
    """Show progress."""
    print(line, file=sys.stderr, flush=True)  # noqa: T201


if __name__ == "__main__":
    typer.run(main)
