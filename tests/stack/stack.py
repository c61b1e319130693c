"""The services of docker-compose.yml as processes on loopback: the same files, commands, settings and packages."""

import asyncio
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from evals.fakes import postgresql
from runtime.child import POLL_SECONDS, end, last_line, spawn
from runtime.client import answers
from tests.stack import image
from tests.stack.places import SERVER, Places
from tests.whole.deploy.composition import Service, services

START_SECONDS = 120


class StackFailed(RuntimeError):
    """A service did not do what it should; the message names its log."""


class Process:
    """One service that lasts: started, killed, and started again."""

    def __init__(
        self, places: Places, service: Service, name: str, ready: Callable[["Process"], Awaitable[bool]]
    ) -> None:
        self._places = places
        self._service = service
        self._ready = ready
        self._process: subprocess.Popen[bytes] | None = None
        self._log = places.logs / f"{name}.log"

    @property
    def pid(self) -> int | None:
        """Its process, None before `start` and after `stop`."""
        return self._process.pid if self._process else None

    @property
    def address(self) -> str:
        return self._places.address

    @property
    def log(self) -> str:
        """What it wrote since it was started last."""
        return self._log.read_text(errors="replace")

    async def start(self) -> None:
        """Start it, after its end if it still runs. Raises StackFailed."""
        await self.stop()
        self._keep()
        command = self._places.command(self._service)
        self._process = spawn(command, self._log, environment=self._places.environment(self._service))
        deadline = time.monotonic() + START_SECONDS
        while not await self._ready(self):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise StackFailed(f"{self._log.stem} did not start ({last_line(self._log)}): look into {self._log}.")
            await asyncio.sleep(POLL_SECONDS)

    async def stop(self) -> None:
        if self._process:
            await end(self._process)
            self._process = None

    def _keep(self) -> None:
        """The log of an earlier start stays, under another name."""
        if self._log.exists():
            self._log.rename(self._log.with_suffix(f".{time.time():.0f}.log"))


class Stack:
    def __init__(self, places: Places) -> None:
        self.places = places
        worker = services()["worker"]
        self.server = Process(places, services()[SERVER], SERVER, _serves)
        self.workers = [
            Process(places, worker, f"worker-{number + 1}", _said_ready)
            for number in range(worker.said["deploy"]["replicas"])
        ]

    async def once(self, name: str) -> None:
        """Run a service that ends, to its end. Raises StackFailed."""
        done = await self.inside(services()[name])
        if done.returncode != 0:
            raise StackFailed(f"{name} failed: {done.stdout}{done.stderr}")

    async def inside(self, service: Service, *words: str) -> subprocess.CompletedProcess[str]:
        """The service's command, or as `docker compose exec` another one inside it, to its end."""
        command, environment = self.places.command(service, list(words)), self.places.environment(service)
        return await asyncio.to_thread(
            subprocess.run, command, env=environment, capture_output=True, text=True, check=False, timeout=300
        )


async def _serves(server: Process) -> bool:
    return await answers(server.address)


async def _said_ready(worker: Process) -> bool:
    return any(line.startswith("ready") for line in worker.log.splitlines())


@asynccontextmanager
async def running(places: Places) -> AsyncIterator[Stack]:
    """Everything up, in the order of the file; all of it is stopped at the end. Raises StackFailed, BuildFailed."""
    places.prepare()
    await image.build(places.root)
    stack = Stack(places)
    async with AsyncExitStack() as opened:
        await opened.enter_async_context(_database(places))
        await stack.once("schema")
        opened.push_async_callback(stack.server.stop)
        await stack.server.start()
        await stack.once("namespace")
        for worker in stack.workers:
            opened.push_async_callback(worker.stop)
        await asyncio.gather(*(worker.start() for worker in stack.workers))  # at once, as replicas are
        yield stack


@asynccontextmanager
async def _database(places: Places) -> AsyncIterator[None]:
    service = services()["postgresql"]
    given = service.environment
    async with postgresql.running(
        places.programs.postgresql,
        places.database,
        user=given["POSTGRES_USER"],
        password=given["POSTGRES_PASSWORD"],
        options=service.runs[1:],
        log=places.logs / "postgresql.log",
    ):
        yield
