"""A follower misses nothing: not while it sleeps, not without a worker, not over a reset or a change of runs."""

import asyncio
import os
import signal
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from temporalio.client import Client

from client.client import TaskHandle
from client.events import Ended, Events, Gap, Restarted, Silence, StepChanged, TaskEvent
from client.follow import Follower, Silent, TaskState, fetch_state
from client.problem import Problem
from client.tasks import Handle
from replan import Tool, Unreachable, tool
from runtime.client import connect
from runtime.dev_server import DevServer, ServerSpec, find_cli, free_port
from tests.harness import DONE, Proposals, plan, staged, step
from workflows.account import search_attributes
from workflows.account.records import StepStatus
from workflows.agent import AgentWorkflow

PATIENCE = 100.0
ALL = ["pending", "running", "completed"]


class Place(BaseModel):
    """Where to look; else two looks would be the same call."""

    at: str


@tool.read
async def look(args: Place) -> Place:
    """Return at once."""
    return args


class Following:
    """A follower of a task, and what it was told."""

    def __init__(self, client: Client, handle: Handle, *, pause: float = 0.05, after: str = "") -> None:
        """Polls every `pause` seconds; `after` is the cursor of the last event that was told before."""
        self.pause, self.told = pause, list[tuple[str, TaskEvent]]()
        view = Events(lambda event, cursor: self.told.append((cursor, event)), after)
        self.looks = 0
        self.task = asyncio.create_task(Follower(client, handle, view, least_pause=self._next_pause).to_the_end())

    def _next_pause(self) -> float:
        self.looks += 1
        return self.pause

    @property
    def events(self) -> list[tuple[str, str, str]]:
        """What the journal told: the number of its entry, the name of the event and, of a step, how it stands."""
        return [(cursor.partition(":")[2], type(event).__name__, words(event)) for cursor, event in self.told if cursor]

    async def until(self, kind: type[TaskEvent], text: str = "") -> None:
        async with asyncio.timeout(PATIENCE):
            while not any(isinstance(event, kind) and text in words(event) for _, event in self.told):
                assert not self.task.done(), self.task
                await asyncio.sleep(0.02)

    async def to_the_end(self) -> list[tuple[str, str, str]]:
        async with asyncio.timeout(PATIENCE):
            await self.task
        return self.events


def words(event: TaskEvent) -> str:
    """Which step it is, and how it stands; empty for any other event."""
    return f"{event.step.id} {event.step.status}" if isinstance(event, StepChanged) else ""


def statuses(events: list[tuple[str, str, str]]) -> dict[str, list[str]]:
    """By the id of a step, how it was told, in order."""
    found = dict[str, list[str]]()
    for _, name, text in events:
        if name == "StepChanged":
            id, _, status = text.partition(" ")
            found.setdefault(id, []).append(status)
    return found


@pytest.mark.full
async def test_a_follower_that_sleeps_misses_nothing(client: Client, tmp_path: Path) -> None:
    """It does not poll while 200 steps are run, and is told each of their statuses, as one that polls all the time."""
    names = [f"s{number}" for number in range(200)]
    plans = [plan(*(step(name, "look", at=name) for name in names[first : first + 20])) for first in range(0, 200, 20)]
    async with staged(client, tmp_path, [look], [*plans, DONE]) as stage:
        handle = await stage.start(tool_calls=500)
        awake, asleep = Following(client, handle), Following(client, handle, pause=30)
        events, later = await awake.to_the_end(), await asleep.to_the_end()
        late = await Following(client, handle).to_the_end()

    assert statuses(events) == dict.fromkeys(names, ALL)
    assert events == later == late


@pytest.mark.full
async def test_a_follower_that_sleeps_for_long_is_told_what_it_missed(client: Client, tmp_path: Path) -> None:
    """Of 150 plans a task keeps 100: a gap names the run whose history has the others, and the rest is whole."""
    names, opened = [f"s{number}" for number in range(150)], asyncio.Event()
    plans: Proposals = [plan(step("w", "wait", at="w")), *(plan(step(name, "look", at=name)) for name in names), DONE]
    async with staged(client, tmp_path, [look, waiting(opened)], plans) as stage:
        handle = await stage.start(tool_calls=500)
        follower = Following(client, handle)
        await follower.until(StepChanged, "w running")
        follower.pause = 100
        await asyncio.sleep(0.3)
        opened.set()
        told = await follower.to_the_end()
    numbers = [int(number.partition(".")[0]) for number, *_ in told]
    gaps = [event for _, event in follower.told if isinstance(event, Gap)]

    assert gaps == [Gap(str(handle.first_execution_run_id))]
    assert numbers == sorted(numbers) and len(set(told)) == len(told)
    assert {name: statuses(told)[name] for name in names[-90:]} == dict.fromkeys(names[-90:], ALL)


async def test_a_follower_that_comes_back_is_told_the_rest(client: Client, tmp_path: Path) -> None:
    """After the cursor of any event; the worker is gone, and the history is replayed here."""
    both = plan(step("a", "look", at="a"), step("b", "look", "a", at="b"))
    async with staged(client, tmp_path, [look], [both, DONE]) as stage:
        handle = await stage.start()
        told = await Following(client, handle).to_the_end()
    run = (await handle.describe()).run_id
    for place, (cursor, *_) in enumerate(told[::3]):
        rest = await Following(client, handle, after=f"{run}:{cursor}").to_the_end()
        assert rest == told[3 * place + 1 :]

    assert statuses(told) == {"a": ALL, "b": ALL}


def waiting(opened: asyncio.Event, timeout: float = 100, failures: int = 0) -> Tool[..., Any]:
    """A tool that waits for the test, after so many failures."""
    left = [Unreachable("Nobody is there.")] * failures

    @tool.read(timeout=timeout)
    async def wait(args: Place) -> Place:
        """Wait for the test."""
        if left:
            raise left.pop()
        await opened.wait()
        return args

    return wait


TWO: Proposals = [plan(step("a", "look", at="a"), step("w", "wait", "a", at="w")), DONE]


async def test_without_a_worker_the_history_tells_what_happened(client: Client, tmp_path: Path) -> None:
    """A follower that comes when the worker is dead is told all, that no worker answers, and then the rest once."""
    opened, queue = asyncio.Event(), f"queue-{uuid.uuid4().hex[:12]}"
    tools = [look, waiting(opened, 5)]
    async with staged(client, tmp_path, tools, TWO, queue=queue) as stage:
        handle = await stage.start()
        await Following(client, handle).until(StepChanged, "w running")
    follower = Following(client, handle)
    await follower.until(Silence)
    before = follower.events
    opened.set()
    async with staged(client, tmp_path, tools, TWO, queue=queue):
        told = await follower.to_the_end()

    silent = silences(follower)
    assert silent[0] == Silence(Silent.WORKER, answers=False) and len(silent) <= 2
    assert statuses(before) == {"a": ALL, "w": ALL[:2]} and told[: len(before)] == before
    assert statuses(told)["a"] == ALL
    assert [status for status in statuses(told)["w"] if status != "waiting"][-1] == ALL[-1]
    assert told == await Following(client, handle).to_the_end()


async def test_a_reset_is_told_to_those_who_follow(client: Client, tmp_path: Path) -> None:
    """Then the task from its start: what the new run kept, and what it did again."""
    opened = asyncio.Event()
    async with staged(client, tmp_path, [look, waiting(opened)], TWO) as stage:
        handle = await stage.start()
        follower = Following(client, handle)
        await follower.until(StepChanged, "w running")
        await TaskHandle(client, handle.id).reset("w")
        opened.set()
        told = await follower.to_the_end()
        late = await Following(client, handle).to_the_end()
    [place] = [number for number, (_, event) in enumerate(follower.told) if isinstance(event, Restarted)]
    kept = sum(bool(cursor) for cursor, _ in follower.told[:place])
    resumed = [await Following(client, handle, after=follower.told[at][0]).to_the_end() for at in (0, place)]

    assert statuses(told[:kept]) == {"a": ALL, "w": ALL[:2]}
    assert told[kept + 1 :] == late and statuses(late) == {"a": ALL, "w": ALL}
    assert (resumed[0][1:], resumed[1]) == (late, late)


WAIT: Proposals = [plan(step("w", "wait", at="w")), DONE]


async def test_following_adds_nothing_to_the_history(client: Client, tmp_path: Path) -> None:
    """Looks are queries and descriptions: ten of them, and the history is as long as before. A task that the server
    forgot is a sentence: there is nothing left to wait for."""
    opened = asyncio.Event()
    async with staged(client, tmp_path, [waiting(opened)], WAIT) as stage:
        handle = await stage.start()
        follower = Following(client, handle)
        await follower.until(StepChanged, "w running")
        before, looks = (await handle.describe()).history_length, follower.looks
        async with asyncio.timeout(PATIENCE):
            while follower.looks < looks + 10:
                await asyncio.sleep(0.02)
        after = (await handle.describe()).history_length
        opened.set()
        await follower.to_the_end()
    unknown: Handle = client.get_workflow_handle_for(AgentWorkflow.run, "no-such-task")

    assert after == before
    with pytest.raises(Problem, match="does not know task 'no-such-task' any more"):
        await Following(client, unknown).to_the_end()


async def test_a_follower_sees_attempts_while_they_run(client: Client, tmp_path: Path) -> None:
    """Which of how many, and what the one before met; the server knows before the worker's query does."""
    opened = asyncio.Event()
    found: TaskState | None = None
    async with staged(client, tmp_path, [waiting(opened, failures=1)], WAIT) as stage:
        handle = await stage.start()
        async with asyncio.timeout(PATIENCE):
            while not (found and found.snapshot and (one := found.snapshot.attempts.get("w")) and one.number == 2):
                found = await fetch_state(client, handle)
        opened.set()
        await handle.result()

    assert (one.label, one.code) == ("attempt 2 of 4", "unreachable")
    assert found.snapshot.outcome.steps[0].status is StepStatus.RUNNING


@pytest.mark.full
async def test_a_server_may_be_killed_and_come_back(tmp_path: Path) -> None:
    """Its silence and its return are told once each, and the task is followed to its end."""
    opened, folder = asyncio.Event(), tmp_path / "server"
    spec = ServerSpec(folder, port=free_port(), ui_port=free_port(), attributes=search_attributes.TYPES)
    async with DevServer(spec, await find_cli(lambda _: None)) as server:
        client = await connect(address=server.address, plain=True)
        async with staged(client, tmp_path, [waiting(opened)], WAIT) as stage:
            follower = Following(client, await stage.start())
            await follower.until(StepChanged, "w running")
            assert server.pid is not None
            os.kill(server.pid, signal.SIGKILL)
            await follower.until(Silence)
            await server.start()
            async with asyncio.timeout(PATIENCE):
                while len(silences(follower)) < 2:
                    await asyncio.sleep(0.02)
            opened.set()
            await follower.to_the_end()

    assert silences(follower)[:2] == [Silence(Silent.SERVER, answers=False), Silence(Silent.SERVER, answers=True)]
    assert isinstance(follower.told[-1][1], Ended) and follower.told[-1][1].outcome.status == "completed"


def silences(follower: Following) -> list[TaskEvent]:
    """What the follower was told of who does not answer."""
    return [event for _, event in follower.told if isinstance(event, Silence)]


EARLY = {"limit.historyCount.suggestContinueAsNew": "20"}


@pytest.fixture(scope="module")
async def early(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Client]:
    """A client of a server that suggests a new run after 20 events, about two proposals."""
    folder = tmp_path_factory.mktemp("early")
    spec = ServerSpec(folder, port=free_port(), ui_port=free_port(), attributes=search_attributes.TYPES, dynamic=EARLY)
    async with DevServer(spec, await find_cli(lambda _: None)) as server:
        yield await connect(address=server.address, plain=True)


@pytest.mark.full
async def test_the_change_of_runs_of_a_long_task_is_not_noticed(early: Client, tmp_path: Path) -> None:
    """By one who polls, by one who sleeps, and by one who comes back with a cursor of the first run."""
    names = [f"s{number}" for number in range(9)]
    async with staged(early, tmp_path, [look], [*(plan(step(name, "look", at=name)) for name in names), DONE]) as stage:
        handle = await stage.start()
        awake, asleep = Following(early, handle), Following(early, handle, pause=30)
        told, later = await awake.to_the_end(), await asleep.to_the_end()
        runs = {cursor.partition(":")[0] for cursor, _ in awake.told if cursor}
        rest = await Following(early, handle, after=f"{handle.first_execution_run_id}:{told[4][0]}").to_the_end()

    assert len(runs) > 1 and statuses(told) == dict.fromkeys(names, ALL)
    assert told == later and rest == told[5:]
