"""`python -m benchmarks.incident`: many tasks wait because of one cause, and one answer resumes them all."""

import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from pydantic import BaseModel
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from temporalio.client import Client

from benchmarks import processes, report
from benchmarks.processes import replan_worker
from benchmarks.report import Machine, Report, Verdict
from client.incidents import find_incidents, follow_resolution, resolve
from client.tasks import Handle
from runtime.client import connect
from runtime.process import leave
from workflows.account.task import Task, TaskStatus
from workflows.agent import AgentWorkflow
from workflows.people.incidents import Resolved
from workflows.plans.proposal import Step

T = TypeVar("T")

TASKS, TOGETHER = 1000, 50
QUEUE, CAUSE, STEP = "incident", "unlock/unauthorized", "door"


class Size(BaseModel, frozen=True):
    """The histories of the tasks, each."""

    events: float
    bytes: float


class IncidentReport(Report):
    """How long it takes until all tasks wait, until all were told, and until all are completed."""

    load_before: float
    load_after: float
    tasks: int
    workers: int
    seconds_to_wait: float
    seconds_to_be_listed: float
    """From then on, until the server lists all of them as one incident."""
    seconds_to_tell: float
    """From the start of the resolution until it has ended."""
    seconds_to_complete: float
    """From the start of the resolution until the last task is completed."""
    waiting: Size
    ended: Size
    resolution: Size
    """The history of the workflow that resolves the incident, as a whole."""
    goals: tuple[Verdict, ...]

    def table(self) -> Table:
        """What the tasks took."""
        table = Table("", "seconds", "events a task", "bytes a task")
        table.add_row("until all wait", f"{self.seconds_to_wait:.1f}", *_shown(self.waiting))
        table.add_row("until all are listed as one incident", f"{self.seconds_to_be_listed:.1f}")
        table.add_row("from the answer until all were told", f"{self.seconds_to_tell:.1f}", *_shown(self.resolution))
        table.add_row("from the answer until all are completed", f"{self.seconds_to_complete:.1f}", *_shown(self.ended))
        return table


def _shown(size: Size) -> tuple[str, str]:
    return f"{size.events:.1f}", f"{size.bytes:.0f}"


def main(
    json: Annotated[Path | None, typer.Option(help="Write the figures to this file.")] = None,
    tasks: Annotated[int, typer.Option(min=2, help="How many tasks wait.")] = TASKS,
    workers: Annotated[int, typer.Option(min=1, help="Worker processes.")] = 2,
    address: Annotated[str | None, typer.Option(help="A server to use in place of one with our settings.")] = None,
) -> None:
    """Let many tasks wait for one key, bring it, and answer all of them at once."""
    found = processes.finish(run(tasks, workers, address))
    where = f"{found.tasks} tasks, {found.workers} workers, on {found.machine}"
    below = "the events and bytes of the third row are those of the one workflow that tells all tasks"
    report.show(found.table(), [f"{where}; load {found.load_before:g} -> {found.load_after:g}", below], found.goals)
    report.write(found, json)
    leave(0)


async def run(tasks: int, workers: int, address: str | None) -> IncidentReport:
    """Start a server and workers, measure, end them. Raises NotConnected, ServerUnavailable, WorkerUnavailable."""
    before = report.load()
    with tempfile.TemporaryDirectory(prefix="replan-incident-") as name, Progress(console=Console(stderr=True)) as bar:
        folder = Path(name)
        async with processes.our_server(folder / "server", address) as server:
            starting = [
                processes.start_worker(replan_worker(QUEUE), server.address, folder / "state", folder / f"{number}.log")
                for number in range(workers)
            ]
            running = [await one for one in starting]
            try:
                client = await connect(address=server.address, plain=True)
                return await _measure(client, folder / "key", tasks, workers, before, bar)
            finally:
                for process in running:
                    process.terminate()
                    await asyncio.to_thread(process.wait)


async def _measure(client: Client, key: Path, tasks: int, workers: int, load: float, bar: Progress) -> IncidentReport:
    task = Task(
        text="open the door",
        plan=(Step(id=STEP, kind="unlock", args={"key": str(key)}),),
        plan_only=True,
        on_escalation="wait",
    )

    async def begin(number: int) -> Handle:
        return await client.start_workflow(AgentWorkflow.run, task, id=f"door-{number}", task_queue=QUEUE)

    began = time.perf_counter()
    handles = await _each(begin, range(tasks))
    shown = bar.add_task("until all wait", total=tasks)
    while (waiting := await _count(client, "ReplanStatus = 'waiting'")) < tasks:
        bar.update(shown, completed=waiting)
        await asyncio.sleep(0.5)
    bar.update(shown, completed=tasks)
    all_wait = time.perf_counter()
    while (waiting := sum(one.waiting for one in await find_incidents(client))) < tasks:
        bar.update(shown, completed=waiting)
        await asyncio.sleep(0.5)
    listed, sizes = time.perf_counter(), await _sizes(client, handles)

    await asyncio.to_thread(key.touch)
    told, shown = time.perf_counter(), bar.add_task("until all are completed", total=tasks)
    resolving = asyncio.create_task(_resolved(client))
    while (done := await _count(client, "ExecutionStatus = 'Completed'")) < tasks:
        bar.update(shown, completed=done)
        await asyncio.sleep(0.5)
    bar.update(shown, completed=tasks)
    completed = time.perf_counter()
    resolved, ended, resolution = await resolving
    outcomes = await _each(lambda handle: handle.result(), handles)
    twice = [one for one in outcomes if one.status is TaskStatus.COMPLETED and one.steps[0].attempts == 2]
    return IncidentReport(
        machine=Machine.this(),
        load_before=load,
        load_after=report.load(),
        tasks=tasks,
        workers=workers,
        seconds_to_wait=all_wait - began,
        seconds_to_be_listed=listed - all_wait,
        seconds_to_tell=ended - told,
        seconds_to_complete=completed - told,
        waiting=sizes,
        ended=await _sizes(client, handles),
        resolution=await _sizes(client, [resolution]),
        goals=(
            Verdict.of("tasks that are not completed with two attempts of the step", 0, tasks - len(twice)),
            Verdict.of("tasks that the resolution does not count as resumed", 0, tasks - resolved.went_on),
        ),
    )


async def _resolved(client: Client) -> tuple[Resolved, float, Handle]:
    running = await resolve(client, CAUSE, QUEUE, by="a benchmark", note="the key is there")
    last = [now async for now in follow_resolution(client, running)][-1]
    return last, time.perf_counter(), client.get_workflow_handle_for(AgentWorkflow.run, running.id)


async def _count(client: Client, query: str) -> int:
    return (await client.count_workflows(f"WorkflowType = 'AgentWorkflow' AND {query}")).count


async def _sizes(client: Client, handles: Sequence[Handle]) -> Size:
    seen = await _each(lambda handle: handle.describe(), handles)
    infos = [one.raw_description.workflow_execution_info for one in seen]
    return Size(
        events=statistics.mean(one.history_length for one in infos),
        bytes=statistics.mean(one.history_size_bytes for one in infos),
    )


V = TypeVar("V")


async def _each(work: Callable[[V], Awaitable[T]], values: Sequence[V]) -> list[T]:
    """What `work` makes of each value, of TOGETHER at the same time."""
    free = asyncio.Semaphore(TOGETHER)

    async def one(value: V) -> T:
        async with free:
            return await work(value)

    return await asyncio.gather(*map(one, values))


if __name__ == "__main__":
    typer.run(main)
