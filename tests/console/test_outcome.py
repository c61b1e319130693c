"""How a task ended, wherever that is written, and what is said of a workflow that is none of ours."""

import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from temporalio import workflow
from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from client import tasks
from client.history.fetch import final_outcome
from client.problem import Problem
from client.start import build_task, start
from client.tasks import query_progress
from console.exits import exit_code
from replan import Refused, tool
from tests.harness import DONE, plan, staged, step
from workflows.account.task import TaskStatus
from workflows.plans.proposal import GiveUp

TASK = build_task(text="do it", limits={"tool_calls": 100, "replans": 0, "deadline": None})


class Word(BaseModel):
    """An argument and a result."""

    word: str = ""


@tool.read
async def refuse(args: Word) -> Word:
    """Refuse."""
    raise Refused("No.")


@pytest.mark.parametrize(
    ("proposals", "status", "exit"),
    [
        ([DONE], TaskStatus.COMPLETED, 0),
        ([GiveUp(reason="No way.")], TaskStatus.FAILED, 1),
        ([plan(step("a", "refuse"))], TaskStatus.OVER_BUDGET, 4),
    ],
    ids=["completed", "failed", "over budget"],
)
async def test_the_outcome_is_read_however_a_task_ended(
    client: Client, tmp_path: Path, proposals: list[Any], status: TaskStatus, exit: int
) -> None:
    """From the result, or from the details of the failure."""
    async with staged(client, tmp_path, [refuse], proposals) as stage:
        handle = await start(client, TASK, id=None, queue=stage.queue, again=False)
        outcome = await final_outcome(client, handle)

    assert (outcome.status, exit_code(outcome)) == (status, exit)


async def test_a_terminated_task_is_told_by_the_server(client: Client) -> None:
    """Nobody wrote an outcome: its words come from the memo, its end from the server."""
    handle = await start(client, TASK, id=None, queue="nobody", again=False)
    await handle.terminate()
    outcome = await final_outcome(client, handle)

    assert (outcome.status, outcome.task) == (TaskStatus.FAILED, "do it")
    assert outcome.reason == "The task was closed from outside (TERMINATED)."


async def test_a_task_without_a_worker_has_no_progress(client: Client) -> None:
    """A query that nobody answers is no error."""
    handle = await start(client, TASK, id=None, queue="nobody", again=False)

    assert await query_progress(handle) is None
    await handle.terminate()


@workflow.defn(name="Foreign")
class Foreign:
    """Somebody else's workflow in the same namespace."""

    @workflow.run
    async def run(self) -> str:
        """Return something else than an Outcome."""
        return "done"


@pytest.fixture
async def foreign(client: Client) -> AsyncIterator[str]:
    """The queue of somebody else's worker."""
    queue = f"foreign-{uuid.uuid4().hex[:8]}"
    async with Worker(client, task_queue=queue, workflows=[Foreign], workflow_runner=UnsandboxedWorkflowRunner()):
        yield queue


async def test_a_workflow_of_somebody_else_is_no_task(client: Client, foreign: str) -> None:
    """An id may belong to anything in the namespace: that is said, with the command that shows it."""
    id = f"foreign-{uuid.uuid4().hex[:8]}"
    await client.execute_workflow(Foreign.run, id=id, task_queue=foreign)

    with pytest.raises(Problem, match=rf"'{id}' is no task, but a workflow of the type 'Foreign': `temporal workflow"):
        await tasks.find_task(client, id)
