"""`prune`: only what tasks left that the server knows to be closed, or does not know; real, and on both databases."""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncEngine
from temporalio import activity
from temporalio.api.common.v1 import Memo, Payload
from temporalio.client import Client
from temporalio.converter import StorageDriverStoreContext, StorageDriverWorkflowInfo

from activities.inspection import MAX_TASKS, Host, Inspector
from activities.planning.planner import RecordedTurn
from activities.planning.transcript import TURNS, Transcript
from activities.storage.store import open_store, writing
from activities.storage.vault import PAYLOADS, Vault
from client.workers import INQUIRY_TAKEN_WITHIN
from console.commands.prune import prune
from console.options import Common
from runtime import serve
from runtime.client import namespace_id
from tests import malformed
from tests.console.server_lists import listed, other_namespace
from workflows.account.progress import Progress
from workflows.account.task import CONTINUES_MEMO, Task
from workflows.agent import AgentWorkflow
from workflows.ids import rollback_id
from workflows.inquiries import InquiryInput, InspectWorkflow, PlanInquiry, PrunedPayloads, PruneFindings
from workflows.planning.situation import Situation
from workflows.plans.catalogue import FORM
from workflows.plans.proposal import Answer, Proposed
from workflows.rollback import Undo, UndoWorkflow

NOBODY = "nobody-serves-this"
LONG_AGO = datetime.now(UTC) - timedelta(days=40)


@dataclass
class Place:
    """A worker that prunes, and the store that it does it in."""

    client: Client
    engine: AsyncEngine
    queue: str
    vault: Vault
    transcript: Transcript

    async def prune(self) -> None:
        assert await prune(self.client, Common(queue=self.queue, json=True), days=0) == 0

    async def converse(self, task: str) -> RecordedTurn:
        """Keep a turn of this task's conversation, whose first run is `first-run`, from long ago."""
        situation = Situation(turn=1, now=LONG_AGO, text="x")
        past = RecordedTurn("first-run", 0, 1, situation, Proposed(proposal=Answer(result="ok"), planner="x"))
        await self.transcript.write(past, before=0, workflow=task)
        async with writing(self.engine).begin() as tx:
            await tx.execute(update(TURNS).values(at=LONG_AGO))
        return past

    async def store(self, *tasks: str, at: datetime = LONG_AGO, vault: Vault | None = None) -> None:
        """Keep a payload of each of these tasks, by a clock that says `at`."""
        for task in tasks:
            target = StorageDriverWorkflowInfo(namespace="default", id=task)
            await (vault or self.vault).store(StorageDriverStoreContext(target=target), [Payload(data=b"large")])
        async with writing(self.engine).begin() as tx:
            await tx.execute(update(PAYLOADS).where(PAYLOADS.c.task.in_(tasks)).values(stored=at))

    async def tasks(self) -> set[str]:
        """The tasks whose payloads are there."""
        async with self.engine.begin() as tx:
            return set(await tx.scalars(select(PAYLOADS.c.task).where(PAYLOADS.c.data != b"")))


@pytest.fixture
async def place(client: Client, store_url: str) -> AsyncIterator[Place]:
    engine = await open_store(store_url)
    async with pruning(client, engine) as here:
        yield here
    await engine.dispose()


@asynccontextmanager
async def pruning(client: Client, engine: AsyncEngine) -> AsyncIterator[Place]:
    namespace, queue = await namespace_id(client), new("prunes")
    vault, transcript = Vault(engine, namespace), Transcript(engine, namespace)
    inspecting = Inspector({}, "offline", Host(engine, {}, {}, "1.2.3"), vault, [], transcript=transcript)
    given: Any = {"workflows": [InspectWorkflow], "activities": [inspecting.inspect], "interceptors": []}
    async with serve.build(client, queue, is_watched=True, **given):
        yield Place(client, engine, queue, vault, transcript)


def new(name: str) -> str:
    """An id that no other test has."""
    return f"{name}-{secrets.token_hex(6)}"


async def begun(client: Client, id: str, **more: Any) -> str:
    await client.start_workflow(AgentWorkflow.run, Task(text="x"), id=id, task_queue=NOBODY, **more)
    return id


async def closed(client: Client, id: str) -> str:
    await client.get_workflow_handle(await begun(client, id)).terminate()
    return id


async def test_what_an_open_or_young_task_stored_is_kept(place: Place) -> None:
    """An open one whatever its worker's clock said: by that clock it was stored before the task began. One that runs
    again under its id: the newest run counts, be it made by `reset`, by continuing as new or `--again`. A question: a
    draft of a plan may take a while. What was stored within the hour, whatever was asked for: clocks differ, and a task
    may be reset or undone just after its end. What a closed task stored while it is undone, and what the rollback
    itself stored; both go when that has ended."""
    client, open, question = place.client, new("open"), new("inspect")
    over, old, young, undone = [await closed(client, new(name)) for name in ("over", "old", "young", "undone")]
    again = await begun(client, await closed(client, new("again")))
    inquiry = InquiryInput(PlanInquiry(task=Task(text="x")))
    await client.start_workflow(InspectWorkflow.run, inquiry, id=question, task_queue=NOBODY)
    given = Undo(progress=Progress(task=Task(text="x"), task_id=undone, started_at=LONG_AGO, form=FORM))
    undoing = await client.start_workflow(UndoWorkflow.run, given, id=rollback_id(undone), task_queue=NOBODY)
    await place.store(open, over, again, question, undone, undoing.id)
    await place.store(young, at=datetime.now(UTC) - timedelta(minutes=58))
    await place.store(old, at=datetime.now(UTC) - timedelta(minutes=62))
    await begun(client, open)  # no list of the server's has the task yet
    await place.prune()
    kept = await place.tasks()
    await undoing.terminate()
    await place.prune()

    assert kept == {open, young, question, again, undone, undoing.id}
    assert await place.tasks() == {open, young, question, again}


async def test_what_a_task_of_another_namespace_stored_is_kept(place: Place) -> None:
    """Two namespaces on one store: only a worker of its own can tell whether it is open."""
    second = await other_namespace(place.client)
    theirs = await begun(second, new("theirs"))
    await place.store(theirs, vault=Vault(place.engine, await namespace_id(second)))
    await place.prune()
    async with pruning(second, place.engine) as there:
        await second.get_workflow_handle(theirs).terminate()
        kept = await place.tasks()
        await there.prune()

    assert (kept, await place.tasks()) == ({theirs}, set())


@pytest.mark.full
async def test_many_tasks_are_asked_about_page_by_page(place: Place) -> None:
    """More than one answer has; those that stay do not stand in the way of the others."""
    ids = sorted(new("many") for _ in range(MAX_TASKS + 20))
    open = [await begun(place.client, id) for id in ids[:5]]
    await place.store(*ids)
    await place.prune()

    assert await place.tasks() == set(open)


async def test_a_conversation_is_kept_that_an_open_task_will_carry_on(place: Place) -> None:
    """No worker has taken that one yet, so that it has no turn of its own; afterwards it goes. A memo that nobody can
    read stops no prune: another program's task may wait for ever on a queue without a worker."""
    past = await place.converse(await closed(place.client, new("over")))
    fields = {CONTINUES_MEMO: malformed.payload('"half'), "outcome": malformed.payload("{")}
    foreign = await malformed.start(place.client, "AgentWorkflow", [], "nobody", memo=Memo(fields=fields))
    open = await begun(place.client, new("carries-on"), memo={CONTINUES_MEMO: "first-run"})
    await listed(place.client, f"WorkflowId IN ('{foreign}', '{open}') AND ExecutionStatus = 'Running'", 2)
    await place.prune()
    kept = (await place.transcript.load("first-run")).newest()
    await place.client.get_workflow_handle(open).terminate()
    await listed(place.client, f"WorkflowId = '{open}' AND ExecutionStatus = 'Terminated'")
    await place.prune()
    await place.client.get_workflow_handle(foreign).terminate()

    assert (kept, (await place.transcript.load("first-run")).newest()) == ([past], [])


@activity.defn(name="inspect")
async def prune_slowly(inquiry: InquiryInput) -> PruneFindings:
    """Delete something, in longer than a console waits for a worker to take its question."""
    for _ in range(int(INQUIRY_TAKEN_WITHIN.total_seconds()) + 2):
        activity.heartbeat()
        await asyncio.sleep(1)
    return PruneFindings(planner="offline", pruned=PrunedPayloads(payloads=1, size=2))


@pytest.mark.full
async def test_a_worker_that_prunes_for_long_is_not_reported_as_none(
    client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    """It has taken the question, so the console waits for its answer."""
    queue = new("slow")
    worker = serve.build(client, queue, workflows=[InspectWorkflow], activities=[prune_slowly], interceptors=[])
    async with worker:
        code = await prune(client, Common(queue=queue, json=True), days=0)

    assert (code, json.loads(capsys.readouterr().out)["pruned"]) == (0, 1)
