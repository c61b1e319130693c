"""Temporal's own reset, on a real server: a task runs again from somewhere, and every effect stays single."""

import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx2
import pytest
from pydantic import BaseModel
from sqlalchemy import Column, Integer, String, Table, insert, select
from sqlalchemy.ext.asyncio import create_async_engine
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest

from client.history.decoder import calls_in
from replan import Key, Refused, Tool, Transaction, metadata, tool
from tests.activities.payments import Payments, payments
from tests.harness import DONE, Stage, outcome, plan, step
from tests.workflows.history import Handle, events
from tests.workflows.props import Stages
from workflows.account.outcome import Outcome
from workflows.account.task import Task, TaskStatus
from workflows.agent import AgentWorkflow

LINES = Table("reset_lines", metadata, Column("id", Integer, primary_key=True), Column("word", String(20)))


class Line(BaseModel):
    word: str


class Written(BaseModel):
    id: int


class Charge(BaseModel):
    url: str


class Sought(BaseModel):
    url: str
    reference: str


class Receipt(BaseModel):
    id: int


def tools(service: Payments) -> Sequence[Tool[..., Any]]:
    """An effect of each kind that has to stay single."""

    @tool.transactional
    async def write(args: Line, tx: Transaction) -> Written:
        """Write a line."""
        return Written(id=await tx.scalar(insert(LINES).values(word=args.word).returning(LINES.c.id)))

    @tool.read
    async def find(args: Sought) -> Receipt:
        """Find a charge."""
        found = [one for one in service.charges if one["key"] == args.reference]
        if not found:
            raise Refused("There is no such charge.", code="not_found")
        return Receipt.model_validate(found[0])

    @tool.keyed(reconcile=find.using(reference="key"), settle=0.1)
    async def charge(args: Charge, key: Key, http: httpx2.AsyncClient) -> Receipt:
        """Charge at a service that refuses a key that it has seen."""
        if any(one["key"] == key for one in service.charges):
            raise Refused("This key was used.", code="conflict")
        reply = await http.post(args.url, json={}, headers={"Idempotency-Key": key})
        return Receipt.model_validate(reply.raise_for_status().json())

    @tool.unkeyed
    async def pay(args: Charge, http: httpx2.AsyncClient) -> Receipt:
        """Charge without a key."""
        reply = await http.post(args.url, json={})
        return Receipt.model_validate(reply.raise_for_status().json())

    return [write, find, charge, pay]


@pytest.fixture
def service() -> Iterator[Payments]:
    """A payment service."""
    with payments() as running:
        yield running


async def lines(folder: Path) -> int:
    """How many lines there are."""
    engine = create_async_engine(f"sqlite+aiosqlite:///{folder / 'store.db'}")
    async with engine.connect() as connection:
        found = list(await connection.scalars(select(LINES.c.id)))
    await engine.dispose()
    return len(found)


async def again(stage: Stage, handle: Handle, before: str) -> Outcome:
    """Reset the task to the workflow task that scheduled an activity, so that it is scheduled anew."""
    to = [found.call.task for found in calls_in(await events(handle)) if found.call.id == before][-1]
    reset = await stage.client.workflow_service.reset_workflow_execution(
        ResetWorkflowExecutionRequest(
            namespace=stage.client.namespace,
            workflow_execution=WorkflowExecution(workflow_id=handle.id, run_id=(await handle.describe()).run_id),
            reason="a test",
            workflow_task_finish_event_id=to,
            request_id=uuid.uuid4().hex,
        )
    )
    return await outcome(stage.client.get_workflow_handle_for(AgentWorkflow.run, handle.id, run_id=reset.run_id))


@pytest.mark.parametrize(
    "before", ["a", "plan:1", *(pytest.param(one, marks=pytest.mark.full) for one in ("b", "c", "catalogue"))]
)
async def test_a_reset_does_nothing_twice(stages: Stages, service: Payments, before: str) -> None:
    """To before each effect, to after the proposal, and to before it: the task completes again with one of each."""
    url = service.url
    steps = plan(step("a", "write", word="x"), step("b", "charge", "a", url=url), step("c", "pay", "b", url=url))
    async with stages(tools(service), [steps, DONE]) as stage:
        handle = await stage.start()
        first = await outcome(handle)
        second = await again(stage, stages.client.get_workflow_handle_for(AgentWorkflow.run, handle.id), before)

    assert (first.status, second.status, second.replans) == (TaskStatus.COMPLETED, TaskStatus.COMPLETED, 0)
    assert [one.result for one in second.steps] == [one.result for one in first.steps]
    assert (await lines(stages.folder), len(service.charges)) == (1, 2)


async def test_a_new_task_that_takes_a_closed_id_has_effects_of_its_own(stages: Stages) -> None:
    """The key begins with the task's first run, and so is another one."""
    with payments() as service:
        steps = plan(step("a", "write", word="x"), step("c", "pay", "a", url=service.url))
        async with stages(tools(service), [steps, DONE]) as stage:
            handle = await stage.start()
            await outcome(handle)
            same = await stages.client.start_workflow(
                AgentWorkflow.run, Task(text="a task"), id=handle.id, task_queue=stage.queue
            )
            await outcome(same)

    assert (await lines(stages.folder), len(service.charges)) == (2, 2)
