"""Worker processes, one for each side, as a user starts them."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from runtime.child import end, last_line, spawn

ROOT = Path(__file__).parents[1]
TOOLS = ROOT / "benchmarks" / "tools.py"
START_SECONDS = 60.0
POLL_SECONDS = 0.05


class WorkerUnavailable(RuntimeError):
    """A worker did not start; the message says what it said last."""


async def start(
    words: Sequence[str], address: str, state: Path, log: Path, more: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Run `python WORDS` with `more` in its environment, and return when it has said that it is ready.

    Raises:
        WorkerUnavailable: it ended, or said nothing within a minute.
    """
    ours = {"TEMPORAL_ADDRESS": address, "REPLAN_STATE": str(state), "PYTHONPATH": str(ROOT)}
    process = spawn([sys.executable, *words], log, environment={**os.environ, **ours, **(more or {})})
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
async def running(
    words: Sequence[str], address: str, state: Path, log: Path, more: Mapping[str, str] | None = None
) -> AsyncIterator[subprocess.Popen[bytes]]:
    """The same, ended with the block."""
    process = await start(words, address, state, log, more)
    try:
        yield process
    finally:
        await end(process)


def bare(queue: str) -> list[str]:
    """The command line of the bare side's worker."""
    return ["-m", "benchmarks.bare_worker", queue]


def replan(queue: str, *more: str) -> list[str]:
    """The command line of our worker."""
    return [str(ROOT / "worker.py"), "--tools", str(TOOLS), "--queue", queue, *more]
