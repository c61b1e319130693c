"""Everything that a trial breaks, started in order and ended with it."""

import json
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sqlalchemy import update
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine
from temporalio.client import Client
from temporalio.runtime import LoggingConfig, Runtime, TelemetryConfig, TelemetryFilter

from activities.storage.vault import PAYLOADS
from evals.chaos.accounts import open_accounts
from evals.chaos.book import Book
from evals.chaos.databases import Databases, Store, databases
from evals.chaos.fleet import ROOT, Fleet
from evals.chaos.places import Places
from evals.chaos.proxy import Proxy
from evals.chaos.server import Server
from runtime.child import end, spawn
from runtime.client import connect


@dataclass(frozen=True)
class Stage:
    """What is up."""

    places: Places
    databases: Databases
    book: Book
    server: Server
    proxy: Proxy
    client: Client
    """Past the proxy."""

    def fleet(self, queue: str, size: int) -> Fleet:
        """Workers on a queue of their own, behind the proxy."""
        environment = self.places.environment(self.proxy.address, self.databases)
        return Fleet(self.places.folder, self.places.words(queue), environment, size, prefix=queue)

    async def is_dated_back(self) -> bool:
        """Date all payloads back by two days; whether the store could be reached."""
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
    """Databases with an open bank, the payment service, the server and the proxy before it.

    Raises:
        ServerUnavailable: the server did not start.
    """
    places = Places(folder)
    places.state.mkdir(parents=True)
    places.troubles.write_text(json.dumps(troubles))
    async with AsyncExitStack() as up:
        kept = await up.enter_async_context(databases(store, folder))
        bank = create_async_engine(kept.bank)
        await open_accounts(bank)
        await bank.dispose()
        book = Book(places.book)
        service = spawn(_service(places), folder / "payments.log", environment={"PYTHONPATH": str(ROOT)})
        up.push_async_callback(end, service)
        server = await up.enter_async_context(Server(folder / "server", places.server))
        proxy = await up.enter_async_context(Proxy(places.proxy, places.server))
        client = await connect(address=server.address, plain=True, runtime=_silent())
        yield Stage(places, kept, book, server, proxy, client)


def _service(places: Places) -> list[str]:
    words = [str(places.payments), str(places.book), str(places.troubles)]
    return [sys.executable, "-m", "evals.chaos.payments", *words]


def _silent() -> Runtime:
    """A runtime that does not tell of every call which met no server: that there is none is our own doing."""
    return Runtime(telemetry=TelemetryConfig(logging=LoggingConfig(TelemetryFilter("ERROR", "ERROR"))))
