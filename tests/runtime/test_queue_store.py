"""A worker looks before it serves: a queue has one store, and another version may not go on with its tasks."""

import asyncio
import json
import shutil
import signal
import uuid
from functools import partial
from pathlib import Path

import pytest
from temporalio.client import Client, WorkflowFailureError

import worker
from activities.storage.store import open_store, peek, sqlite_url, store_id
from client.workers import is_served
from runtime.dev_server import DevServer
from runtime.queue_store import FIRST_LOOK, NamedStore, OtherStore, assigned, id_of, pollers, record, recorded
from tests.changed_workflow import ChangedWorkflow
from tests.harness import DONE, outcome, plan, staged, step
from tests.processes import END_SECONDS, Processes
from tests.workflows.history import Handle, until
from tests.workflows.props import echo
from workflows.account.task import Task
from workflows.agent import REQUEST_MEMO, AgentWorkflow

ONE, OTHER = NamedStore("one", "/one/store.db on here"), NamedStore("other", "postgresql://other")


@pytest.fixture
def queue() -> str:
    return f"store-{uuid.uuid4().hex[:10]}"


@pytest.fixture
def places(server: DevServer, tmp_path: Path) -> tuple[Processes, Processes]:
    folders = tmp_path / "one", tmp_path / "other"
    for folder in folders:
        folder.mkdir()
    one, other = (Processes(server.address, folder) for folder in folders)
    return one, other


def fail(reason: str) -> None:
    raise AssertionError(reason)


async def waiting(client: Client, queue: str) -> str:
    step = {"id": "slot", "kind": "book_slot", "args": {"day": "2026-12-01", "at": "10:00", "name": "ann"}}
    task = Task.model_validate({"text": "book", "plan": [step], "approve": "effects", "on_escalation": "wait"})
    handle = await client.start_workflow(AgentWorkflow.run, task, id=f"{queue}-task", task_queue=queue)
    await until(handle, lambda now: bool(now.open_requests))
    return handle.id


async def id_in(folder: Path) -> str:
    engine = await open_store(sqlite_url(folder / "state"))
    found = await store_id(engine)
    await engine.dispose()
    return found


async def test_a_queue_has_the_store_of_its_workers_until_the_last_of_them_ends(
    places: tuple[Processes, Processes], queue: str, client: Client
) -> None:
    """A worker with another one does not start: both are named, and what to do; nothing is made.

    One with the same store serves, too, from another state folder; also one that had looked before the store was made,
    since two may start together. When the queue is free, a new store takes no more than to start a worker with it.
    """
    one, other = places
    looks = [partial(peek, sqlite_url(place.folder / "state"), "default", queue, "0.2.0") for place in places]
    before = await looks[0]()
    with one.worker("--queue", queue):
        pass
    between = await recorded(client, queue)
    with one.worker("--queue", queue):
        refused = await asyncio.to_thread(other.asked, "--queue", queue)
        is_made = (other.folder / "state" / "store.db").exists()
        ended = await asyncio.to_thread(one.starter, "--task", "calculate 1+1", "--queue", queue)
        found = await worker.replaceable(client, queue, before, looks[0])
        with pytest.raises(OtherStore):  # a store that nobody has made is another one
            await worker.replaceable(client, queue, before, looks[1])
        with other.worker("--queue", queue, "--store", sqlite_url(one.folder / "state")):
            both = await recorded(client, queue)
        after_one = await recorded(client, queue)
    with other.worker("--queue", queue):
        after = await recorded(client, queue)
    theirs, mine = (str(place.folder / "state" / "store.db") for place in places)
    first, second = await id_in(one.folder), await id_in(other.folder)

    assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (2, "", 1)
    assert refused.stderr.startswith(f"The queue {queue} has the store {theirs} on ")
    assert f"(id {first}), and this worker has {mine} on " in refused.stderr
    assert "another worker serves the queue with its store." in refused.stderr and "(--queue)" in refused.stderr
    assert (is_made, ended.returncode, before.id, found) == (False, 0, None, None)
    assert both is not None and both == after_one and both.store.id == first
    assert (between, after and after.store.id) == (None, second)


async def test_a_queue_whose_worker_was_killed_is_free_too(
    places: tuple[Processes, Processes], queue: str, client: Client
) -> None:
    """Nobody has said that the store is not used any more; the worker that starts asks, and gets no answer."""
    one, other = places
    with one.worker("--queue", queue) as killed:
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        with other.worker("--queue", queue):
            after = await recorded(client, queue)

    assert after and after.store.id == await id_in(other.folder)


async def test_an_unfinished_task_keeps_its_store(
    places: tuple[Processes, Processes], queue: str, client: Client
) -> None:
    """Its effects are in the ledger there; once it has ended, the queue is free.

    Where no worker recorded it, as those from before there was a record, the history says it.
    """
    one, other = places
    with one.worker("--queue", queue, "--desk"):
        id = await waiting(client, queue)
    refused = await asyncio.to_thread(other.asked, "--queue", queue)
    await client.get_workflow_handle(id_of(queue)).terminate()
    without_record = await asyncio.to_thread(other.asked, "--queue", queue)
    with one.worker("--queue", queue, "--desk"):
        await client.get_workflow_handle(id).cancel()
        await outcome(client.get_workflow_handle_for(AgentWorkflow.run, id))
    with other.worker("--queue", queue):
        pass

    assert (refused.returncode, without_record.returncode) == (2, 2)
    assert f"1 unfinished task began with the store of the queue ({id})." in refused.stderr
    assert f"has the store {await id_in(one.folder)}," in without_record.stderr


@pytest.mark.full
async def test_a_frozen_worker_keeps_its_store_until_the_server_gives_it_up(
    places: tuple[Processes, Processes], queue: str, client: Client
) -> None:
    """It takes the question, and may wake up at any time: on a queue that was taken over, it reads that and ends."""
    one, other = places
    with one.worker("--queue", queue) as frozen:
        await until_it_polls(client, queue)
        frozen.send_signal(signal.SIGSTOP)
        try:
            refused = await asyncio.to_thread(other.asked, "--queue", queue)
            while await is_served(client, queue):  # each question takes one of its polls
                pass
            with other.worker("--queue", queue):
                pass
            await record(client, queue, NamedStore("another"), await recorded(client, queue))
        finally:
            frozen.send_signal(signal.SIGCONT)
        code = await asyncio.to_thread(frozen.wait, END_SECONDS)

    assert (refused.returncode, "another worker serves the queue with its store" in refused.stderr) == (2, True)
    assert (code, "has the store another, and this worker has " in (one.folder / "worker.log").read_text()) == (1, True)


async def until_it_polls(client: Client, queue: str) -> None:
    """Wait until a worker serves a queue: it says `ready` a moment before."""
    while not await pollers(client, queue):  # pytest-timeout ends it
        await asyncio.sleep(0.05)


async def test_of_two_stores_at_the_same_moment_one_wins(client: Client, queue: str) -> None:
    async def start(store: NamedStore) -> str:
        try:
            async with assigned(client, queue, store, None, fail):
                await asyncio.sleep(1)
                return store.id
        except OtherStore as refused:
            return str(refused)

    for _ in range(5):
        ended = sorted(await asyncio.gather(start(ONE), start(OTHER)), key=len)

        assert ended[0] in ("one", "other") and ended[1].startswith(f"The queue {queue} has the store ")
        assert str(ONE) in ended[1] and str(OTHER) in ended[1]


async def test_of_two_stores_that_take_over_at_the_same_moment_one_wins(client: Client, queue: str) -> None:
    """Both have seen that nobody uses the store before."""
    await record(client, queue, NamedStore("before"))
    before = await recorded(client, queue)
    found = await asyncio.gather(*(record(client, queue, store, before) for store in (ONE, OTHER)))

    assert found[0] == found[1] and found[0] in (ONE, OTHER)


async def test_a_worker_ends_when_its_queue_gets_another_store(client: Client, queue: str) -> None:
    """As after a network that was cut for so long that another worker found nobody; it is not silent.

    A record that an operator has ended, who terminates all workflows, is written again.
    """
    reasons = list[str]()
    async with assigned(client, queue, ONE, None, reasons.append), asyncio.timeout(60):
        await client.get_workflow_handle(id_of(queue)).terminate()
        while (again := await recorded(client, queue)) is None:
            await asyncio.sleep(FIRST_LOOK / 10)
        await record(client, queue, OTHER, again)
        while not reasons:
            await asyncio.sleep(FIRST_LOOK / 10)
    left = await recorded(client, queue)

    assert again.store == ONE
    assert reasons[0].startswith(f"The queue {queue} has the store {OTHER}, and this worker has {ONE}: ")
    assert left and left.store == OTHER, "a worker deletes no record of another store"


async def test_a_copied_store_counts_as_the_same_one(places: tuple[Processes, Processes], queue: str) -> None:
    """A copy keeps its id, as a backup must; docs/operations.md says so."""
    one, other = places
    with one.worker("--queue", queue):
        pass
    shutil.copytree(one.folder / "state", other.folder / "state")
    with one.worker("--queue", queue), other.worker("--queue", queue):
        pass


async def until_it_asks(handle: Handle) -> None:
    """Wait until the memo of a task has its request."""
    while REQUEST_MEMO not in (await handle.describe()).raw_description.workflow_execution_info.memo.fields:
        await asyncio.sleep(0.1)


@pytest.fixture
def processes(server: DevServer, tmp_path: Path) -> Processes:
    return Processes(server.address, tmp_path / "new")


async def test_a_worker_refuses_tasks_that_another_version_began(
    client: Client, processes: Processes, tmp_path: Path
) -> None:
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
    waits = Task(text="a task", on_escalation="wait", approve="all")
    steps = plan(step("a", "echo", word="x"))
    async with staged(client, tmp_path / "old", [echo], [steps, DONE], workflow=ChangedWorkflow) as old:
        handle = await old.start(waits)
        await until_it_asks(handle)
        before = (await handle.fetch_history()).events[-1].event_id
        refused = await asyncio.to_thread(processes.asked, "--queue", old.queue)
        was_opened = (tmp_path / "new" / "state" / "store.db").exists()
        after = (await handle.fetch_history()).events[-1].event_id
        await handle.cancel()
        with pytest.raises(WorkflowFailureError):
            await handle.result()

    with processes.worker("--queue", old.queue):
        done = await asyncio.to_thread(processes.starter, "--task", "calculate 1+1", "--queue", old.queue, "--json")

    assert refused.returncode == 1
    assert "1 unfinished task of another version of Replan cannot go on with this one (0." in refused.stderr
    assert f": {handle.id}. Nothing was called" in refused.stderr
    assert before == after
    assert "Traceback" not in refused.stderr
    assert not was_opened, "the version before can still open its store"
    assert json.loads(done.stdout)["status"] == "completed"
