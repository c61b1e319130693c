"""Large payloads that a worker cannot fetch, on a real server: the task waits, and only what was pruned ends it."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from sqlalchemy.ext.asyncio import AsyncEngine
from temporalio import activity
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import Client
from temporalio.worker import Replayer

from activities.storage.store import open_store, sqlite_url
from activities.storage.vault import EndedTasks, Vault
from evals.fakes.postgresql import Cluster
from replan import Busy, Tool, Transaction, tool
from runtime import serve
from runtime.payloads import with_storage
from tests.harness import DONE, Proposals, Stage, outcome, plan, staged, step
from tests.workflows.history import Handle, events
from workflows.account.outcome import Outcome
from workflows.account.task import Task
from workflows.agent import AgentWorkflow
from workflows.calls.interceptor import CallInterceptor

AWAY = 5
"""Seconds."""
LATER = timedelta(days=1)


class Size(BaseModel):
    size: int


class Words(BaseModel):
    words: str


@tool.read
async def make(args: Size) -> Words:
    """Make a text."""
    return Words(words="x" * args.size)


@tool.read
async def measure(args: Words) -> Size:
    """Measure a text."""
    return Size(size=len(args.words))


@dataclass
class Gate:
    """Holds the task's second step until a worker may let it pass."""

    reached: asyncio.Event = field(default_factory=asyncio.Event)

    def tools(self, *, is_open: bool) -> Sequence[Tool[..., Any]]:
        """The tools of a worker that lets the task pass, or does not and gives it back when it stops."""

        @tool.read
        async def wait(args: Size) -> Size:
            """Wait at the gate."""
            self.reached.set()
            if not is_open:
                await activity.wait_for_worker_shutdown()
                raise Busy("The worker stops.")
            return args

        @tool.transactional
        async def note(args: Words, tx: Transaction) -> Size:
            """Note a text once, in the store."""
            return Size(size=len(args.words))

        return (make, measure, wait, note)


MAKE = step("make", "make", size=100_000)
WAIT = step("wait", "wait", "make", size=1)
LOOK = step("look", "measure", "wait", words={"$from": "make", "path": "words"})
PLAN: Proposals = [plan(MAKE, WAIT, LOOK), DONE]


@asynccontextmanager
async def working(
    client: Client, folder: Path, vault: Vault, gate: Gate, queue: str, *, is_open: bool, script: Proposals = PLAN
) -> AsyncIterator[Stage]:
    """A worker that keeps large payloads in `vault`; it has no task in memory when it starts."""
    folder.mkdir(exist_ok=True)
    async with staged(with_storage(client, [vault]), folder, gate.tools(is_open=is_open), script, queue=queue) as stage:
        yield stage


async def stopped_at_the_gate(client: Client, folder: Path, vault: Vault, gate: Gate, queue: str) -> Handle:
    """A task that has a large result and waits for another worker, which must fetch that."""
    async with working(client, folder, vault, gate, queue, is_open=False):
        handle = await started(client, Task(text="a task"), queue)
        await gate.reached.wait()
    return handle


async def started(client: Client, task: Task, queue: str) -> Handle:
    """A task whose workflow tasks are repeated after 4 s, and not after 10: a busy machine takes a second for one."""
    return await client.start_workflow(
        AgentWorkflow.run, task, id=queue, task_queue=queue, task_timeout=timedelta(seconds=4)
    )


async def replayed(handle: Handle, client: Client) -> Exception | None:
    """Why the history does not replay with what this client's payloads lie in."""
    replayer = Replayer(
        workflows=[AgentWorkflow],
        data_converter=client.data_converter,
        interceptors=[CallInterceptor()],
        workflow_runner=serve.sandbox(),
    )
    history = await client.get_workflow_handle(handle.id).fetch_history()
    return (await replayer.replay_workflow(history, raise_on_replay_failure=False)).replay_failure


async def failures(handle: Handle) -> list[str]:
    """What the workers said when they could not do a workflow task of it."""
    failed = [event.workflow_task_failed_event_attributes.failure for event in await events(handle)]
    return [one.message for one in failed if one.message]


async def failed(handle: Handle) -> str:
    """What a worker said that could not do a workflow task of it, as soon as one has; empty where it was closed."""
    async with asyncio.timeout(60):
        while not (said := await failures(handle)):
            if (await handle.describe()).close_time:
                return ""
            await asyncio.sleep(0.1)
    return said[0]


@pytest.fixture
async def engine(store_url: str) -> AsyncIterator[AsyncEngine]:
    """The store that has the payloads."""
    opened = await open_store(store_url)
    yield opened
    await opened.dispose()


@pytest.mark.full
async def test_a_worker_on_another_store_leaves_the_task_to_one_that_has_its_payloads(
    client: Client, tmp_path: Path, engine: AsyncEngine
) -> None:
    """It fails workflow tasks and says why; the task goes on where its payloads are, and replays there."""
    gate, queue, ours = Gate(), f"other-{tmp_path.name}", Vault(engine, "here")
    handle = await stopped_at_the_gate(client, tmp_path / "ours", ours, gate, queue)
    (tmp_path / "theirs").mkdir()
    theirs = await open_store(sqlite_url(tmp_path / "theirs"))
    async with working(client, tmp_path / "theirs", Vault(theirs, "here"), gate, queue, is_open=True):
        said = await failed(handle)
    async with working(client, tmp_path / "ours", ours, gate, queue, is_open=True):
        ended = await outcome(handle)
    why = str(await replayed(handle, with_storage(client, [Vault(theirs, "here")])))
    await theirs.dispose()

    assert "is not in this worker's store: start a worker on the store that has it." in said
    assert (ended.status, ended.steps[-1].result) == ("completed", {"size": 100_000})
    assert await replayed(handle, with_storage(client, [ours])) is None
    assert "is not in this worker's store" in why


async def test_a_task_whose_own_text_lies_in_another_store_is_not_ended(
    client: Client, tmp_path: Path, engine: AsyncEngine
) -> None:
    """A worker that cannot even read what was asked leaves it to one that can; the history replays there."""
    gate, queue, ours = Gate(), f"asked-{tmp_path.name}", Vault(engine, "here")
    (tmp_path / "theirs").mkdir()
    theirs = await open_store(sqlite_url(tmp_path / "theirs"))
    task = Task(text="x" * 4_000)
    started_there = await started(with_storage(client, [ours], 1024), task, queue)
    handle = client.get_workflow_handle_for(AgentWorkflow.run, started_there.id)
    async with working(client, tmp_path / "theirs", Vault(theirs, "here"), gate, queue, is_open=True):
        said = await failed(handle)
    async with working(client, tmp_path / "ours", ours, gate, queue, is_open=True):
        ended = await outcome(handle)
    await theirs.dispose()

    assert "is not in this worker's store" in said
    assert (ended.status, ended.steps[-1].result) == ("completed", {"size": 100_000})
    assert await replayed(handle, with_storage(client, [ours])) is None


async def test_a_task_waits_while_the_store_is_away(client: Client, tmp_path: Path) -> None:
    """Its file is gone for five seconds, in which a worker has to fetch what it stored."""
    gate, queue, file = Gate(), f"away-{tmp_path.name}", tmp_path / "store.db"
    engine = await open_store(sqlite_url(tmp_path))
    vault = Vault(engine, "here")
    handle = await stopped_at_the_gate(client, tmp_path / "tools", vault, gate, queue)
    file.rename(tmp_path / "away.db")
    async with working(client, tmp_path / "tools", vault, gate, queue, is_open=True):
        said = await failed(handle)
        await asyncio.sleep(AWAY)
        (tmp_path / "away.db").rename(file)
        ended = await outcome(handle)
    why = await replayed(handle, with_storage(client, [vault]))
    await engine.dispose()

    assert "locked or cannot be reached" in said
    assert (ended.status, ended.steps[-1].result, why) == ("completed", {"size": 100_000}, None)


@pytest.mark.full
async def test_a_task_waits_while_postgresql_is_stopped(client: Client, tmp_path: Path, postgresql: Cluster) -> None:
    """The same with a database server that is started again."""
    gate, queue = Gate(), f"stopped-{tmp_path.name}"
    engine = await open_store(postgresql.url(postgresql.create()))
    vault = Vault(engine, "here")
    handle = await stopped_at_the_gate(client, tmp_path / "tools", vault, gate, queue)
    await postgresql.stop()
    async with working(client, tmp_path / "tools", vault, gate, queue, is_open=True):
        try:
            said = await failed(handle)
            await asyncio.sleep(AWAY)
        finally:
            await postgresql.start()
        ended = await outcome(handle)
    why = await replayed(handle, with_storage(client, [vault]))
    await engine.dispose()

    assert "locked or cannot be reached" in said
    assert (ended.status, ended.steps[-1].result, why) == ("completed", {"size": 100_000}, None)


async def after_pruning(client: Client, tmp_path: Path, engine: AsyncEngine) -> tuple[Handle, Outcome]:
    """A task whose large result was deleted while it ran, and how it ended."""
    gate, queue, vault = Gate(), f"pruned-{tmp_path.name}", Vault(engine, "here")
    handle = await stopped_at_the_gate(client, tmp_path / "tools", vault, gate, queue)
    await vault.prune(EndedTasks(closed=[handle.id], gone=[]), datetime.now(UTC) + LATER, "me@host")
    async with working(client, tmp_path / "tools", vault, gate, queue, is_open=True):
        return handle, await outcome(handle)


async def test_a_task_that_needs_what_was_pruned_ends_with_a_sentence(
    client: Client, tmp_path: Path, engine: AsyncEngine
) -> None:
    """The step that needs it is not called; the rest stands in the outcome, and the history replays."""
    handle, ended = await after_pruning(client, tmp_path, engine)
    fault = ended.faults[-1]

    assert (ended.status, fault.step_id, fault.code) == ("escalated", "look", "needs_person")
    assert "of task '" + handle.id in fault.reason and "was deleted by `prune`" in fault.reason
    assert [one.status for one in ended.steps] == ["completed", "completed", "failed"]
    assert await replayed(handle, with_storage(client, [Vault(engine, "here")])) is None


@pytest.mark.full
async def test_a_task_that_was_reset_behind_a_prune_ends_with_a_sentence(
    client: Client, tmp_path: Path, engine: AsyncEngine
) -> None:
    """Where somebody resets by other means than `starter.py reset`, which refuses: no hanging, an outcome."""
    gate, queue, vault = Gate(), f"reset-{tmp_path.name}", Vault(engine, "here")
    async with working(client, tmp_path / "tools", vault, gate, queue, is_open=True) as stage:
        handle = await stage.start()
        await outcome(handle)
        await vault.prune(EndedTasks(closed=[handle.id], gone=[]), datetime.now(UTC) + LATER, "me@host")
        again = await reset(client, handle, "look")
        ended = await outcome(again)

    assert (ended.status, ended.faults[-1].step_id) == ("escalated", "look")
    assert await replayed(again, with_storage(client, [vault])) is None


async def test_an_effect_of_the_run_before_is_not_denied_behind_a_prune(
    client: Client, tmp_path: Path, engine: AsyncEngine
) -> None:
    """The arguments of the call are gone, so that nobody asked its ledger: whether it happened is looked up there."""
    gate, queue, vault = Gate(), f"noted-{tmp_path.name}", Vault(engine, "here")
    script: Proposals = [plan(MAKE, step("look", "note", words={"$from": "make", "path": "words"})), DONE]
    async with working(client, tmp_path / "tools", vault, gate, queue, is_open=True, script=script) as stage:
        handle = await stage.start()
        await outcome(handle)
        await vault.prune(EndedTasks(closed=[handle.id], gone=[]), datetime.now(UTC) + LATER, "me@host")
        again = await reset(client, handle, "look")
        ended = await outcome(again)
    step_of = ended.steps[-1]

    assert [(one.applied, one.reconciled) for one in ended.faults] == [("applied", "applied")]
    assert (ended.status, step_of.status, step_of.result) == ("completed", "completed", {"size": 100_000})
    assert await replayed(again, with_storage(client, [vault])) is None


async def reset(client: Client, handle: Handle, to: str) -> Handle:
    """The same task from before a step on, by the server's own means."""
    scheduled = [event.activity_task_scheduled_event_attributes for event in await events(handle)]
    request = ResetWorkflowExecutionRequest(
        namespace=client.namespace,
        workflow_execution=WorkflowExecution(workflow_id=handle.id),
        reason="a test",
        workflow_task_finish_event_id=next(
            one.workflow_task_completed_event_id for one in scheduled if one.activity_id == to
        ),
        request_id=f"reset-{handle.id}",
    )
    run = (await client.workflow_service.reset_workflow_execution(request)).run_id
    return client.get_workflow_handle_for(AgentWorkflow.run, handle.id, run_id=run)


async def test_what_a_closed_task_did_is_told_when_its_payloads_were_pruned(
    client: Client, tmp_path: Path, engine: AsyncEngine
) -> None:
    """The query replays the history, which `show` and `undo` ask for; a result that is gone is its sentence."""
    gate, queue, vault = Gate(), f"told-{tmp_path.name}", Vault(engine, "here")
    async with working(client, tmp_path / "tools", vault, gate, queue, is_open=True) as stage:
        handle = await stage.start()
        await outcome(handle)
    await vault.prune(EndedTasks(closed=[handle.id], gone=[]), datetime.now(UTC) + LATER, "me@host")
    async with working(client, tmp_path / "tools", vault, gate, queue, is_open=True):
        told = await handle.query(AgentWorkflow.progress)

    assert [one.status for one in told.records] == ["completed"] * 3
    assert "was deleted by `prune`" in str(told.records[0].result)
