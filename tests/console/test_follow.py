"""Following: what a follower learns, and that it goes on when worker and server go and come back."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from temporalio.client import Client

from activities.toolbox.declare.tool import Tool
from client.follow import Follower, Silent, TaskState, View, fetch_state
from client.problem import Problem
from client.snapshot import Snapshot
from client.tasks import Handle
from replan import Unreachable, tool
from runtime.client import connect
from runtime.dev_server import DevServer, ServerSpec, find_cli, free_port
from tests.harness import DONE, Proposals, plan, staged, step
from workflows.account import search_attributes
from workflows.account.outcome import Outcome
from workflows.account.records import StepStatus
from workflows.account.task import TaskStatus
from workflows.agent import AgentWorkflow

PATIENCE = 40.0


class Nothing(BaseModel):
    """No argument, no result."""


class Gate:
    """A tool that returns when the test lets it, after as many failures as the test wants."""

    def __init__(self, failures: int = 0) -> None:
        self.open = asyncio.Event()
        self.failures = failures

    def tool(self) -> Tool[..., Any]:
        """The tool `wait`."""

        @tool.read(timeout=100)
        async def wait(args: Nothing) -> Nothing:
            """Wait for the test."""
            if self.failures > 0:
                self.failures -= 1
                raise Unreachable("Nobody is there.")
            await self.open.wait()
            return args

        return wait


class Heard(View):
    def __init__(self) -> None:
        self.snapshots = list[Snapshot]()
        self.said = list[tuple[str, Silent]]()
        self.outcome: Outcome | None = None

    def see(self, snapshot: Snapshot) -> None:
        self.snapshots.append(snapshot)

    def silence(self, who: Silent) -> None:
        self.said.append(("silent", who))

    def answers(self, who: Silent) -> None:
        self.said.append(("answers", who))

    def end(self, outcome: Outcome) -> None:
        self.outcome = outcome


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not holds():
            await asyncio.sleep(0.02)


PROPOSALS: Proposals = [plan(step("a", "wait")), DONE]


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def gate() -> Gate:
    return Gate()


async def test_following_adds_nothing_to_the_history(client: Client, tmp_path: Path, heard: Heard, gate: Gate) -> None:
    """Looks are queries and descriptions: ten of them, and the history is as long as before."""
    async with staged(client, tmp_path, [gate.tool()], PROPOSALS) as stage:
        handle = await stage.start()
        following = asyncio.create_task(Follower(client, handle, heard).to_the_end())
        await until(lambda: heard.snapshots and heard.snapshots[-1].attempts)
        before = (await handle.describe()).history_length
        looks = len(heard.snapshots)
        await until(lambda: len(heard.snapshots) >= looks + 10)
        after = (await handle.describe()).history_length
        gate.open.set()
        await following

    assert after == before


async def test_a_follower_sees_attempts_while_they_run(client: Client, tmp_path: Path) -> None:
    """Which of how many, and what the one before met; the server knows before the worker's query does."""
    gate = Gate(failures=1)
    async with staged(client, tmp_path, [gate.tool()], PROPOSALS) as stage:
        handle = await stage.start()
        found: TaskState | None = None
        async with asyncio.timeout(PATIENCE):
            while not (found and found.snapshot and (one := found.snapshot.attempts.get("a")) and one.number == 2):
                found = await fetch_state(client, handle)
        gate.open.set()
        await handle.result()

    assert (one.label, one.code) == ("attempt 2 of 4", "unreachable")
    assert found.snapshot.outcome.steps[0].status is StepStatus.RUNNING


@pytest.fixture
async def own_server(tmp_path: Path) -> AsyncIterator[DevServer]:
    """A server that the test may kill."""
    spec = ServerSpec(tmp_path / "server", port=free_port(), ui_port=free_port(), attributes=search_attributes.TYPES)
    async with DevServer(spec, await find_cli(lambda _: None)) as running:
        yield running


@pytest.mark.full
async def test_a_server_may_be_killed_and_come_back(
    own_server: DevServer, tmp_path: Path, heard: Heard, gate: Gate
) -> None:
    """Its silence and its return are told once each, and the task is followed to its end."""
    client = await connect(address=own_server.address, plain=True)
    async with staged(client, tmp_path, [gate.tool()], PROPOSALS) as stage:
        following = asyncio.create_task(Follower(client, await stage.start(), heard).to_the_end())
        await until(lambda: heard.snapshots and heard.snapshots[-1].attempts)
        assert own_server.pid is not None
        os.kill(own_server.pid, signal.SIGKILL)
        await until(lambda: heard.said)
        await own_server.start()
        await until(lambda: len(heard.said) >= 2)
        gate.open.set()
        async with asyncio.timeout(PATIENCE):
            outcome = await following

    assert heard.said[:2] == [("silent", Silent.SERVER), ("answers", Silent.SERVER)]
    assert outcome.status is TaskStatus.COMPLETED


async def test_a_task_that_the_server_forgot_is_a_sentence(client: Client, heard: Heard) -> None:
    """Deleted, or the server began anew: there is nothing left to wait for."""
    handle: Handle = client.get_workflow_handle_for(AgentWorkflow.run, "no-such-task")

    with pytest.raises(Problem, match="does not know task 'no-such-task' any more"):
        await Follower(client, handle, heard).to_the_end()
