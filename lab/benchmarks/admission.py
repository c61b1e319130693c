"""`python -m benchmarks.admission`: many tasks at a service that limits its callers, or that is down for a while."""

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal, get_args

import typer
from pydantic import BaseModel
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from temporalio.client import Client, WorkflowFailureError

from benchmarks import processes, report
from benchmarks.processes import replan_worker
from benchmarks.report import Machine, Report, Verdict
from runtime.client import connect
from runtime.dev_server import free_port
from runtime.process import leave
from workflows.account.task import Task, TaskStatus
from workflows.agent import AgentWorkflow
from workflows.plans.proposal import Step

Trouble = Literal["429", "503", "refused"]
Header = Literal["", "whole", "short"]

QUEUE, STEP, TOGETHER = "admission", "ask", 50
TRIAL_SECONDS = 5.0
"""How often a service that is down, or says no time, may be tried."""
SHORT = 2
"""Seconds that a service asks for again and again which does not know how long its limit lasts."""
KNOWN_AFTER = 2.0
"""Seconds after which all workers know of the trouble; calls before that were under way already."""
BACK_WITHIN = {20.0: 8.0, 300.0: 15.0}
"""Seconds after the end of an outage within which all tasks are to be completed, by the length of the outage."""


@dataclass(frozen=True)
class Scenario:
    trouble: Trouble
    seconds: float
    tasks: int
    header: Header = ""
    """Whether the Retry-After of an answer 429 is all the time that is left, or always SHORT; empty for none."""
    rate: int = 0
    """How many calls a second the service answers when it is back; 0 for all."""

    def __str__(self) -> str:
        headers = {"": ", no header", "whole": ", Retry-After", "short": f", Retry-After: {SHORT}"}
        header = headers[self.header] if self.trouble == "429" else ""
        return f"{self.tasks} tasks, {self.seconds:g} s of {self.trouble}{header}"

    @property
    def interval(self) -> float:
        """Seconds between two trials, as far as the service does not say when it is back."""
        return {"": TRIAL_SECONDS, "whole": self.seconds, "short": float(SHORT)}[self.header]


class Call(BaseModel, frozen=True):
    """A call that came in, in seconds since the trouble began."""

    at: float
    is_served: bool


@dataclass
class Service:
    """A web server on loopback that is in trouble for a while, and then answers so many calls a second."""

    scenario: Scenario
    port: int = field(default_factory=free_port)
    calls: list[Call] = field(default_factory=list)
    began: float = 0.0
    _window: tuple[int, int] = (0, 0)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    @property
    def now(self) -> float:
        return time.monotonic() - self.began

    async def run(self, *, is_first: bool = True) -> asyncio.Server | None:
        """Listen, unless connections are refused at first."""
        if is_first and self.scenario.trouble == "refused":
            return None
        return await asyncio.start_server(self._talk, "127.0.0.1", self.port, backlog=2000)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            head = self._answer()
            writer.write(b"HTTP/1.1 %s\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}" % head.encode())
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            return
        finally:
            writer.close()

    def _answer(self) -> str:
        now, scenario = self.now, self.scenario
        left = scenario.seconds - now
        served = left <= 0 and self._has_room(now)
        self.calls.append(Call(at=now, is_served=served))
        if served:
            return "200 OK"
        if left > 0 and scenario.trouble == "503":
            return "503 Down"
        whole = max(1, round(left + 0.5)) if left > 0 else 1
        wait = SHORT if left > 0 and scenario.header == "short" else whole
        return "429 Slow" + (f"\r\nretry-after: {wait}" if scenario.header else "")

    def _has_room(self, now: float) -> bool:
        second, used = self._window
        used = used + 1 if int(now) == second else 1
        self._window = (int(now), used)
        return not self.scenario.rate or used <= self.scenario.rate


class Row(BaseModel, frozen=True):
    """What came of one scenario."""

    scenario: str
    tasks: int
    completed: int
    calls_in_trouble: int
    """Calls that came in before the service was back."""
    calls_when_known: int
    """Those of them that came in later than KNOWN_AFTER."""
    calls_after: int
    """Calls that were not served when it was back."""
    p99: float | None
    """Seconds from the return of the service until 99 of 100 tasks were completed; None if fewer were."""
    last: float | None
    events: float
    """Events in the history of a task."""


class AdmissionReport(Report):
    rows: tuple[Row, ...]
    workers: int
    load_before: float
    load_after: float
    goals: tuple[Verdict, ...]

    def table(self) -> Table:
        """A line for each scenario."""
        table = Table(
            "",
            "completed",
            "calls in trouble",
            "of them when known",
            "calls rejected after",
            "p99 s",
            "last s",
            "events",
        )
        for row in self.rows:
            table.add_row(
                row.scenario,
                f"{row.completed} of {row.tasks}",
                *map(str, (row.calls_in_trouble, row.calls_when_known, row.calls_after)),
                *(f"{seconds:.1f}" if seconds is not None else "-" for seconds in (row.p99, row.last)),
                f"{row.events:.1f}",
            )
        return table


def main(
    json: Annotated[Path | None, typer.Option(help="Write the figures to this file.")] = None,
    tasks: Annotated[list[int] | None, typer.Option(help="How many tasks; several times for several runs.")] = None,
    seconds: Annotated[list[float] | None, typer.Option(help="How long the trouble lasts; may be repeated.")] = None,
    trouble: Annotated[list[str] | None, typer.Option(help="429, 503 or refused; may be repeated.")] = None,
    rate: Annotated[int, typer.Option(min=1, help="Calls a second that a limited service answers later.")] = 10,
    workers: Annotated[int, typer.Option(min=1, help="Worker processes.")] = 2,
    address: Annotated[str | None, typer.Option(help="A server to use in place of one with our settings.")] = None,
) -> None:
    """Start tasks while their service is in trouble, and see when all of them are completed."""
    scenarios = [*_scenarios(trouble or ["429", "503", "refused"], seconds or [20.0], tasks or [40], rate)]
    found = processes.finish(run(scenarios, workers, address))
    where = f"{found.workers} workers, on {found.machine}; load {found.load_before:g} -> {found.load_after:g}"
    report.show(found.table(), [where, "p99 and last: seconds after the service is back"], found.goals)
    report.write(found, json)
    leave(0)


def _scenarios(troubles: Sequence[str], seconds: Sequence[float], tasks: Sequence[int], rate: int) -> list[Scenario]:
    found = list[Scenario]()
    for trouble in troubles:
        for number in tasks:
            for length in seconds:
                if trouble == "429":
                    found += [Scenario("429", length, number, header, rate) for header in get_args(Header)]
                elif trouble in ("503", "refused"):
                    found.append(Scenario("503" if trouble == "503" else "refused", length, number))
    return found


async def run(scenarios: Sequence[Scenario], workers: int, address: str | None) -> AdmissionReport:
    """Measure each scenario with a new server. Raises NotConnected, ServerUnavailable, WorkerUnavailable."""
    before, rows = report.load(), list[Row]()
    with Progress(console=Console(stderr=True)) as bar:
        for scenario in scenarios:
            async with _client(workers, address) as client:
                rows.append(await _measure(client, scenario, bar))
    goals = [goal for scenario, row in zip(scenarios, rows, strict=True) for goal in _goals(scenario, row)]
    return AdmissionReport(
        machine=Machine.this(),
        rows=tuple(rows),
        workers=workers,
        load_before=before,
        load_after=report.load(),
        goals=tuple(goals),
    )


def _goals(scenario: Scenario, row: Row) -> list[Verdict]:
    name, trials = str(scenario), 1 + int(scenario.seconds // scenario.interval)
    if scenario.trouble == "429":
        within = 1.5 * scenario.tasks / scenario.rate + (0.0 if scenario.header == "whole" else scenario.interval)
    else:
        within = BACK_WITHIN.get(scenario.seconds, 15.0)
    return [
        Verdict.of(f"{name}: tasks that are not completed", 0, row.tasks - row.completed),
        Verdict.of(f"{name}: calls in trouble, when it is known", trials, row.calls_when_known),
        Verdict.of(f"{name}: seconds until the tasks are completed", within, row.p99),
    ]


@asynccontextmanager
async def _client(workers: int, address: str | None) -> AsyncIterator[Client]:
    with tempfile.TemporaryDirectory(prefix="replan-admission-") as name:
        folder = Path(name)
        async with processes.our_server(folder / "server", address) as server:
            starting = [
                processes.start_worker(replan_worker(QUEUE), server.address, folder / "state", folder / f"{number}.log")
                for number in range(workers)
            ]
            running = [await one for one in starting]
            try:
                yield await connect(address=server.address, plain=True)
            finally:
                for process in running:
                    process.terminate()
                    await asyncio.to_thread(process.wait)


async def _measure(client: Client, scenario: Scenario, bar: Progress) -> Row:
    service = Service(scenario)
    task = Task(text="ask", plan=(Step(id=STEP, kind="ask_service", args={"url": service.url}),), plan_only=True)
    shown, ended = bar.add_task(str(scenario), total=scenario.tasks), list[tuple[float, bool, int]]()
    free = asyncio.Semaphore(TOGETHER)

    async def one(number: int) -> None:
        async with free:
            handle = await client.start_workflow(AgentWorkflow.run, task, id=f"ask-{number}", task_queue=QUEUE)
        try:
            is_completed = (await handle.result()).status is TaskStatus.COMPLETED
        except WorkflowFailureError:
            is_completed = False
        at = service.now
        ended.append((at, is_completed, (await handle.describe()).history_length))
        bar.advance(shown)

    server = await service.run()
    service.began = time.monotonic()
    running = [asyncio.create_task(one(number)) for number in range(scenario.tasks)]
    await asyncio.sleep(scenario.seconds)
    server = server or await service.run(is_first=False)
    await asyncio.gather(*running)
    if server is not None:
        server.close()
    return _row(service, ended)


def _row(service: Service, ended: Sequence[tuple[float, bool, int]]) -> Row:
    scenario = service.scenario
    done = sorted(at - scenario.seconds for at, is_completed, _ in ended if is_completed)
    needed = -(-scenario.tasks * 99 // 100)
    early = [call for call in service.calls if call.at < scenario.seconds]
    return Row(
        scenario=str(scenario),
        tasks=scenario.tasks,
        completed=len(done),
        calls_in_trouble=len(early),
        calls_when_known=sum(call.at > KNOWN_AFTER for call in early),
        calls_after=sum(not call.is_served for call in service.calls) - len(early),
        p99=done[needed - 1] if len(done) >= needed else None,
        last=done[-1] if len(done) == scenario.tasks else None,
        events=sum(events for *_, events in ended) / len(ended),
    )


if __name__ == "__main__":
    typer.run(main)
