"""The healthcheck of the worker's container."""

import asyncio
import sys
import uuid
from pathlib import Path

import pytest
from temporalio.client import Client

from runtime.dev_server import DevServer, free_port
from tests.harness import DONE, staged
from tests.processes import Processes


async def asked(address: str, folder: Path, queue: str) -> tuple[int, str]:
    """The exit code of the check in the environment of a worker of this queue, and what it wrote."""
    command = [sys.executable, "-m", "replan.healthy"]
    done = await asyncio.to_thread(Processes(address, folder, {"REPLAN_QUEUE": queue}).run, command)
    return done.returncode, done.stdout + done.stderr


async def test_a_worker_that_serves_is_healthy(client: Client, server: DevServer, tmp_path: Path) -> None:
    """The server has heard from it: exit code 0, not a word."""
    async with staged(client, tmp_path, [], [DONE]) as stage:
        await stage.run()
        done = await asked(server.address, tmp_path, stage.queue)

    assert done == (0, "")


async def test_a_queue_that_nobody_serves_is_not(server: DevServer, tmp_path: Path) -> None:
    """Exit code 1, and one line that says so."""
    code, said = await asked(server.address, tmp_path, f"nobody-{uuid.uuid4().hex[:8]}")

    assert (code, said.count("\n")) == (1, 1)
    assert said.startswith("The server has not heard from a worker on this host")


@pytest.mark.full
async def test_without_a_server_it_is_not(tmp_path: Path) -> None:
    """The same where no server answers."""
    code, said = await asked(f"localhost:{free_port()}", tmp_path, "replan")

    assert (code, said.partition(" at ")[0]) == (1, "No Temporal server answers")
