"""Services that are down under many tasks of two worker processes, and workers that die while they try one."""

import asyncio
import itertools
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from temporalio.client import Client

from activities.boundary.breakers.rows import BREAKERS_CACHED
from runtime.dev_server import DevServer
from tests.crash.test_crash import Workers, start
from tests.harness import DONE, outcome, plan, step
from workflows.account.outcome import Outcome
from workflows.account.task import TaskStatus
from workflows.faults.circuit_breaker import STANDARD_BREAKER

RECOVERY = STANDARD_BREAKER.recovery


@dataclass
class Seen:
    """A call that came in."""

    at: float
    worker: int
    """The id of the process that called."""
    answered: float = 0.0
    failed: bool = False


@dataclass
class Service:
    """A web server on loopback that answers with 503 while it is down, and counts."""

    url: str = ""
    is_down: bool = True
    hangs: bool = False
    calls: list[Seen] = field(default_factory=list)

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one call after a short time, so that others are under way meanwhile."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower().splitlines()
        worker = next(int(line.partition(":")[2]) for line in head if line.startswith("worker:"))
        call = Seen(asyncio.get_running_loop().time(), worker, failed=self.is_down)
        self.calls.append(call)
        await asyncio.sleep(0.1)
        while self.hangs and not reader.at_eof():
            await asyncio.sleep(0.05)
        call.answered = asyncio.get_running_loop().time()
        body = b'{"calls": 1}'
        status = b"503 Down" if call.failed else b"200 OK"
        writer.write(b"HTTP/1.1 %s\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%s" % (status, len(body), body))
        writer.close()

    async def has(self, count: int) -> None:
        """Wait until so many calls have come in."""
        while len(self.calls) < count:
            await asyncio.sleep(0.05)


@asynccontextmanager
async def serving() -> AsyncIterator[Service]:
    """A service that is down."""
    service = Service()
    server = await asyncio.start_server(service.talk, "127.0.0.1", 0, backlog=500)
    async with server:
        service.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        yield service


def on_service(server: DevServer, folder: Path, service: Service, store_url: str) -> Workers:
    """Workers whose tasks ask the service once."""
    workers = Workers(server.address, folder, [plan(step("ask", "ask_service", url=service.url)), DONE])
    workers.environment = {"REPLAN_STORE": store_url}
    return workers


async def run(client: Client, workers: Workers, service: Service, tasks: int, seconds: float) -> list[Outcome]:
    """How so many tasks ended, on two workers, with a service that is down so long."""
    with workers.one(), workers.one():
        started = await asyncio.gather(*(start(client, workers.queue) for _ in range(tasks)))
        await service.has(1)
        await asyncio.sleep(seconds)
        service.is_down = False
        return list(await asyncio.gather(*map(outcome, started)))


@pytest.mark.parametrize("store_url", ["sqlite", pytest.param("postgresql", marks=pytest.mark.full)], indirect=True)
@pytest.mark.parametrize(
    ("tasks", "seconds"),
    [(6, 2), pytest.param(50, 20, marks=(pytest.mark.full, pytest.mark.timeout(240)))],
    ids=["few tasks", "50 tasks"],
)
async def test_a_service_that_is_down_is_left_alone_until_it_is_back(
    client: Client, server: DevServer, tmp_path: Path, store_url: str, tasks: int, seconds: float
) -> None:
    """One call per recovery time, over both workers; then all tasks complete, and none used up its attempts."""
    async with serving() as service:
        ended = await run(client, on_service(server, tmp_path, service, store_url), service, tasks, seconds)

    failed = [call for call in service.calls if call.failed]
    opened = sorted(call.answered for call in failed)[2]  # three failures opened the breaker
    known = opened + 2 * BREAKERS_CACHED  # the second of cache, and as much for a call to come in
    later = sorted(call.at for call in failed if call.at > known)
    assert len(failed) <= 3 + tasks + seconds // RECOVERY
    assert [second - first for first, second in itertools.pairwise(later) if second - first < RECOVERY] == []
    assert {one.status for one in ended} == {TaskStatus.COMPLETED}
    assert max(one.steps[0].attempts for one in ended) <= 4
    assert {fault.decision for one in ended for fault in one.faults} <= {"retry", "wait"}


@pytest.mark.full
@pytest.mark.timeout(180)
async def test_a_worker_that_is_killed_during_its_trial_is_followed_by_another(
    client: Client, server: DevServer, tmp_path: Path, store_url: str
) -> None:
    """The lease of its trial expires; nobody else called before."""
    async with serving() as service:
        workers = on_service(server, tmp_path, service, store_url)
        with workers.one() as one, workers.one() as two:
            started = await asyncio.gather(*(start(client, workers.queue) for _ in range(6)))
            await service.has(3)
            await asyncio.sleep(RECOVERY / 2)
            before, service.is_down, service.hangs = len(service.calls), False, True
            await service.has(before + 1)
            trial = service.calls[before]
            await asyncio.sleep(RECOVERY)  # longer than a lease that is not renewed
            during = len(service.calls) - before
            os.kill(trial.worker, signal.SIGKILL)
            service.hangs = False
            ended = await asyncio.gather(*map(outcome, started))
            (one if one.pid == trial.worker else two).wait()

    assert during == 1
    assert service.calls[before + 1].worker != trial.worker
    assert {one.status for one in ended} == {TaskStatus.COMPLETED}
