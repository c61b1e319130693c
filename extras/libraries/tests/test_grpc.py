"""gRPC's errors on a real server: what becomes of a call whose answer its client refuses."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from temporalio.client import Client

from replan import Key, tool
from tests.harness import DONE, plan, staged, step
from workflows.account.task import TaskStatus
from workflows.faults.fault import Applied

grpc: Any = pytest.importorskip("grpc")  # it has no types


class Channel(BaseModel):
    """Which server a tool calls."""

    url: str


class Empty(BaseModel):
    """An order has no result."""


@tool.unkeyed
def order_report(args: Channel, key: Key) -> Empty:
    """Order a report, which is part of the answer."""
    with grpc.insecure_channel(args.url) as channel:
        channel.unary_unary("/reports/order")(b"")
    return Empty()


@pytest.mark.full
async def test_an_answer_that_is_too_large_leaves_the_outcome_unknown(client: Client, tmp_path: Path) -> None:
    """The service has done it: the call is never made again, and the reason names the limit to raise."""
    orders = list[bytes]()

    def answer(request: bytes, _context: Any) -> bytes:
        orders.append(request)
        return b"x" * 5_000_000

    server = grpc.server(ThreadPoolExecutor(1))
    handler = grpc.unary_unary_rpc_method_handler(answer)
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("reports", {"order": handler})])
    url = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        async with staged(
            client, tmp_path, [order_report], [plan(step("order", "order_report", url=url)), DONE]
        ) as stage:
            ended = await stage.run()
    finally:
        server.stop(None).wait()
    [fault] = ended.faults

    assert (ended.status, len(orders), fault.applied) == (TaskStatus.ESCALATED, 1, Applied.UNKNOWN)
    assert "grpc.max_receive_message_length" in fault.reason
