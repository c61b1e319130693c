"""Which task is meant: the newest start whatever runs or closed since, and ids by their beginning."""

import secrets
import uuid
from collections.abc import Sequence
from typing import Any

import pytest
from temporalio import workflow
from temporalio.client import Client, WorkflowExecution
from temporalio.common import WorkflowIDReusePolicy
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from client import tasks
from client.history.fetch import final_outcome
from client.problem import Problem
from client.start import build_task, start
from client.tasks import query_progress
from console.exits import OF_PROBLEM
from tests.console import server_lists
from workflows.account.task import Task, TaskStatus
from workflows.agent import AgentWorkflow


async def listed(client: Client, queue: str, limit: int, *, after: int) -> Sequence[WorkflowExecution]:
    """The newest tasks of a queue, once the server lists `after` runs, which takes it a moment."""
    query = f"{tasks.TASKS} AND TaskQueue = '{queue}'"
    await server_lists.listed(client, query, after)
    return await tasks.newest_tasks(client, query, limit)


@pytest.fixture
def queue() -> str:
    """A queue that only this test knows and nobody serves."""
    return f"queue-{secrets.token_hex(6)}"


async def begin(client: Client, queue: str, id: str, *, end: bool = True) -> None:
    """Start a task that no worker takes, and end it unless it is to run on."""
    reused: Any = {"task_queue": queue, "id_reuse_policy": WorkflowIDReusePolicy.ALLOW_DUPLICATE}
    handle = await client.start_workflow(AgentWorkflow.run, Task(text="waits"), id=id, **reused)
    if end:
        await handle.terminate()


async def test_the_newest_are_found_beyond_the_first_page(client: Client, queue: str) -> None:
    """A task that started last and closed first is at the end of the server's list, whatever its length.

    Not one that still runs, which a server lists before all that have closed.
    """
    ids = [f"{queue}-{number:02}" for number in range(60)]
    for id in ids:
        await begin(client, queue, id, end=False)
    for id in reversed(ids[1:]):
        await client.get_workflow_handle(id).terminate()
    found = await listed(client, queue, 3, after=len(ids))
    await client.get_workflow_handle(ids[0]).terminate()

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


async def test_what_names_no_task_is_a_sentence(client: Client) -> None:
    """Nothing that is typed becomes part of a query."""
    for id in ("no-such", "it's", "x' OR WorkflowId != '", "", "\\", "%", "a\nb"):
        with pytest.raises(Problem) as wrong:
            await tasks.find_task(client, id)

        assert (wrong.value.code, OF_PROBLEM[wrong.value.kind]) == ("unknown_id", 2), id


TASK = build_task(text="do it", limits={"tool_calls": 100, "replans": 0, "deadline": None})


async def test_a_terminated_task_is_told_by_the_server(client: Client) -> None:
    """Nobody wrote an outcome: its words come from the memo, its end from the server; before it had no progress."""
    handle = await start(client, TASK, id=None, queue="nobody", again=False)
    assert await query_progress(handle) is None, "a query that nobody answers is no error"
    await handle.terminate()
    outcome = await final_outcome(client, handle)

    assert (outcome.status, outcome.task) == (TaskStatus.FAILED, "do it")
    assert outcome.reason == "The task was closed from outside (TERMINATED)."


@workflow.defn(name="Foreign")
class Foreign:
    @workflow.run
    async def run(self) -> str:
        return "done"


async def test_a_workflow_of_somebody_else_is_no_task(client: Client) -> None:
    """An id may belong to anything in the namespace: that is said, with the command that shows it."""
    id = f"foreign-{uuid.uuid4().hex[:8]}"
    async with Worker(client, task_queue=id, workflows=[Foreign], workflow_runner=UnsandboxedWorkflowRunner()):
        await client.execute_workflow(Foreign.run, id=id, task_queue=id)

    with pytest.raises(Problem, match=rf"'{id}' is no task, but a workflow of the type 'Foreign': `temporal workflow"):
        await tasks.find_task(client, id)
