"""The workers of a trial: real processes, as a user starts them. A killed one is replaced."""

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from runtime.child import end, last_line, spawn
from workflows.faults import retries

ROOT = Path(__file__).parents[3]
POLL_SECONDS = 0.2
START_SECONDS = 90.0
FROZEN_SECONDS = retries.HEARTBEAT.total_seconds() + 1.5
"""Longer than the server waits for a heartbeat."""
ALL_FROZEN_SECONDS = FROZEN_SECONDS + 18.5
"""Longer than the retry policy waits for four attempts."""


class WorkerUnavailable(RuntimeError):
    """A worker did not start; the message has the last line of its log."""


@dataclass
class Worker:
    """One process and its log."""

    process: subprocess.Popen[bytes]
    log: Path
    was_ready: bool = False

    @property
    def is_ready(self) -> bool:
        """Whether it has printed `ready`."""
        if not self.was_ready:  # a log grows long
            self.was_ready = any(line.startswith("ready") for line in self.log.read_text(errors="replace").splitlines())
        return self.was_ready

    @property
    def is_alive(self) -> bool:
        """Whether the process exists, frozen or not."""
        return self.process.poll() is None

    @property
    def is_stopped(self) -> bool:
        """Whether it is frozen."""
        found = os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) if self.is_alive else None
        return found is not None and found.si_pid != 0

    def send(self, number: signal.Signals) -> None:
        """Send a signal, if the process still exists."""
        if self.is_alive:
            with suppress(ProcessLookupError):
                os.kill(self.process.pid, number)

    async def ready(self) -> "Worker":
        """Wait until it is ready.

        Raises:
            WorkerUnavailable: it ended, or was not ready in time.
        """
        for _ in range(int(START_SECONDS / POLL_SECONDS)):
            if self.is_ready:
                return self
            if not self.is_alive:
                break
            await asyncio.sleep(POLL_SECONDS)
        raise WorkerUnavailable(f"A worker did not start ({last_line(self.log)}): look into {self.log}.")


@dataclass
class Fleet:
    """So many workers on one queue, up inside `async with`."""

    folder: Path
    """Where they log."""
    options: Sequence[str]
    """The options of `worker.py`."""
    environment: Mapping[str, str]
    size: int
    prefix: str = "worker"
    """How the names of their logs begin."""
    workers: list[Worker] = field(default_factory=list)
    retired: list[Worker] = field(default_factory=list)
    """Those that were told to end, and those that `add` started."""
    done: Counter[str] = field(default_factory=Counter)
    """How many were killed, frozen, terminated, and ended by themselves."""
    started: int = 0
    commands: int = 0
    _keeping: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "Fleet":
        for _ in range(self.size):
            self.workers.append(self.start())
        try:
            await asyncio.gather(*(worker.ready() for worker in self.workers))
        except WorkerUnavailable:
            await self._end()
            raise
        self._keeping = asyncio.create_task(self._replace_dead())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._keeping:
            self._keeping.cancel()
        await self._end()

    def start(self, *more: str) -> Worker:
        """Start a worker with more options."""
        self.started += 1
        log = self.folder / f"{self.prefix}-{self.started:03}.log"
        command = [sys.executable, str(ROOT / "worker.py"), *self.options, *more]
        return Worker(spawn(command, log, environment={**os.environ, **self.environment}), log)

    async def starter(self, *words: str) -> int:
        """Run `starter.py` in the environment of the workers; its exit code."""
        self.commands += 1
        command = [sys.executable, str(ROOT / "starter.py"), *words]
        log = self.folder / f"{self.prefix}-console-{self.commands:03}.log"
        process = spawn(command, log, environment={**os.environ, **self.environment})
        return await asyncio.to_thread(process.wait)

    async def add(self, *more: str) -> Worker:
        """Start one more worker, which ends with the fleet and is not replaced.

        Raises:
            WorkerUnavailable: it did not start.
        """
        self.retired.append(self.start(*more))
        return await self.retired[-1].ready()

    def kill(self, worker: Worker) -> None:
        """Send SIGKILL, and start another one in its place."""
        self._replace(worker, "killed")
        worker.send(signal.SIGKILL)

    def kill_process(self, pid: int) -> bool:
        """Kill the worker with this process id; False if there is none."""
        found = next((w for w in (*self.workers, *self.retired) if w.process.pid == pid and w.is_alive), None)
        if found is not None:
            self.kill(found)
        return found is not None

    def terminate(self, worker: Worker) -> None:
        """Send SIGTERM, and start another one in its place."""
        self._replace(worker, "terminated")
        worker.send(signal.SIGTERM)

    async def freeze(self, worker: Worker, seconds: float = FROZEN_SECONDS) -> None:
        """Send SIGSTOP, and SIGCONT after the server has given it up."""
        self.done["frozen"] += 1
        worker.send(signal.SIGSTOP)
        await asyncio.sleep(seconds)
        worker.send(signal.SIGCONT)

    async def freeze_all(self) -> None:
        """Freeze all workers at once, for longer."""
        await asyncio.gather(*(self.freeze(worker, ALL_FROZEN_SECONDS) for worker in self.workers))

    def chosen(self, draw: float) -> Worker:
        """The worker that `draw` from [0, 1) chooses, of those that are ready if any is."""
        serving = [worker for worker in self.workers if worker.is_alive and worker.is_ready] or self.workers
        return serving[int(draw * len(serving))]

    def _replace(self, worker: Worker, how: str) -> None:
        self.done[how] += 1
        if worker in self.workers:
            self.retired.append(worker)
            self.workers[self.workers.index(worker)] = self.start()

    async def _replace_dead(self) -> None:
        """Replace each worker that ended by itself, as one does that starts while the server is away."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            for worker in [worker for worker in self.workers if not worker.is_alive]:
                self._replace(worker, "died" if worker.is_ready else "not started")
            self.retired = [worker for worker in self.retired if worker.is_alive]

    async def _end(self) -> None:
        everyone = [*self.workers, *self.retired]
        for worker in everyone:
            worker.send(signal.SIGCONT)
        await asyncio.gather(*(end(worker.process) for worker in everyone))
