"""The processes of a benchmark: Temporal servers, workers as a user starts them, and what they use."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import psutil
import typer

from runtime.child import end, last_line, spawn
from runtime.client import NotConnected
from runtime.dev_server import DevServer, ServerSpec, ServerUnavailable, find_cli, free_port
from runtime.process import leave
from workflows.account import search_attributes

ROOT = Path(__file__).parents[2]
TOOLS = ROOT / "lab" / "benchmarks" / "tools.py"
START_SECONDS = 60.0
POLL_SECONDS = 0.05
SAMPLE_SECONDS = 0.1
MEGABYTE = 1e6

R = TypeVar("R")


class WorkerUnavailable(RuntimeError):
    """A worker did not start; the message has the last line of its log."""


def finish(running: Coroutine[None, None, R]) -> R:
    """Run a benchmark; end the process with 6 if a server or worker is not there, with 130 after Ctrl-C."""
    try:
        return asyncio.run(running)
    except (NotConnected, ServerUnavailable, WorkerUnavailable) as problem:
        typer.echo(problem, err=True)
        leave(6)
    except KeyboardInterrupt:
        leave(130)


class Meter:
    """Reads what one process uses."""

    def __init__(self, pid: int) -> None:
        """Read the process `pid`, which is running."""
        self.pid, self._process = pid, psutil.Process(pid)
        self.peak = 0.0
        """The most megabytes that `memory` has returned."""

    @property
    def cpu(self) -> float:
        """CPU seconds of the process so far; only on Linux more precise than 10 ms."""
        if sys.platform == "linux":
            return time.clock_gettime(~self._process.pid << 3 | 2)  # the clock that clock_getcpuclockid(3) returns
        times = self._process.cpu_times()
        return float(times.user + times.system)

    def memory(self) -> float:
        """Megabytes that the process has in memory now; 0 if it has ended."""
        with suppress(psutil.NoSuchProcess):
            now = self._process.memory_info().rss / MEGABYTE
            self.peak = max(self.peak, now)
            return now
        return 0.0


@asynccontextmanager
async def sampled(meters: Sequence[Meter]) -> AsyncIterator[None]:
    """Read the memory of these processes ten times a second while the block runs."""

    async def sample() -> None:
        while True:
            for meter in meters:
                meter.memory()
            await asyncio.sleep(SAMPLE_SECONDS)

    sampling = asyncio.create_task(sample())
    try:
        yield
    finally:
        sampling.cancel()


@dataclass(frozen=True)
class DefaultSpec(ServerSpec):
    """A server with the Temporal CLI's defaults, but for a database in a file."""

    def command(self, binary: Path) -> list[str]:
        """The command line of the server."""
        listen = ["--ip", self.ip, "--port", str(self.port), "--ui-port", str(self.ui_port)]
        keep = ["--db-filename", str(self.database.absolute()), "--log-level", "warn"]
        return [str(binary), "server", "start-dev", *listen, *keep]


@dataclass(frozen=True)
class Server:
    """A server that answers."""

    address: str
    meter: Meter | None
    """None for one that the benchmark did not start."""


@asynccontextmanager
async def default_server(folder: Path) -> AsyncIterator[Server]:
    """A server with default settings. Raises ServerUnavailable."""
    async with _started(DefaultSpec(folder, port=free_port(), ui_port=free_port())) as server:
        yield server


@asynccontextmanager
async def our_server(folder: Path, address: str | None = None) -> AsyncIterator[Server]:
    """The server at `address`, else a new one with Replan's settings. Raises ServerUnavailable."""
    if address is not None:
        yield Server(address, None)
        return
    spec = ServerSpec(folder, port=free_port(), ui_port=free_port(), attributes=search_attributes.TYPES)
    async with _started(spec) as server:
        yield server


@asynccontextmanager
async def _started(spec: ServerSpec) -> AsyncIterator[Server]:
    async with DevServer(spec, await find_cli(lambda _: None)) as server:  # `make` has fetched the program already
        yield Server(server.address, Meter(server.pid) if server.pid else None)


async def start_worker(
    words: Sequence[str], address: str, state: Path, log: Path, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Run `python WORDS`, and wait until it prints that it is ready.

    Raises:
        WorkerUnavailable: it ended, or was not ready within a minute.
    """
    ours = {"TEMPORAL_ADDRESS": address, "REPLAN_STATE": str(state), "PYTHONPATH": str(ROOT)}
    process = spawn([sys.executable, *words], log, environment={**os.environ, **ours, **(environment or {})})
    deadline = time.monotonic() + START_SECONDS
    while not _is_ready(log):
        if process.poll() is not None or time.monotonic() > deadline:
            await end(process)
            raise WorkerUnavailable(f"A worker did not start ({last_line(log)}): look into {log}.")
        await asyncio.sleep(POLL_SECONDS)
    return process


def _is_ready(log: Path) -> bool:
    return any(line.startswith("ready") for line in log.read_text(errors="replace").splitlines())


@asynccontextmanager
async def worker(
    words: Sequence[str], address: str, state: Path, log: Path, environment: Mapping[str, str] | None = None
) -> AsyncIterator[subprocess.Popen[bytes]]:
    """The same, ended with the block."""
    process = await start_worker(words, address, state, log, environment)
    try:
        yield process
    finally:
        await end(process)


def replan_worker(queue: str, *options: str) -> list[str]:
    """The command line of Replan's worker, without Python."""
    return [str(ROOT / "worker.py"), "--tools", str(TOOLS), "--queue", queue, *options]
