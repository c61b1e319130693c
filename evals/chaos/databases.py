"""Where the workers' store and the bank's books are: two SQLite files, or two databases of one PostgreSQL."""

import asyncio
import secrets
import signal
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import StrEnum
from pathlib import Path

from replan.testing import postgresql
from runtime.dev_server import free_port

AWAY_SECONDS = 1.0
DURABLE = ("-c", "max_connections=200")
"""What a commit promised is there after a crash: nothing that PostgreSQL does for that is left out."""


class Store(StrEnum):
    """Which database."""

    SQLITE = "sqlite"
    POSTGRESQL = "postgresql"


class Databases(ABC):
    """The two databases."""

    store: str
    """The URL of the workers' store."""
    bank: str
    """The URL of the bank's books."""

    @abstractmethod
    async def restart(self) -> bool:
        """End the database at once and start it again; False where there is no process to end."""


class Files(Databases):
    """SQLite."""

    def __init__(self, folder: Path) -> None:
        """Keep both in `folder`."""
        self.store = f"sqlite+aiosqlite:///{folder / 'store.db'}"
        self.bank = f"sqlite+aiosqlite:///{folder / 'bank.db'}"

    async def restart(self) -> bool:
        """A file cannot be restarted."""
        return False


class Cluster(Databases):
    """PostgreSQL."""

    def __init__(self, cluster: postgresql.Cluster) -> None:
        """Make both in a cluster that is up."""
        self._cluster = cluster
        for name in ("store", "bank"):
            cluster.run(f"CREATE DATABASE {name}")
        self.store, self.bank = cluster.url("store"), cluster.url("bank")

    async def restart(self) -> bool:
        """SIGQUIT: every connection is lost, and what was committed is recovered at the next start."""
        await self._cluster.stop(signal.SIGQUIT)
        await asyncio.sleep(AWAY_SECONDS)
        await self._cluster.start()
        return True


class NoDatabase(RuntimeError):
    """The database that was asked for is not installed."""


@asynccontextmanager
async def databases(store: Store, folder: Path) -> AsyncIterator[Databases]:
    """Both databases, empty; they end with the block.

    Raises:
        NoDatabase: it is not installed, or did not start.
    """
    if store is Store.SQLITE:
        yield Files(folder)
        return
    binaries = postgresql.find_postgresql()
    if binaries is None:
        raise NoDatabase(postgresql.MISSING)
    log = folder / "postgresql.log"
    async with postgresql.running(
        binaries,
        free_port(),
        user="replan",
        password=secrets.token_hex(16),
        options=DURABLE,
        log=log,
    ) as cluster:
        yield Cluster(cluster)
