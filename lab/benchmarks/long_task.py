"""The task of `benchmarks.growth`: many steps on a worker that may be killed, and what became of each step."""

import asyncio
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, TypeAdapter
from temporalio.client import Client, WorkflowHandle

from benchmarks.processes import Meter, Server, replan_worker, start_worker
from client.history.decoder import calls_in
from client.history.records import CallEnd
from runtime.child import end
from runtime.client import connect
from workflows.account.outcome import Outcome
from workflows.account.task import Task
from workflows.agent import AgentWorkflow
from workflows.limits.budget import Limits
from workflows.plans.proposal import MAX_STEPS, Answer, NewSteps, Proposal, Step

POLL_SECONDS = 0.05
HUNDRED = 100
QUEUE = "benchmark-growth"
CUT_SECONDS = 0.01
"""How long each step goes on after its line in the tally, if workers are killed: so that some kills cut a step off."""


@dataclass(frozen=True)
class Line:
    """One run of one step."""

    step: str
    attempt: int
    at: float
    """Seconds since 1970."""


class Tally:
    """The file to which each run of a step adds a line, read as it grows."""

    def __init__(self, file: Path) -> None:
        """Read `file`, which need not exist yet."""
        self._file = file
        self._read = 0
        self._seen: set[str] = set()
        self.lines: list[Line] = []
        self.first: list[float] = []
        """When each step ran first, in the order in which they did."""

    def update(self) -> int:
        """Read the new lines; the number of different steps so far."""
        if self._file.exists():
            with self._file.open("rb") as file:
                file.seek(self._read)
                added = file.read()
            self._read += len(added)
            for words in added.decode().splitlines():
                step, attempt, at = words.split()
                self.lines.append(Line(step, int(attempt), float(at)))
                if step not in self._seen:
                    self._seen.add(step)
                    self.first.append(float(at))
        return len(self.first)


class RunSize(BaseModel):
    """How large the history of one run became."""

    model_config = ConfigDict(frozen=True)

    events: int
    bytes: int


class Audit(BaseModel):
    """What became of the steps of a task, over all its runs."""

    model_config = ConfigDict(frozen=True)

    finished: int
    """Steps that finished exactly once."""
    finished_twice: int
    ran_again: int
    """Steps that ran in a later attempt, or were scheduled anew, after they had finished."""
    cut: int
    """Steps that a kill cut off, and that ran a second time before they finished."""
    runs: tuple[RunSize, ...]


@dataclass(frozen=True)
class Growth:
    """What a long task took."""

    seconds: float
    """From its start to its end."""
    marks: list[float]
    """When the first step and each hundred of steps were done, in seconds since 1970."""
    memory: list[float]
    """Megabytes of the worker at each of these moments."""
    audit: Audit


async def grow(server: Server, folder: Path, steps: int, kills: int, progress: Callable[[int], None]) -> Growth:
    """Run a task of so many steps to its end, killing its worker so often, evenly spread over the steps.

    Raises:
        NotConnected, WorkerUnavailable: server or worker are not there.
        WorkflowFailureError: the task did not complete.
    """
    tally, planner = Tally(folder / "tally"), _write_script(folder, steps, CUT_SECONDS if kills else 0.0)
    client = await connect(address=server.address, plain=True)
    async with _worker(Worker(server, folder, planner)) as worker:
        began = time.time()
        handle = await _start(client, steps)
        kill_at = [steps * number // (kills + 1) for number in range(1, kills + 1)]
        memory = await _follow(handle, tally, worker, kill_at, progress)
        seconds = time.time() - began
    marks = [tally.first[0], *tally.first[HUNDRED - 1 :: HUNDRED]]
    return Growth(seconds, marks, memory, await _audit(client, handle, tally.lines))


def _write_script(folder: Path, steps: int, seconds: float) -> Path:
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


class Worker:
    """One worker process at a time; a killed one is followed by the next."""

    def __init__(self, server: Server, folder: Path, planner: Path) -> None:
        """Serve `server`, with logs and state in `folder`; the script `planner` plans."""
        self._server, self._folder = server, folder
        self._words = replan_worker(QUEUE, "--planner", f"scripted:{planner}")
        self._started = 0

    async def start(self) -> None:
        """Start the next process. Raises WorkerUnavailable."""
        log = self._folder / f"worker-{self._started}.log"
        self._started += 1
        self._process = await start_worker(self._words, self._server.address, self._folder / "state", log)
        self.meter = Meter(self._process.pid)

    async def kill(self) -> None:
        """Send SIGKILL, and start the next process. Raises WorkerUnavailable."""
        self._process.kill()
        self._process.wait()
        await self.start()

    async def stop(self) -> None:
        """End the last process in order."""
        await end(self._process)


@asynccontextmanager
async def _worker(worker: Worker) -> AsyncIterator[Worker]:
    await worker.start()
    try:
        yield worker
    finally:
        await worker.stop()


Handle = WorkflowHandle[AgentWorkflow, Outcome]


async def _start(client: Client, steps: int) -> Handle:
    task = Task(text=f"{steps} steps", limits=Limits(tool_calls=2 * steps))
    id = f"growth-{uuid.uuid4().hex[:12]}"
    return await client.start_workflow(AgentWorkflow.run, task, id=id, task_queue=QUEUE)


async def _follow(
    handle: Handle, tally: Tally, worker: Worker, kill_at: list[int], progress: Callable[[int], None]
) -> list[float]:
    """Follow a task to its end; the worker's megabytes at its first step and at each hundred."""
    memory, result = list[float](), asyncio.create_task(handle.result())
    while not result.done():
        done = tally.update()
        progress(done)
        while done and len(memory) <= done // HUNDRED:
            memory.append(worker.meter.memory())
        if kill_at and done >= kill_at[0]:
            kill_at.pop(0)
            await worker.kill()
        await asyncio.wait([result], timeout=POLL_SECONDS)
    result.result()
    progress(tally.update())
    return memory


async def _audit(client: Client, task: Handle, lines: Sequence[Line]) -> Audit:
    """Compare the tally of a task with the histories of all its runs."""
    again, completed, runs, run = set[str](), dict[str, list[int]](), list[RunSize](), task.first_execution_run_id
    while run:
        handle = client.get_workflow_handle(task.id, run_id=run)
        events = (await handle.fetch_history()).events
        info = (await handle.describe()).raw_description.workflow_execution_info
        runs.append(RunSize(events=info.history_length, bytes=info.history_size_bytes))
        for call in (call for call, *_ in calls_in(events) if call.kind == "tally"):
            if call.closed is CallEnd.COMPLETED:
                completed.setdefault(call.id, []).append(call.attempt)
            elif not call.started and call.id in completed:  # it was scheduled after it had finished
                again.add(call.id)
        run = events[-1].workflow_execution_continued_as_new_event_attributes.new_execution_run_id
    latest = {step: max(attempts) for step, attempts in completed.items()}
    again |= {line.step for line in lines if line.attempt > latest.get(line.step, line.attempt)}
    return Audit(
        finished=sum(len(attempts) == 1 for attempts in completed.values()),
        finished_twice=sum(len(attempts) > 1 for attempts in completed.values()),
        ran_again=len(again),
        cut=sum(times > 1 for times in Counter(line.step for line in lines).values()),
        runs=tuple(runs),
    )
