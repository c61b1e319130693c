"""What a process uses: CPU seconds so far, and memory now and at its peak."""

import asyncio
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

import psutil

EVERY_SECONDS = 0.1
MEGABYTE = 1e6


class Meter:
    """Reads one process."""

    def __init__(self, pid: int) -> None:
        """Read the process `pid`, which is running."""
        self._process = psutil.Process(pid)
        self.peak = 0.0
        """Megabytes, the most that `look` has seen."""

    @property
    def cpu(self) -> float:
        """CPU seconds of the process since it began, in steps of 10 ms."""
        times = self._process.cpu_times()
        return float(times.user + times.system)

    def look(self) -> float:
        """Megabytes that the process has in memory now; 0 when it is gone."""
        with suppress(psutil.NoSuchProcess):
            now = self._process.memory_info().rss / MEGABYTE
            self.peak = max(self.peak, now)
            return now
        return 0.0


def metered(process: subprocess.Popen[bytes]) -> Meter:
    """The meter of a process that we started."""
    return Meter(process.pid)


@asynccontextmanager
async def watched(meters: Sequence[Meter]) -> AsyncIterator[None]:
    """Look at the memory of these processes ten times a second while the block runs."""

    async def look() -> None:
        while True:
            for meter in meters:
                meter.look()
            await asyncio.sleep(EVERY_SECONDS)

    looking = asyncio.create_task(look())
    try:
        yield
    finally:
        looking.cancel()
