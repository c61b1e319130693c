"""`examples/approvals.py`: a service of somebody else that speaks only HTTP with Replan."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

from extras.web.tests.serving import PATIENCE, TOKEN, serving, told
from runtime.dev_server import DevServer, free_port
from tests.processes import ROOT, Processes

QUEUE = ("--queue", "approvals")


@pytest.mark.timeout(180)
async def test_an_order_is_followed_and_approved_over_http(server: DevServer, tmp_path: Path) -> None:
    processes = Processes(server.address, tmp_path)
    port = free_port()
    with processes.worker("--dev", *QUEUE):
        async with serving(server.address, tmp_path, *QUEUE, token=TOKEN) as replan:
            given = {**os.environ, "REPLAN_API": replan.url, "REPLAN_TOKEN": TOKEN}
            command = [sys.executable, "-m", "uvicorn", "examples.approvals:app", "--port", str(port)]
            service = subprocess.Popen(command, env=given, cwd=ROOT, stdout=subprocess.DEVNULL)
            try:
                async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE) as shop:
                    ids, names = await ordered(shop)
            finally:
                service.terminate()
                service.wait()

    assert len(set(ids)) == 1
    assert names[0] == "task" and names[-1] == "end" and {"request", "answer"} <= {*names}


async def ordered(shop: httpx2.AsyncClient) -> tuple[list[str], list[str]]:
    """The task of an order that is sent twice, and what the service tells of it until its end."""
    text = b"book a slot for the team at 14:30"
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                replies = [await shop.post("/orders/7", content=text) for _ in range(2)]
                break
            except httpx2.ConnectError:  # it starts
                await asyncio.sleep(0.1)
    ids = [reply.json()["task_id"] for reply in replies]
    names = list[str]()
    async with asyncio.timeout(PATIENCE):
        async for event in told(shop, ids[0]):
            names.append(event.name)
            if event.name == "request":
                assert (await shop.post(f"/tasks/{ids[0]}/approve")).status_code == 204
    return ids, names
