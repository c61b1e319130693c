"""Killing things: real worker processes that get real signals, and a server that goes away. Nothing is done twice."""

import asyncio
import json
import os
import signal
import sqlite3
import time
import uuid
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowHandle

from runtime.client import connect
from runtime.dev_server import DevServer
from tests.harness import DONE, Proposals, outcome, plan, step
from tests.processes import Processes, Running
from workflows.account.outcome import Outcome
from workflows.account.task import Task, TaskStatus
from workflows.agent import AgentWorkflow
from workflows.plans.proposal import NewSteps

TOOLS = Path(__file__).with_name("tools.py")


class Workers(Processes):
    """Worker processes on one queue that play one script."""

    def __init__(self, address: str, folder: Path, proposals: Proposals) -> None:
        """Write the script down."""
        super().__init__(address, folder)
        self.queue = f"crash-{uuid.uuid4().hex[:8]}"
        self._script = folder / "script.json"
        self._script.write_text(json.dumps([one.model_dump(mode="json") for one in proposals]))

    def one(self, *more: str) -> AbstractContextManager[Running]:
        """Start a worker, with `more` options."""
        options = ["--tools", str(TOOLS), "--planner", f"scripted:{self._script}", "--queue", self.queue]
        return self.worker(*options, *more)


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """The file in which the tools note their calls."""
    return tmp_path / "notes"


def chain(notes: Path, *words: str, seconds: float = 0.4) -> NewSteps:
    """A plan of steps one after the other, each noting its word."""
    steps = []
    for index, word in enumerate(words):
        needs = words[index - 1 : index] if index else ()
        steps.append(step(word, "note", *needs, file=str(notes), word=word, seconds=seconds))
    return plan(*steps)


async def start(client: Client, queue: str) -> WorkflowHandle[AgentWorkflow, Outcome]:
    """Start a task on the workers of a queue."""
    id = f"crash-{uuid.uuid4().hex[:12]}"
    return await client.start_workflow(AgentWorkflow.run, Task(text="a task"), id=id, task_queue=queue)


async def completed(handle: WorkflowHandle[AgentWorkflow, Outcome], activity: str) -> None:
    """Wait until the server knows that an activity has completed."""
    while True:
        scheduled = dict[int, str]()
        for event in (await handle.fetch_history()).events:
            if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
                scheduled[event.event_id] = event.activity_task_scheduled_event_attributes.activity_id
            done = event.activity_task_completed_event_attributes.scheduled_event_id
            if scheduled.get(done) == activity:
                return
        await asyncio.sleep(0.05)


async def noted(notes: Path, word: str, times: int) -> None:
    """Wait until a call has begun that often."""
    while not notes.exists() or notes.read_text().split().count(word) < times:
        await asyncio.sleep(0.05)


async def ended_under(
    client: Client, workers: Workers, notes: Path, word: str, times: int, number: int = signal.SIGKILL
) -> WorkflowHandle[AgentWorkflow, Outcome]:
    """A task that has ended, after so many workers got a signal under its call."""
    handle = None
    for time_ in range(1, times + 1):
        with workers.one() as worker:
            handle = handle or await start(client, workers.queue)
            await noted(notes, word, time_)
            worker.send_signal(number)
            await asyncio.to_thread(worker.wait, 30)
    assert handle is not None
    with workers.one():
        await outcome(handle)
    return handle


@pytest.mark.parametrize("between", ["a", pytest.param("b", marks=pytest.mark.full)])
async def test_a_killed_worker_loses_nothing_between_steps(
    client: Client, server: DevServer, tmp_path: Path, notes: Path, between: str
) -> None:
    """kill -9 after a step: a new worker completes the task, no finished step runs again, within 30 s."""
    workers = Workers(server.address, tmp_path, [chain(notes, "a", "b", "c"), DONE])
    with workers.one() as first:
        handle = await start(client, workers.queue)
        await completed(handle, between)
        finished = notes.read_text().split()[: "abc".index(between) + 1]
        first.kill()
    killed = time.monotonic()
    with workers.one():
        ended = await outcome(handle)

    assert ended.status is TaskStatus.COMPLETED
    assert [notes.read_text().split().count(word) for word in finished] == [1] * len(finished)
    assert time.monotonic() - killed < 30  # the server gives the next step's call up after HEARTBEAT


@pytest.mark.parametrize("number", [pytest.param(signal.SIGKILL, marks=pytest.mark.full), signal.SIGTERM])
@pytest.mark.timeout(180)
async def test_a_call_survives_three_workers(
    client: Client, server: DevServer, tmp_path: Path, notes: Path, number: signal.Signals
) -> None:
    """Three workers end in the middle of one call: the fourth finishes it; none of them cost an attempt."""
    steps = plan(step("long", "note", file=str(notes), word="long", patience=3))
    workers = Workers(server.address, tmp_path, [steps, DONE])
    ended = await outcome(await ended_under(client, workers, notes, "long", 3, number))

    assert (ended.status, ended.steps[0].attempts) == (TaskStatus.COMPLETED, 1)
    assert notes.read_text().split().count("long") == 4


@pytest.mark.full
@pytest.mark.timeout(180)
async def test_a_worker_that_shuts_down_takes_its_threads_with_it_before_anybody_relies_on_that(
    client: Client, server: DevServer, tmp_path: Path, notes: Path
) -> None:
    """SIGTERM in the middle of a charge that blocks a thread, while another tool keeps the process alive: one charge.

    The thread would charge after 26 s; by then the process is gone, and only then another worker charges.
    """
    steps = plan(
        step("pay", "charge", file=str(notes), seconds=26), step("hold", "cling", file=str(notes), word="cling")
    )
    workers = Workers(server.address, tmp_path, [steps, DONE])
    with workers.one() as first:
        handle = await start(client, workers.queue)
        await noted(notes, "charging", 1)
        await noted(notes, "cling", 1)
        began = time.monotonic()
        first.send_signal(signal.SIGTERM)
        with workers.one():
            ended = await outcome(handle)
            await asyncio.to_thread(first.wait, 60)
            await asyncio.sleep(max(0.0, began + 28 - time.monotonic()))

    assert ended.status is TaskStatus.COMPLETED
    assert notes.read_text().split().count("charged") == 1


@pytest.mark.parametrize(
    ("dies", "replayed"), [("before the commit", False), ("after the commit", True)], ids=["before", "after"]
)
async def test_a_committed_effect_happens_once(
    client: Client, server: DevServer, tmp_path: Path, dies: str, replayed: bool
) -> None:
    """The worker is killed on either side of the commit: one row, and the next worker returns it as the result."""
    steps = plan(step("one", "write", file=str(tmp_path / "first"), word="x", dies=dies))
    workers = Workers(server.address, tmp_path, [steps, DONE])
    with workers.one() as worker:
        handle = await start(client, workers.queue)
        await asyncio.to_thread(worker.wait, 30)
    with workers.one():
        ended = await outcome(handle)
    with sqlite3.connect(tmp_path / "state" / "store.db") as store:
        rows = store.execute("SELECT id FROM crash_entries").fetchall()

    assert (ended.status, ended.steps[0].replayed, ended.steps[0].attempts) == (TaskStatus.COMPLETED, replayed, 1)
    assert rows == [(ended.steps[0].result["id"],)]  # type: ignore[index,call-overload]  # JSON of a model


@pytest.mark.full
async def test_sigterm_ends_a_worker_in_order(client: Client, server: DevServer, tmp_path: Path, notes: Path) -> None:
    """An idle worker exits with 0 within seconds, and says how many tasks go on later."""
    workers = Workers(server.address, tmp_path, [chain(notes, "a"), DONE])
    with workers.one() as worker:
        worker.send_signal(signal.SIGTERM)
        output, _ = await asyncio.to_thread(worker.communicate, timeout=30)

    assert worker.returncode == 0
    assert output.startswith("stopped")


async def test_a_killed_server_loses_nothing(own_server: DevServer, tmp_path: Path, notes: Path) -> None:
    """The server is killed and started again on its file: the task goes on, no finished step runs again."""
    workers = Workers(own_server.address, tmp_path, [chain(notes, "a", "b", "c"), DONE])
    with workers.one():
        client = await connect(address=own_server.address, plain=True)
        handle = await start(client, workers.queue)
        await completed(handle, "a")
        assert own_server.pid is not None
        os.kill(own_server.pid, signal.SIGKILL)
        await own_server.start()
        again = (await connect(address=own_server.address, plain=True)).get_workflow_handle_for(
            AgentWorkflow.run, handle.id
        )
        ended = await outcome(again)

    assert ended.status is TaskStatus.COMPLETED
    assert notes.read_text().split().count("a") == 1
