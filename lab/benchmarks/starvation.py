"""`python -m benchmarks.starvation`: many quick tasks beside tools that take what a worker has."""

import asyncio
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle

from benchmarks import report
from benchmarks.processes import finish, our_server, replan_worker, worker
from benchmarks.report import Figure, Machine, Report, Verdict
from client.tasks import outcome_of
from client.workers import ask
from runtime.client import connect
from runtime.process import leave
from workflows.account.outcome import Outcome
from workflows.account.task import Task
from workflows.agent import AgentWorkflow
from workflows.inquiries import Inquiry, PlanInquiry, ToolsInquiry
from workflows.plans.proposal import Step

QUEUE = "starvation"
TASKS = 500
HELD = {"linger": (100, 20.0), "hang": (16, 60.0), "block": (1, 8.0)}
"""By kind, how many calls hold slots, threads and the event loop of the worker, and for how many seconds each."""
QUICK = Task(text="calculate 1+1")
PLAN, INSPECT = "a worker plans a task", "a worker answers an inquiry"
LIMIT = 2.0
"""Seconds within which the worker should plan a task, and answer an inquiry."""


class StarvationReport(Report):
    """What became of the quick tasks, and how long planning and inspection took meanwhile."""

    tasks: int
    completed: int
    seconds: float
    """From the start of the quick tasks until the last one ended."""
    answers: dict[str, dict[str, Figure | None]]
    """Seconds until an answer: before the quick tasks were started, and while they ran."""
    goals: tuple[Verdict, ...]

    def table(self) -> Table:
        """One row for each question to the worker."""
        table = Table("seconds until", "beside the calls alone", "while the tasks run")
        for title, figures in self.answers.items():
            table.add_row(title, *map(str, figures.values()))
        return table


def main(
    json: Annotated[Path | None, typer.Option(help="Write the figures to this file.")] = None,
    tasks: Annotated[int, typer.Option(min=1, help="How many quick tasks.")] = TASKS,
) -> None:
    """Give a worker quick tasks beside slow, hanging and blocking calls, and ask it questions meanwhile."""
    found = finish(run(tasks))
    done = f"{found.completed} of {found.tasks} tasks completed, in {found.seconds:.0f} s, on {found.machine}"
    report.show(found.table(), [done], found.goals)
    report.write(found, json)
    leave(0)


async def run(tasks: int) -> StarvationReport:
    """Measure with a server and a worker of their own."""
    with tempfile.TemporaryDirectory(prefix="replan-starvation-") as folder:
        place = Path(folder)
        async with our_server(place) as server:
            words = replan_worker(QUEUE, "--planner", "offline")
            async with worker(words, server.address, place / "state", place / "worker.log"):
                with Progress(console=Console(stderr=True)) as bar:
                    shown = bar.add_task("tasks", total=tasks)
                    client = await connect(address=server.address, plain=True)
                    return await measure(client, tasks, lambda: bar.update(shown, advance=1))


async def measure(client: Client, tasks: int, progress: Callable[[], None]) -> StarvationReport:
    """Let calls hold the worker, ask it questions, then give it the quick tasks and ask again."""
    for kind, (count, seconds) in HELD.items():
        await asyncio.gather(*(_hold(client, kind, seconds) for _ in range(count)))
    await asyncio.sleep(2)  # until all of them run
    alone = {PLAN: [await _plan(client)], INSPECT: [await _inspect(client)]}
    busy: dict[str, list[float]] = {PLAN: [], INSPECT: []}
    asking = asyncio.create_task(_ask_again_and_again(client, busy))
    began = time.monotonic()
    completed = sum(await asyncio.gather(*(_quick(client, progress) for _ in range(tasks))))
    seconds = time.monotonic() - began
    asking.cancel()
    answers = {title: {"alone": Figure.of(alone[title]), "busy": Figure.of(busy[title])} for title in (PLAN, INSPECT)}
    goals = [Verdict.of("tasks that did not complete", 0, tasks - completed)]
    goals += [Verdict.of(f"seconds until {title}", LIMIT, max(alone[title])) for title in (PLAN, INSPECT)]
    return StarvationReport(
        machine=Machine.this(),
        tasks=tasks,
        completed=completed,
        seconds=round(seconds, 1),
        answers=answers,
        goals=tuple(goals),
    )


async def _start(client: Client, task: Task) -> WorkflowHandle[AgentWorkflow, Outcome]:
    return await client.start_workflow(AgentWorkflow.run, task, id=f"starvation-{uuid.uuid4().hex}", task_queue=QUEUE)


async def _hold(client: Client, kind: str, seconds: float) -> None:
    await _start(client, Task(text=kind, plan=(Step(id=kind, kind=kind, args={"seconds": seconds}),)))


async def _quick(client: Client, progress: Callable[[], None]) -> bool:
    """Run a quick task; returns whether it completed. Says on stderr how one ended that did not."""
    handle = await _start(client, QUICK)
    try:
        await handle.result()
    except WorkflowFailureError as error:
        outcome = outcome_of(error.cause)
        Console(stderr=True).print(outcome.model_dump_json(indent=2) if outcome else error.cause, markup=False)
        return False
    progress()
    return True


async def _ask_again_and_again(client: Client, samples: dict[str, list[float]]) -> None:
    while True:
        samples[INSPECT].append(await _inspect(client))
        samples[PLAN].append(await _plan(client))


async def _plan(client: Client) -> float:
    return await _answer(client, PlanInquiry(task=QUICK))


async def _inspect(client: Client) -> float:
    return await _answer(client, ToolsInquiry())


async def _answer(client: Client, question: Inquiry[Any]) -> float:
    began = time.monotonic()
    await ask(client, QUEUE, question)
    return time.monotonic() - began


if __name__ == "__main__":
    typer.run(main)
