"""A long task: proposals of sequential steps that a script makes, on a worker that may be killed on the way."""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter
from temporalio.client import Client, WorkflowHandle

from benchmarks import workers
from benchmarks.meter import Meter, metered
from benchmarks.servers import Server
from benchmarks.tally import Audit, Tally, audited
from runtime.child import end
from runtime.client import connect
from workflows.agent import AgentWorkflow
from workflows.budget import Limits
from workflows.outcome import Outcome
from workflows.plan import MAX_STEPS, Answer, NewSteps, Proposal, Step
from workflows.task import Task

POLL_SECONDS = 0.05
HUNDRED = 100
QUEUE = "benchmark-growth"
CUT_SECONDS = 0.01
"""How long each step goes on after its line, where workers are killed: so that some kills cut a step off."""


@dataclass(frozen=True)
class Growth:
    """What a long task took."""

    seconds: float
    """From its start to its end."""
    marks: list[float]
    """When each hundred of steps was done, in seconds since 1970, the very first step before them."""
    memory: list[float]
    """Megabytes of the worker at each of these moments."""
    audit: Audit


def _written(folder: Path, steps: int, seconds: float) -> Path:
    folder.mkdir()
    file = folder / "script.json"
    file.write_bytes(TypeAdapter(Sequence[Proposal]).dump_json(script(steps, folder / "tally", seconds)))
    return file


def script(steps: int, tally: Path, seconds: float) -> list[NewSteps | Answer]:
    """Proposals of at most 50 steps of so many seconds, each after the one before, and an answer."""
    firsts = range(1, steps + 1, MAX_STEPS)
    ends = [min(first + MAX_STEPS, steps + 1) for first in firsts]
    plans = [_plan(range(first, end), tally, seconds) for first, end in zip(firsts, ends, strict=True)]
    return [*plans, Answer(result=f"{steps} steps")]


def _plan(numbers: range, tally: Path, seconds: float) -> NewSteps:
    steps = tuple(
        Step(
            id=f"s{number}",
            kind="tally",
            args={"file": str(tally), "step": f"s{number}", "seconds": seconds},
            needs=(f"s{number - 1}",) if number > numbers.start else (),
        )
        for number in numbers
    )
    return NewSteps(steps=steps, because="there is more to do")


class Workers:
    """One worker process at a time; a killed one is followed by the next."""

    def __init__(self, server: Server, folder: Path, planner: Path) -> None:
        """Work for `server`, with logs and state in `folder` and the script `planner`."""
        self._server, self._folder = server, folder
        self._words = workers.replan(QUEUE, "--planner", f"scripted:{planner}")
        self._started = 0

    async def start(self) -> None:
        """Start the next one. Raises WorkerUnavailable."""
        log = self._folder / f"worker-{self._started}.log"
        self._started += 1
        self._process = await workers.start(self._words, self._server.address, self._folder / "state", log)
        self.meter: Meter = metered(self._process)

    async def kill(self) -> None:
        """Kill the one that runs, as `kill -9` does, and start the next. Raises WorkerUnavailable."""
        self._process.kill()
        self._process.wait()
        await self.start()

    async def stop(self) -> None:
        """End the last one in order."""
        await end(self._process)


async def grown(server: Server, folder: Path, steps: int, kills: int, progress: Callable[[int], None]) -> Growth:
    """Run a task of so many steps to its end, killing its worker so often, evenly spread over the steps.

    Raises:
        NotConnected, WorkerUnavailable: server or worker are not there.
        WorkflowFailureError: the task did not complete.
    """
    tally, planner = Tally(folder / "tally"), _written(folder, steps, CUT_SECONDS if kills else 0.0)
    client = await connect(address=server.address, plain=True)
    async with _working(Workers(server, folder, planner)) as processes:
        began = time.time()
        handle = await _started(client, steps)
        memory = await _followed(
            handle, tally, processes, [steps * n // (kills + 1) for n in range(1, kills + 1)], progress
        )
        seconds = time.time() - began
    marks = [tally.first[0], *tally.first[HUNDRED - 1 :: HUNDRED]]
    audit = await audited(client, handle.id, handle.first_execution_run_id, tally.lines)
    return Growth(seconds, marks, memory, audit)


@asynccontextmanager
async def _working(processes: Workers) -> AsyncIterator[Workers]:
    await processes.start()
    try:
        yield processes
    finally:
        await processes.stop()


async def _started(client: Client, steps: int) -> WorkflowHandle[AgentWorkflow, Outcome]:
    task = Task(text=f"{steps} steps", limits=Limits(tool_calls=2 * steps))
    id = f"growth-{uuid.uuid4().hex[:12]}"
    return await client.start_workflow(AgentWorkflow.run, task, id=id, task_queue=QUEUE)


async def _followed(
    handle: WorkflowHandle[AgentWorkflow, Outcome],
    tally: Tally,
    processes: Workers,
    kill_at: list[int],
    progress: Callable[[int], None],
) -> list[float]:
    """Follow a task to its end; the worker's megabytes at its first step and at each hundred."""
    memory, result = list[float](), asyncio.create_task(handle.result())
    while not result.done():
        done = tally.update()
        progress(done)
        while done and len(memory) <= done // HUNDRED:
            memory.append(processes.meter.look())
        if kill_at and done >= kill_at[0]:
            kill_at.pop(0)
            await processes.kill()
        await asyncio.wait([result], timeout=POLL_SECONDS)
    result.result()
    progress(tally.update())
    return memory
