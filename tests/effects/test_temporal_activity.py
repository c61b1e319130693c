"""Effects in an activity of somebody's Temporal worker: their identity comes from the workflow."""

import asyncio
import uuid
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
                kind, "ann", start_to_close_timeout=timedelta(seconds=60), retry_policy=TIMES, result_type=int
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


async def test_an_activity_makes_an_effect_once_whatever_its_attempt_and_each_activity_another(
    client: Client, tmp_path: Path
) -> None:
    """All attempts of an activity make the same call; two activities, or two calls of one, are meant. A second start of
    the same workflow may be the first one once more, or another one: that is doubtful.
    """
    shop, queue, id = Shop(tmp_path), f"shop-{uuid.uuid4()}", f"w-{uuid.uuid4()}"
    again = WorkflowIDReusePolicy.ALLOW_DUPLICATE

    async def run(*kinds: str) -> list[int]:
        return await client.execute_workflow(
            ShopWorkflow.run, list(kinds), id=id, task_queue=queue, id_reuse_policy=again
        )

    async with Worker(
        client,
        task_queue=queue,
        workflows=[ShopWorkflow],
        activities=[shop.pay_once, shop.pay_twice, shop.pay_and_fail_first],
        workflow_runner=UnsandboxedWorkflowRunner(),
    ):
        numbers = await run("pay_and_fail_first", "pay_once", "pay_twice")
        with pytest.raises(WorkflowFailureError) as failed:
            await run("pay_once")
    shop.effects.close()
    cause = failed.value.cause.__cause__

    assert numbers == [1, 2, 4] and shop.payments == 4
    assert isinstance(cause, ApplicationError) and cause.type == "DoubtfulCall"
