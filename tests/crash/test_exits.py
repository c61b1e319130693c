"""Tools that exit, or stop the event loop: each is one fault of one call, and the worker serves on."""

import asyncio
import os
import signal
import uuid
from pathlib import Path

import pytest
from temporalio.client import Client

from runtime.dev_server import DevServer
from tests.harness import outcome, step
from tests.processes import Processes
from workflows.account.outcome import Outcome
from workflows.account.task import Task, TaskStatus
from workflows.agent import AgentWorkflow

TOOLS = Path(__file__).with_name("exiting.py")
FAST_SECONDS = 30.0
"""How long a task may take; a lost worker is noticed later."""


class Place(Processes):
    """A queue of its own, with a file in which the tools note their calls."""

    def __init__(self, address: str, folder: Path, client: Client) -> None:
        super().__init__(address, folder)
        self.client = client
        self.queue = f"exiting-{uuid.uuid4().hex[:8]}"
        self.notes = folder / "notes"

    @property
    def options(self) -> tuple[str, ...]:
        """The options of a worker with these tools, which plans offline."""
        return ("--tools", str(TOOLS), "--queue", self.queue, "--planner", "offline", "--log", "json")

    async def call(self, kind: str, word: str) -> Outcome:
        """Run a task that calls a tool once."""
        task = Task(text="a task", plan=(step("a", kind, file=str(self.notes), word=word),), plan_only=True)
        id = f"exiting-{uuid.uuid4().hex[:12]}"
        handle = await self.client.start_workflow(AgentWorkflow.run, task, id=id, task_queue=self.queue)
        async with asyncio.timeout(FAST_SECONDS):
            return await outcome(handle)


@pytest.fixture
def place(client: Client, server: DevServer, tmp_path: Path) -> Place:
    """A place on the shared server."""
    return Place(server.address, tmp_path, client)


@pytest.mark.timeout(120)
async def test_a_tool_that_exits_is_one_fault_of_one_call(place: Place) -> None:
    """The call has an unknown effect, since it was made; the worker serves the next task, and ends at SIGTERM."""
    kinds = ("leave", "leave_thread", "interrupt", "stop_loop", "count")
    with place.worker(*place.options) as worker:
        faults = [(await place.call(kind, kind)).faults for kind in kinds]
        paid = await place.call("pay", "paid")
        worker.send_signal(signal.SIGTERM)
        code = await asyncio.to_thread(worker.wait, 20)

    met = {kind: [(fault.code, fault.applied) for fault in found] for kind, found in zip(kinds, faults, strict=True)}
    unknown = [("bug", "unknown")]
    assert met == {**dict.fromkeys(kinds, unknown), "count": [("unserialisable", "unknown")]}
    assert (paid.status, paid.faults, code) == (TaskStatus.COMPLETED, (), 0)
    assert place.notes.read_text().split() == [*kinds, "paid"]


@pytest.mark.full
@pytest.mark.timeout(120)
async def test_a_worker_whose_tools_have_no_event_loop_any_more_ends(place: Place) -> None:
    """It says why, and what to do, in one line; the exit code says that it failed."""
    with place.worker(*place.options) as worker:
        task = Task(text="a task", plan=(step("a", "break_loop", file=str(place.notes), word="a"),))
        await place.client.start_workflow(AgentWorkflow.run, task, id=uuid.uuid4().hex, task_queue=place.queue)
        said, _ = await asyncio.to_thread(worker.communicate, timeout=40)

    assert worker.returncode == 1, said
    [line] = [line for line in said.splitlines() if line.startswith("The event loop of the tools ended (")]
    assert line.endswith("The worker stopped: start it again (a supervisor does).")


@pytest.mark.full
@pytest.mark.timeout(60)
async def test_a_worker_stops_in_order_after_a_tool_that_exits(place: Place) -> None:
    """No signal handler and no exit code is left changed."""
    with place.worker(*place.options) as worker:
        await place.call("leave", "leave")
        os.kill(worker.pid, signal.SIGINT)
        code = await asyncio.to_thread(worker.wait, 20)

    assert code == 0
