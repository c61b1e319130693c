"""Effects in an activity of somebody's Temporal worker: their identity comes from the workflow."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from temporalio import activity, workflow
from temporalio.client import Client, WorkflowFailureError
from temporalio.common import RetryPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from replan.effects import Effects

TIMES = RetryPolicy(initial_interval=timedelta(milliseconds=10), maximum_attempts=3)


@workflow.defn
class ShopWorkflow:
    """Calls the activities that it is told to call, one after another."""

    @workflow.run
    async def run(self, kinds: list[str]) -> list[int]:
        return [
            await workflow.execute_activity(
                kind, "ann", start_to_close_timeout=timedelta(seconds=20), retry_policy=TIMES, result_type=int
            )
            for kind in kinds
        ]


class Shop:
    """Activities whose effects are lines of a file."""

    def __init__(self, folder: Path) -> None:
        self.journal = folder / "journal"
        self.effects = Effects(str(folder / "agent.db"))
        self.pay = self.effects.unkeyed(name="pay")(self._pay)

    @property
    def payments(self) -> int:
        return len(self.journal.read_text(encoding="utf-8").splitlines()) if self.journal.exists() else 0

    def _pay(self, who: str) -> int:
        with self.journal.open("a", encoding="utf-8") as file:
            file.write(f"{who}\n")
        return self.payments

    @activity.defn
    async def pay_once(self, who: str) -> int:
        return await asyncio.to_thread(self.pay, who)

    @activity.defn
    async def pay_twice(self, who: str) -> int:
        await asyncio.gather(asyncio.to_thread(self.pay, who), asyncio.to_thread(self.pay, who))
        return self.payments

    @activity.defn
    async def pay_and_fail_first(self, who: str) -> int:
        number = await asyncio.to_thread(self.pay, who)
        if activity.info().attempt == 1:
            raise ApplicationError("the answer is lost")
        return number


@pytest.fixture
async def shop(client: Client, tmp_path: Path) -> AsyncIterator[tuple[Shop, Worker]]:
    """A worker with the activities."""
    made = Shop(tmp_path)
    worker = Worker(
        client,
        task_queue=f"shop-{uuid.uuid4()}",
        workflows=[ShopWorkflow],
        activities=[made.pay_once, made.pay_twice, made.pay_and_fail_first],
        workflow_runner=UnsandboxedWorkflowRunner(),
    )
    async with worker:
        yield made, worker
    made.effects.close()


async def run(client: Client, worker: Worker, id: str, *kinds: str) -> list[int]:
    """Run the workflow to its end."""
    return await client.execute_workflow(
        ShopWorkflow.run,
        list(kinds),
        id=id,
        task_queue=worker.task_queue,
        id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
    )


async def test_a_retry_of_an_activity_makes_no_second_effect(client: Client, shop: tuple[Shop, Worker]) -> None:
    """All attempts of an activity make the same call."""
    made, worker = shop

    assert await run(client, worker, f"w-{uuid.uuid4()}", "pay_and_fail_first") == [1]
    assert made.payments == 1


async def test_two_activities_of_a_workflow_make_two_effects(client: Client, shop: tuple[Shop, Worker]) -> None:
    """The workflow says that it means both, and an activity that calls twice says so, too."""
    _made, worker = shop

    assert await run(client, worker, f"w-{uuid.uuid4()}", "pay_once", "pay_once", "pay_twice") == [1, 2, 4]


async def test_an_equal_call_of_another_run_is_doubtful(client: Client, shop: tuple[Shop, Worker]) -> None:
    """A second start of the same workflow may be the first one once more, or another one."""
    made, worker = shop
    id = f"w-{uuid.uuid4()}"
    await run(client, worker, id, "pay_once")

    with pytest.raises(WorkflowFailureError) as failed:
        await run(client, worker, id, "pay_once")

    cause = failed.value.cause.__cause__
    assert isinstance(cause, ApplicationError) and cause.type == "DoubtfulCall"
    assert made.payments == 1
