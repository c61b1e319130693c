"""`python -m evals.clients`: public clients of MCP, killed behind the gateway, or short of time.

Each makes payments one after the other, and is killed at moments that a seed draws, with what it started or alone; then
it starts again, and goes on by its own record. Or nothing is killed, and its time-out is shorter than a payment takes,
so that it calls again. None of them gives a key.
"""

import asyncio
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.report import Machine
from evals.clients.programs import CLIENTS, PAYERS, Client, NoProgram, say
from evals.gateway.place import end_holders, environment
from evals.markdown import table
from runtime.child import end, last_line, spawn
from runtime.dev_server import free_port
from runtime.process import leave

ROOT = Path(__file__).parents[3]
LOOK_SECONDS = 0.02
LIMIT_SECONDS = 240.0
CALM, SHORT = (0.15, 120.0), (2.5, 1.0)
"""The seconds that a payment takes, and the client's time-out."""
SHORT_COUNT = 4


@dataclass
class Run:
    """One client at its payments, and what came of them."""

    client: Client
    is_http: bool
    is_short: bool
    has_gateway: bool
    count: int
    kills: int
    killed: int = 0
    twice: int = 0
    lost: int = 0
    noted: int = 0
    """Answers that say that they are those of an earlier call."""
    asked: int = 0
    """Answers that say that a person has to settle the call."""
    unanswered: int = 0
    problem: str = ""

    @property
    def way(self) -> str:
        return "HTTP" if self.is_http else "stdio"

    @property
    def is_broken(self) -> bool:
        return self.has_gateway and bool(self.twice or self.lost or self.unanswered or self.problem)


async def play(run: Run, folder: Path, seed: int) -> None:
    """Fill in what a run comes to."""
    folder.mkdir()
    book, record, state = folder / "book", folder / "record", folder / "state"
    seconds, limit = SHORT if run.is_short else CALM
    shop = [sys.executable, str(PAYERS / "shop.py"), str(book), str(seconds)]
    gateway = [sys.executable, "-m", "replan", "mcp", "--state", str(state), "--idle", "3"]
    serving: subprocess.Popen[bytes] | None = None
    target = [*gateway, "--session", "payments", "--", *shop] if run.has_gateway else shop
    if run.is_http:
        port = free_port()
        serving = spawn([*gateway, "--http", f"127.0.0.1:{port}", "--", *shop], folder / "http.log", folder=ROOT)
        await _until_ready(folder / "http.log")
        target = [f"http://127.0.0.1:{port}/mcp/payments"]
    program = [*await run.client.command(), str(record), str(run.count), str(limit), *target]
    try:
        async with asyncio.timeout(LIMIT_SECONDS):
            await _until_done(run, program, folder, book, random.Random(f"{seed}/{run.client.name}/{run.way}"))  # noqa: S311
    except TimeoutError:
        run.problem = f"no end: {last_line(folder / 'client.log')}"
    finally:
        if serving is not None:
            await end(serving)
        await end_holders(state)
    paid = Counter(book.read_text().split()) if book.exists() else Counter[str]()
    answers = record.read_text() if record.exists() else ""
    run.twice = sum(times > 1 for times in paid.values())
    run.lost = sum(not paid[f"p-{number}"] for number in range(run.count))
    run.noted, run.asked = answers.count("Not done again"), answers.count("Do not call it again meanwhile")
    run.unanswered = answers.count("no answer")


async def _until_ready(log: Path) -> None:
    async with asyncio.timeout(60):
        while "ready" not in log.read_text(errors="replace"):  # noqa: ASYNC110  # no event tells
            await asyncio.sleep(LOOK_SECONDS)


async def _until_done(run: Run, program: Sequence[str], folder: Path, book: Path, dice: random.Random) -> None:
    """Start the program again until it has ended by itself, and kill it as often as drawn."""
    marks = sorted(dice.sample(range(1, run.count), run.kills))
    while True:
        with (folder / "client.log").open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *program, cwd=ROOT, env=environment(), stdin=asyncio.subprocess.DEVNULL,
                stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        if marks:
            await _kill_at(process, marks.pop(0), book, dice)
            if process.returncode == -signal.SIGKILL:
                run.killed += 1
                continue
        try:
            code = await process.wait()
        finally:
            _kill(process, is_whole=True)
        if code:
            run.problem = f"failed: {last_line(folder / 'client.log')}"
        return


async def _kill_at(process: asyncio.subprocess.Process, mark: int, book: Path, dice: random.Random) -> None:
    """Kill a client around its payment number `mark`: during the call, or soon after its answer."""
    while process.returncode is None and _paid(book) < mark:  # noqa: ASYNC110  # no event tells
        await asyncio.sleep(LOOK_SECONDS)
    await asyncio.sleep(dice.uniform(0, CALM[0] * 1.5))
    _kill(process, is_whole=dice.random() < 0.5)
    await process.wait()


def _paid(book: Path) -> int:
    return len(set(book.read_text().split())) if book.exists() else 0


def _kill(process: asyncio.subprocess.Process, *, is_whole: bool) -> None:
    """Kill a process, and with `is_whole` its group."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL) if is_whole else process.kill()


def main(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME", help="Of the clients; all.")] = None,
    count: Annotated[int, typer.Option(min=2, help="Payments of a client that is killed.")] = 20,
    kills: Annotated[int, typer.Option(min=0, help="How often it is killed.")] = 8,
    seed: Annotated[int, typer.Option(help="Draws the moments of the kills.")] = 7,
    bare: Annotated[bool, typer.Option(help="Whether to run each without the gateway, too.")] = True,
    keep: Annotated[Path | None, typer.Option(help="A new folder for everything, which stays.")] = None,
) -> None:
    """Kill clients of MCP while they pay; exit code 1 when a payment was made twice, or lost."""
    chosen = [client for client in CLIENTS if not names or client.name in names]
    if names and len(chosen) != len(set(names)):
        known = ", ".join(client.name for client in CLIENTS)
        raise typer.BadParameter(f"the clients are {known}", param_hint="NAME")
    runs = [run for client in chosen for run in _runs(client, count, min(kills, count - 1), has_bare=bare)]
    try:
        with tempfile.TemporaryDirectory(prefix="replan-clients-", ignore_cleanup_errors=True) as folder:
            asyncio.run(_play_all(runs, keep or Path(folder), seed))
    except NoProgram as problem:
        typer.echo(str(problem), err=True)
        leave(6)
    except KeyboardInterrupt:
        leave(130)
    typer.echo(outcomes(runs) + "\n")
    for run in runs:
        if run.problem:
            typer.echo(f"{run.client.name}, {run.way}: {run.problem}")
    typer.echo(f"On {Machine.this()}")
    leave(1 if any(run.is_broken for run in runs) else 0)


def _runs(client: Client, count: int, kills: int, *, has_bare: bool) -> list[Run]:
    ways = [(False, True), (True, True), *([(False, False)] if has_bare else [])]
    return [
        Run(client, is_http, is_short, has_gateway, SHORT_COUNT if is_short else count, 0 if is_short else kills)
        for is_short in (False, True)
        for is_http, has_gateway in ways
    ]


async def _play_all(runs: Sequence[Run], folder: Path, seed: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number, run in enumerate(runs, 1):
        await play(run, (folder / f"{number}").absolute(), seed)
        short = "short of time" if run.is_short else f"{run.killed} kills"
        behind = "" if run.has_gateway else ", bare"
        words = f"{run.twice} twice, {run.lost} lost, {run.noted} noted, {run.asked} asked"
        words = f"{words}, {run.unanswered} unanswered {run.problem}".rstrip()
        say(f"{number} of {len(runs)}: {run.client.name}, {run.way}{behind}, {short}: {words}")


def outcomes(runs: Sequence[Run]) -> str:
    """What the runs came to, in Markdown: a row for each client and way."""
    columns = (
        "client",
        "way",
        "payments",
        "kills",
        "twice",
        "lost",
        "noted",
        "asked",
        "short of time",
        "twice",
        "lost",
    )
    lines = list[list[str]]()
    for calm in (run for run in runs if not run.is_short):
        short = next(
            run
            for run in runs
            if run.is_short and (run.client, run.way, run.has_gateway) == (calm.client, calm.way, calm.has_gateway)
        )
        way = calm.way if calm.has_gateway else "the server's command"
        counts = (calm.count, calm.killed, calm.twice, calm.lost, calm.noted, calm.asked)
        figures = (*counts, short.count, short.twice, short.lost)
        lines.append([calm.client.title, way, *map(str, figures)])
    return table(columns, lines)


if __name__ == "__main__":
    typer.run(main)
