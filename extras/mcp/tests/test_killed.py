"""A worker that is killed beside servers: they end, whatever its tools have left behind."""

import asyncio
import os
import signal
from contextlib import suppress

import psutil
import pytest

from extras.mcp.tests.foreign import table, wait_until, written
from tests.crash.places import Place
from tests.harness import outcome, step

pytestmark = pytest.mark.timeout(120)


async def test_the_servers_of_a_killed_worker_end_although_its_forks_live(place: Place) -> None:
    """What a tool has forked has the worker's end of the pipe by which a server is told."""
    file = written(place.folder, table("ok"))
    with place.serving("--tools", str(file)) as worker:
        await outcome(await place.begin(step("a", "shop.look", text="a")))
        await place.call("fork_for_long", "a")
        fork = int(place.notes.read_text())
        servers = [each for each in psutil.Process(worker.pid).children(recursive=True) if each.pid != fork]
        worker.kill()
        await asyncio.to_thread(worker.wait, 20)
        ended = await asyncio.to_thread(wait_until, lambda: not any(each.is_running() for each in servers), 20)
        is_forked = psutil.pid_exists(fork)
        with suppress(ProcessLookupError):
            os.kill(fork, signal.SIGKILL)

    assert is_forked and ended and len(servers) >= 2, servers
