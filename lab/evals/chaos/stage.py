"""What a trial needs, started in order and ended with it: databases, payment service, server, proxy, workers."""

import asyncio
import json
import os
import secrets
import signal
import socket
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from types import TracebackType

from sqlalchemy import update
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine
from temporalio.client import Client
from temporalio.runtime import LoggingConfig, Runtime, TelemetryConfig, TelemetryFilter

from activities.storage.vault import PAYLOADS
from evals.chaos.fleet import ROOT, Fleet
from evals.chaos.payments import RESET_ON_CLOSE, Book
from evals.chaos.world import NOTES, open_accounts
from evals.fakes import postgresql
from runtime.child import end, spawn
from runtime.client import connect
from runtime.dev_server import DevServer, ServerSpec, find_cli, free_port
from workflows.account import search_attributes

AWAY_SECONDS = 1.0
POLL_SECONDS = 0.05
CHUNK = 64 * 1024
DURABLE = ("-c", "max_connections=200")
"""Nothing that PostgreSQL does to survive crashes is switched off."""
TOOLS = ROOT / "lab" / "evals" / "chaos" / "tools.py"
OLDER_TOOLS = TOOLS.with_name("older_tools.py")
"""Some of the tools, as a worker has them before a deploy."""


class Store(StrEnum):
    """Which database."""

    SQLITE = "sqlite"
    POSTGRESQL = "postgresql"


class NoDatabase(RuntimeError):
    """The database that was asked for is not installed."""


@dataclass(frozen=True)
class Databases:
    """The workers' store and the bank: two SQLite files, or two databases of one PostgreSQL."""

    store: str
    """Its URL."""
    bank: str
    """Its URL."""
    cluster: postgresql.Cluster | None = None

    async def restart(self) -> None:
        """Crash PostgreSQL and start it again; nothing for SQLite, which has no process."""
        if self.cluster:
            await self.cluster.stop(signal.SIGQUIT)
            await asyncio.sleep(AWAY_SECONDS)
            await self.cluster.start()


@asynccontextmanager
async def databases(store: Store, folder: Path) -> AsyncIterator[Databases]:
    """Both databases, empty; they end with the block.

    Raises:
        NoDatabase: PostgreSQL is not installed.
        PostgresFailed: it did not start.
    """
    if store is Store.SQLITE:
        store_file, bank_file = folder / "store.db", folder / "bank.db"
        yield Databases(f"sqlite+aiosqlite:///{store_file}", f"sqlite+aiosqlite:///{bank_file}")
        return
    binaries = postgresql.find_postgresql()
    if binaries is None:
        raise NoDatabase(postgresql.MISSING)
    login = {"user": "replan", "password": secrets.token_hex(16)}
    log = folder / "postgresql.log"
    async with postgresql.running(binaries, free_port(), **login, options=DURABLE, log=log) as cluster:
        for name in ("store", "bank"):
            cluster.run(f"CREATE DATABASE {name}")
        yield Databases(cluster.url("store"), cluster.url("bank"), cluster)


class Proxy:
    """Stands between workers and server and can cut their connections; up inside `async with`."""

    def __init__(self, port: int, target: int) -> None:
        """Listen on `port`; connect to `target` for each connection."""
        self.port = port
        self._target = target
        self._listening: asyncio.Server | None = None
        self._open = set[asyncio.StreamWriter]()
        self.cut = 0
        """How many connections were cut so far."""

    @property
    def address(self) -> str:
        """The address for workers."""
        return f"127.0.0.1:{self.port}"

    async def __aenter__(self) -> "Proxy":
        await self._listen()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._refuse()

    async def used(self) -> None:
        """Wait until there is a connection."""
        while not self._open:  # noqa: ASYNC110  # no event tells
            await asyncio.sleep(POLL_SECONDS)

    async def drop(self, seconds: float) -> int:
        """Cut every connection and refuse new ones for a while; how many were cut."""
        cut = self._refuse()
        await asyncio.sleep(seconds)
        await self._listen()
        return cut

    async def _listen(self) -> None:
        self._listening = await asyncio.start_server(self._join, "127.0.0.1", self.port)

    def _refuse(self) -> int:
        if self._listening:
            self._listening.close()
        open, self._open = self._open, set()
        for writer in open:
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
            writer.transport.abort()
        self.cut += len(open) // 2
        return len(open) // 2

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:  # the server is down
            writer.transport.abort()
            return
        self._open |= {writer, back}
        await asyncio.gather(_pass_on(reader, back), _pass_on(there, writer))
        self._open -= {writer, back}


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy until one side ends, then end the other."""
    with suppress(OSError):
        while part := await reader.read(CHUNK):
            writer.write(part)
            await writer.drain()
    writer.close()


class Server:
    """A real Temporal server that can be killed; up inside `async with`. Ports and file stay the same."""

    def __init__(self, folder: Path, port: int) -> None:
        """Keep the database in `folder`."""
        self.port = port
        self._spec = ServerSpec(folder, "127.0.0.1", port, free_port(), attributes=search_attributes.TYPES)
        self._running: DevServer | None = None
        self.restarts = 0

    @property
    def address(self) -> str:
        """The address that bypasses the proxy."""
        return self._spec.address

    async def __aenter__(self) -> "Server":
        self._running = DevServer(self._spec, await find_cli(lambda _: None))
        await self._running.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._running:
            await self._running.stop()

    async def freeze(self, seconds: float) -> None:
        """Send SIGSTOP, and SIGCONT after so many seconds."""
        if self._running and self._running.pid:
            os.kill(self._running.pid, signal.SIGSTOP)
            try:
                await asyncio.sleep(seconds)
            finally:
                os.kill(self._running.pid, signal.SIGCONT)

    async def restart(self) -> None:
        """Send SIGKILL, wait a moment, and start a new one on the same file."""
        if self._running and self._running.pid:
            os.kill(self._running.pid, signal.SIGKILL)
            await asyncio.sleep(AWAY_SECONDS)
            await self._running.start()
            self.restarts += 1


@dataclass(frozen=True)
class Stage:
    """What is up."""

    folder: Path
    databases: Databases
    payments: str
    """The URL of the payment service."""
    book: Book
    server: Server
    proxy: Proxy
    client: Client
    """Connected to the server, not to the proxy."""

    @property
    def notes(self) -> Path:
        """The calls that the tools have noted."""
        return self.folder / "notes.jsonl"

    def fleet(self, queue: str, size: int, tools: Path = TOOLS) -> Fleet:
        """Workers on this queue with the tools of a file, behind the proxy."""
        environment = {
            "TEMPORAL_ADDRESS": self.proxy.address,
            "REPLAN_STATE": str(self.folder / "state"),
            "REPLAN_STORE": self.databases.store,
            "REPLAN_CHAOS_BANK": self.databases.bank,
            "REPLAN_CHAOS_PAYMENTS": self.payments,
            NOTES: str(self.notes),
            "PYTHONPATH": str(ROOT),
        }
        options = ["--tools", str(tools), "--queue", queue]
        prefix = queue if tools == TOOLS else f"{queue}-{tools.stem}"
        return Fleet(self.folder, options, environment, size, prefix)

    async def date_payloads_back(self) -> bool:
        """Make all payloads two days older; False if the store is away."""
        engine = create_async_engine(self.databases.store)
        try:
            async with engine.begin() as tx:
                await tx.execute(update(PAYLOADS).values(stored=datetime.now(UTC) - timedelta(days=2)))
        except DBAPIError:  # it is being restarted, or its file does not exist yet
            return False
        finally:
            await engine.dispose()
        return True


@asynccontextmanager
async def staged(folder: Path, store: Store, troubles: Mapping[str, Sequence[str]]) -> AsyncIterator[Stage]:
    """Start databases, bank, payment service, server and proxy.

    Raises:
        ServerUnavailable: the server did not start.
    """
    (folder / "state").mkdir(parents=True)
    plan, file = folder / "troubles.json", folder / "payments.db"
    plan.write_text(json.dumps(troubles))
    payments, serving, passing = (free_port() for _ in range(3))
    async with AsyncExitStack() as up:
        both = await up.enter_async_context(databases(store, folder))
        bank = create_async_engine(both.bank)
        await open_accounts(bank)
        await bank.dispose()
        book = Book(file)
        command = [sys.executable, "-m", "evals.chaos.payments", str(payments), str(file), str(plan)]
        service = spawn(command, folder / "payments.log", environment={"PYTHONPATH": str(ROOT)})
        up.push_async_callback(end, service)
        server = await up.enter_async_context(Server(folder / "server", serving))
        proxy = await up.enter_async_context(Proxy(passing, serving))
        client = await connect(address=server.address, plain=True, runtime=_silent())
        yield Stage(folder, both, f"http://127.0.0.1:{payments}", book, server, proxy, client)


def _silent() -> Runtime:
    """A runtime that does not log each failed call: the trial itself kills the server."""
    return Runtime(telemetry=TelemetryConfig(logging=LoggingConfig(TelemetryFilter("ERROR", "ERROR"))))
