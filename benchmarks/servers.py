"""The servers: one with the Temporal CLI's default settings, and one with ours or somebody's."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.meter import Meter
from runtime.dev_server import DevServer, ServerSpec, find_cli, free_port
from workflows import attributes


@dataclass(frozen=True)
class DefaultSpec(ServerSpec):
    """A server that keeps its database in a file, and is left as it comes in everything else."""

    def command(self, binary: Path) -> list[str]:
        """The command line of the server."""
        listen = ["--ip", self.ip, "--port", str(self.port), "--ui-port", str(self.ui_port)]
        return [str(binary), "server", "start-dev", *listen, "--db-filename", str(self.database), "--log-level", "warn"]


@dataclass(frozen=True)
class Server:
    """A server that answers."""

    address: str
    meter: Meter | None
    """None for one that somebody else started."""


@asynccontextmanager
async def by_default(folder: Path) -> AsyncIterator[Server]:
    """A server with default settings. Raises ServerUnavailable."""
    async with _started(DefaultSpec(folder, port=free_port(), ui_port=free_port())) as server:
        yield server


@asynccontextmanager
async def ours(folder: Path, address: str | None = None) -> AsyncIterator[Server]:
    """The server at `address`, else one with our settings. Raises ServerUnavailable."""
    if address is not None:
        yield Server(address, None)
        return
    async with _started(ServerSpec(folder, port=free_port(), ui_port=free_port(), attributes=attributes.TYPES)) as one:
        yield one


@asynccontextmanager
async def _started(spec: ServerSpec) -> AsyncIterator[Server]:
    async with DevServer(spec, await find_cli(_silent)) as server:
        yield Server(server.address, Meter(server.pid) if server.pid else None)


def _silent(_: str) -> None:
    """The benchmarks run after `make`, which has made sure of the server's program and said so."""
