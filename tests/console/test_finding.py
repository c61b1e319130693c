"""Which task is meant: the newest start whatever runs or closed since, and ids by their beginning."""

import asyncio
import secrets
from collections.abc import Sequence

import pytest
from temporalio.client import Client, WorkflowExecution
from temporalio.common import WorkflowIDReusePolicy

from client import tasks
from client.problem import Problem
from console.exits import OF_PROBLEM
from workflows.account.task import Task
from workflows.agent import AgentWorkflow


async def begin(client: Client, queue: str, id: str, *, end: bool = True) -> None:
    """Start a task that no worker takes, and end it unless it is to run on."""
    again = WorkflowIDReusePolicy.ALLOW_DUPLICATE
    handle = await client.start_workflow(
        AgentWorkflow.run, Task(text="waits"), id=id, task_queue=queue, id_reuse_policy=again
    )
    if end:
        await handle.terminate()


async def listed(client: Client, queue: str, limit: int, *, after: int) -> Sequence[WorkflowExecution]:
    """The newest tasks of a queue, once the server lists `after` runs, which takes it a moment."""
    query = f"{tasks.TASKS} AND TaskQueue = '{queue}'"
    async with asyncio.timeout(20):
        while (await client.count_workflows(query)).count < after:
            await asyncio.sleep(0.05)
    return await tasks.newest_tasks(client, query, limit)


@pytest.fixture
def queue() -> str:
    """A queue that only this test knows and nobody serves."""
    return f"queue-{secrets.token_hex(6)}"


async def test_the_newest_is_the_one_that_started_last(client: Client, queue: str) -> None:
    """Not one that still runs, which a server lists before all that have closed."""
    await begin(client, queue, f"{queue}-old", end=False)
    await begin(client, queue, f"{queue}-new")
    found = await listed(client, queue, 1, after=2)

    assert [one.id for one in found] == [f"{queue}-new"]
    await client.get_workflow_handle(f"{queue}-old").terminate()


async def test_the_newest_are_found_beyond_the_first_page(client: Client, queue: str) -> None:
    """A task that started last and closed first is at the end of the server's list, whatever its length."""
    ids = [f"{queue}-{number:02}" for number in range(60)]
    for id in ids:
        await begin(client, queue, id, end=False)
    for id in reversed(ids):
        await client.get_workflow_handle(id).terminate()
    found = await listed(client, queue, 3, after=len(ids))

    assert [one.id for one in found] == list(reversed(ids))[:3]


async def test_a_task_that_was_run_again_is_one_task(client: Client, queue: str) -> None:
    """With its newest run."""
    for _ in range(30):
        await begin(client, queue, f"{queue}-same")
    newest = (await client.get_workflow_handle(f"{queue}-same").describe()).run_id
    found = await listed(client, queue, 1, after=30)

    assert [(one.id, one.run_id) for one in found] == [(f"{queue}-same", newest)]


async def test_a_beginning_is_enough_where_it_is_of_one_task(client: Client, queue: str) -> None:
    """Of several it is a sentence that names them."""
    for name in ("apple", "apricot"):
        await begin(client, queue, f"{queue}-{name}")
    await listed(client, queue, 2, after=2)

    assert (await tasks.find_task(client, f"{queue}-app")).id == f"{queue}-apple"
    with pytest.raises(Problem, match=f"The ids of 2 tasks begin with .*{queue}-ap.*apricot.*: write more of it"):
        await tasks.find_task(client, f"{queue}-ap")


@pytest.mark.parametrize("id", ["no-such", "it's", "x' OR WorkflowId != '", "", "\\", "%", "a\nb"], ids=repr)
async def test_what_names_no_task_is_a_sentence(client: Client, id: str) -> None:
    """Nothing that is typed becomes part of a query."""
    with pytest.raises(Problem) as wrong:
        await tasks.find_task(client, id)

    assert (wrong.value.code, OF_PROBLEM[wrong.value.kind]) == ("unknown_id", 2)
