"""A worker of a user with a workflow of its own, and Replan's plugin beside it: `python -m tests.own_worker`."""

import asyncio
import base64
import dataclasses
import os
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from pydantic import BaseModel
from temporalio import activity, workflow
from temporalio.api.common.v1 import Payload
from temporalio.client import Client
from temporalio.converter import DataConverter, PayloadCodec
from temporalio.worker import Worker

with workflow.unsafe.imports_passed_through():
    from replan import Key, tool
    from replan.plugin import Replan

QUEUE = "orders"


class Amount(BaseModel):
    """What is paid."""

    amount: int
    file: str


class Receipt(BaseModel):
    """That it was paid."""

    id: int


@tool.keyed(timeout=30)
async def charge(args: Amount, key: Key) -> Receipt:
    """Charge a card, slowly at first: the file has a line for each call."""
    with Path(args.file).open("a") as file:
        file.write(f"{key}\n")
    calls = len(Path(args.file).read_text().splitlines())
    await asyncio.sleep(20 if calls == 1 and args.amount > 100 else 0)
    return Receipt(id=args.amount)


@activity.defn
async def confirm(text: str) -> str:
    """An activity of the user's own."""
    return f"confirmed: {text}"


@workflow.defn
class OrderWorkflow:
    """A workflow of the user's own, which has Replan do a part of its work."""

    @workflow.run
    async def run(self, amount: int, file: str) -> str:
        plan = [{"id": "paid", "kind": "charge", "args": {"amount": amount, "file": file}}]
        task = {"text": "pay the order", "plan": plan, "plan_only": True}
        outcome = await workflow.execute_child_workflow(
            "AgentWorkflow", task, id=f"{workflow.info().workflow_id}-payment", task_queue="replan", result_type=dict
        )
        paid = f"{outcome['status']} {amount}"
        return await workflow.execute_activity(confirm, paid, start_to_close_timeout=timedelta(seconds=10))


class Reversing(PayloadCodec):
    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [
            Payload(metadata={"encoding": b"reversed"}, data=base64.b64encode(one.SerializeToString())[::-1])
            for one in payloads
        ]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [
            Payload.FromString(base64.b64decode(one.data[::-1])) if one.metadata["encoding"] == b"reversed" else one
            for one in payloads
        ]


CONVERTER = dataclasses.replace(DataConverter.default, payload_codec=Reversing())


def plugin(state: Path) -> Replan:
    return Replan([charge], planner="offline", state=state)


async def main(state: Path) -> None:
    """Serve both until SIGTERM."""
    client = await Client.connect(os.environ["TEMPORAL_ADDRESS"], data_converter=CONVERTER)
    worker = Worker(client, task_queue=QUEUE, workflows=[OrderWorkflow], activities=[confirm], plugins=[plugin(state)])
    async with worker:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
