"""A queue has one store: a worker with another one does not start, and takes the queue over when it is free."""

import asyncio
import json
import shutil
import signal
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from temporalio.client import Client

import worker
from activities.storage.store import open_store, peek, sqlite_url, store_id
from client.workers import is_served
from runtime.dev_server import DevServer, free_port
from runtime.queue_store import FIRST_LOOK, NamedStore, OtherStore, assigned, id_of, pollers, record, recorded
from tests.harness import outcome
from tests.processes import END_SECONDS, Processes, Running
from tests.workflows.history import until
from workflows.account.task import Task
from workflows.agent import AgentWorkflow

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


async def test_a_worker_with_another_store_does_not_start(places: tuple[Processes, Processes], queue: str) -> None:
    one, other = places
    with one.worker("--queue", queue):
        refused = await asyncio.to_thread(other.asked, "--queue", queue)
        ended = await asyncio.to_thread(one.starter, "--task", "calculate 1+1", "--queue", queue)
    theirs, mine = (str(place.folder / "state" / "store.db") for place in places)

    assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (2, "", 1)
    assert refused.stderr.startswith(f"The queue {queue} has the store {theirs} on ")
    assert f"(id {await id_in(one.folder)}), and this worker has {mine} on " in refused.stderr
    assert "another worker serves the queue with its store." in refused.stderr and "(--queue)" in refused.stderr
    assert not (other.folder / "state" / "store.db").exists() and ended.returncode == 0


async def test_workers_with_one_store_serve_one_queue(
    places: tuple[Processes, Processes], queue: str, client: Client
) -> None:
    """From two state folders, too; and the record stays until the last of them ends."""
    one, other = places
    store = sqlite_url(one.folder / "state")
    with one.worker("--queue", queue):
        with other.worker("--queue", queue, "--store", store):
            both = await recorded(client, queue)
        after_one = await recorded(client, queue)

    assert both is not None and both == after_one and both.store.id == await id_in(one.folder)


async def test_of_two_workers_that_start_together_each_may_have_made_the_store(
    places: tuple[Processes, Processes], queue: str, client: Client
) -> None:
    """The second one has looked before it was made, and reads the record when the first one serves."""
    one, other = places
    look = partial(peek, sqlite_url(one.folder / "state"), "default", queue, "0.2.0")
    before = await look()
    with one.worker("--queue", queue):
        found = await worker.replaceable(client, queue, before, look)
        with pytest.raises(OtherStore):  # a store that nobody has made is another one
            elsewhere = partial(peek, sqlite_url(other.folder / "state"), "default", queue, "0.2.0")
            await worker.replaceable(client, queue, before, elsewhere)

    assert (before.id, found) == (None, None)


async def test_a_queue_is_free_when_its_last_worker_has_ended(
    places: tuple[Processes, Processes], queue: str, client: Client
) -> None:
    one, other = places
    with one.worker("--queue", queue):
        pass
    between = await recorded(client, queue)
    with other.worker("--queue", queue):
        after = await recorded(client, queue)

    assert (between, after and after.store.id) == (None, await id_in(other.folder))


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
    one, other = places
    with one.worker("--queue", queue, "--desk"):
        id = await waiting(client, queue)
    refused = await asyncio.to_thread(other.asked, "--queue", queue)
    with one.worker("--queue", queue, "--desk"):
        await client.get_workflow_handle(id).cancel()
        await outcome(client.get_workflow_handle_for(AgentWorkflow.run, id))
    with other.worker("--queue", queue):
        pass

    assert refused.returncode == 2
    assert f"1 unfinished task began with the store of the queue ({id})." in refused.stderr


async def test_an_unfinished_task_names_its_store_where_no_worker_recorded_it(
    places: tuple[Processes, Processes], queue: str, client: Client
) -> None:
    """As for tasks of workers from before there was a record: the history says it."""
    one, other = places
    with one.worker("--queue", queue, "--desk"):
        id = await waiting(client, queue)
    await client.get_workflow_handle(id_of(queue)).terminate()
    refused = await asyncio.to_thread(other.asked, "--queue", queue)
    with one.worker("--queue", queue, "--desk"):
        await client.get_workflow_handle(id).cancel()
        await outcome(client.get_workflow_handle_for(AgentWorkflow.run, id))

    assert (refused.returncode, f"has the store {await id_in(one.folder)}," in refused.stderr) == (2, True)


@contextmanager
def stopped(worker: Running) -> Iterator[None]:
    worker.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        worker.send_signal(signal.SIGCONT)


@pytest.mark.full
async def test_a_frozen_worker_keeps_its_store(places: tuple[Processes, Processes], queue: str, client: Client) -> None:
    """It takes the question, and may wake up at any time."""
    one, other = places
    with one.worker("--queue", queue) as frozen:
        await until_it_polls(client, queue)
        with stopped(frozen):
            refused = await asyncio.to_thread(other.asked, "--queue", queue)

    assert (refused.returncode, "another worker serves the queue with its store" in refused.stderr) == (2, True)


@pytest.mark.full
async def test_a_worker_that_wakes_up_on_a_queue_that_was_taken_over_ends(
    places: tuple[Processes, Processes], queue: str, client: Client
) -> None:
    one, other = places
    with one.worker("--queue", queue) as frozen:
        await until_it_polls(client, queue)
        with stopped(frozen):
            while await is_served(client, queue):  # each question takes one of its polls
                pass
            with other.worker("--queue", queue):
                pass
            taken = NamedStore("another")
            await record(client, queue, taken, await recorded(client, queue))
        code = await asyncio.to_thread(frozen.wait, END_SECONDS)

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
    """As after a network that was cut for so long that another worker found nobody; it is not silent."""
    reasons = list[str]()
    async with assigned(client, queue, ONE, None, reasons.append):
        taken = await recorded(client, queue)
        await record(client, queue, OTHER, taken)
        async with asyncio.timeout(30):
            while not reasons:
                await asyncio.sleep(FIRST_LOOK / 10)
    left = await recorded(client, queue)

    assert reasons[0].startswith(f"The queue {queue} has the store {OTHER}, and this worker has {ONE}: ")
    assert left and left.store == OTHER, "a worker deletes no record of another store"


async def test_a_record_that_somebody_ended_is_written_again(client: Client, queue: str) -> None:
    async with assigned(client, queue, ONE, None, fail):
        await client.get_workflow_handle(id_of(queue)).terminate()
        async with asyncio.timeout(30):
            while (found := await recorded(client, queue)) is None:
                await asyncio.sleep(FIRST_LOOK / 10)

    assert found.store == ONE


async def test_a_copied_store_counts_as_the_same_one(places: tuple[Processes, Processes], queue: str) -> None:
    """A copy keeps its id, as a backup must; docs/operations.md says so."""
    one, other = places
    with one.worker("--queue", queue):
        pass
    shutil.copytree(one.folder / "state", other.folder / "state")
    with one.worker("--queue", queue), other.worker("--queue", queue):
        pass


def test_the_port_of_another_folders_server_is_refused(tmp_path: Path) -> None:
    port = str(free_port())
    one, other = (Processes("", tmp_path / name, {"XDG_CONFIG_HOME": str(tmp_path)}) for name in ("one", "other"))
    for place in (one, other):
        place.folder.mkdir()
    with one.worker("--dev", "--port", port):
        refused = other.asked("--dev", "--port", port)
        with one.worker("--dev", "--port", port):
            joined = json.loads((one.folder / "state" / "server.json").read_text())

    assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (6, "", 1)
    assert refused.stderr.startswith(f"The Temporal server at localhost:{port} is not that of the state folder ")
    assert f"set TEMPORAL_ADDRESS=localhost:{port} to use it." in refused.stderr
    assert joined["address"] == f"localhost:{port}"
