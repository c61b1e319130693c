"""The workers: real processes, as a user starts them, killed in every way and always replaced."""

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

ROOT = Path(__file__).parents[2]
LOOK_SECONDS = 0.2
START_SECONDS = 90.0
FROZEN_SECONDS = 6.5
"""How long a frozen worker stays so: longer than the server waits for a heartbeat."""
ALL_FROZEN_SECONDS = 25.0
"""How long all of them stay so at once: longer than four attempts are waited for."""


class WorkerUnavailable(RuntimeError):
    """A worker did not start; the message says what it said last."""


@dataclass
class Worker:
    """One process and its log."""

    process: subprocess.Popen[bytes]
    log: Path
    sent: str = ""
    """What we did to it, where it is not to end by itself."""

    was_ready: bool = False

    @property
    def is_ready(self) -> bool:
        """Whether it said so."""
        if not self.was_ready:  # a log grows long
            self.was_ready = any(line.startswith("ready") for line in self.log.read_text(errors="replace").splitlines())
        return self.was_ready

    @property
    def is_alive(self) -> bool:
        """Whether the process is there, frozen or not."""
        return self.process.poll() is None

    @property
    def is_stopped(self) -> bool:
        """Whether it is frozen."""
        found = os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) if self.is_alive else None
        return found is not None and found.si_pid != 0

    def send(self, number: signal.Signals) -> None:
        """Send a signal, which may come too late."""
        if self.is_alive:
            with suppress(ProcessLookupError):
                os.kill(self.process.pid, number)

    async def ready(self) -> "Worker":
        """Wait until it says so.

        Raises:
            WorkerUnavailable: it ended, or said nothing for long.
        """
        for _ in range(int(START_SECONDS / LOOK_SECONDS)):
            if self.is_ready:
                return self
            if not self.is_alive:
                break
            await asyncio.sleep(LOOK_SECONDS)
        raise WorkerUnavailable(f"A worker did not start ({last_line(self.log)}): look into {self.log}.")


@dataclass
class Fleet:
    """As many workers as were asked for, on one queue, inside `async with`."""

    folder: Path
    """Where they log."""
    words: Sequence[str]
    """The options of `worker.py`."""
    environment: Mapping[str, str]
    size: int
    prefix: str = "worker"
    """How the names of their logs begin."""
    workers: list[Worker] = field(default_factory=list)
    leaving: list[Worker] = field(default_factory=list)
    """Those that were told to end, or that nobody may choose any more."""
    done: Counter[str] = field(default_factory=Counter)
    """How many were killed, frozen, terminated, and ended by themselves."""
    started: int = 0
    commands: int = 0
    _keeper: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "Fleet":
        for _ in range(self.size):
            self.workers.append(self.start())
        try:
            await asyncio.gather(*(worker.ready() for worker in self.workers))
        except WorkerUnavailable:
            await self._end()
            raise
        self._keeper = asyncio.create_task(self._keep())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._keeper:
            self._keeper.cancel()
        await self._end()

    def start(self, *more: str) -> Worker:
        """Start one more worker, which the caller keeps."""
        self.started += 1
        log = self.folder / f"{self.prefix}-{self.started:03}.log"
        command = [sys.executable, str(ROOT / "worker.py"), *self.words, *more]
        return Worker(spawn(command, log, environment={**os.environ, **self.environment}), log)

    async def starter(self, *words: str) -> int:
        """Run a command of the console beside the workers; its exit code."""
        self.commands += 1
        command = [sys.executable, str(ROOT / "starter.py"), *words]
        log = self.folder / f"{self.prefix}-console-{self.commands:03}.log"
        process = spawn(command, log, environment={**os.environ, **self.environment})
        return await asyncio.to_thread(process.wait)

    async def hire(self, *more: str) -> Worker:
        """Start one more worker, which ends with the fleet and has no successor.

        Raises:
            WorkerUnavailable: it did not start.
        """
        self.leaving.append(self.start(*more))
        return await self.leaving[-1].ready()

    def kill(self, worker: Worker) -> None:
        """SIGKILL, and another one in its place."""
        self._replace(worker, "killed")
        worker.send(signal.SIGKILL)

    def kill_process(self, pid: int) -> bool:
        """The same for a worker known by its process; whether it was one of ours and alive."""
        found = next((one for one in (*self.workers, *self.leaving) if one.process.pid == pid and one.is_alive), None)
        if found is not None:
            self.kill(found)
        return found is not None

    def terminate(self, worker: Worker) -> None:
        """SIGTERM, which lets it finish what it can, and another one in its place."""
        self._replace(worker, "terminated")
        worker.send(signal.SIGTERM)

    async def freeze(self, worker: Worker, seconds: float = FROZEN_SECONDS) -> None:
        """SIGSTOP until the server has given it up, then SIGCONT."""
        self.done["frozen"] += 1
        worker.send(signal.SIGSTOP)
        await asyncio.sleep(seconds)
        worker.send(signal.SIGCONT)

    async def freeze_all(self) -> None:
        """The same for all workers at once, for longer."""
        await asyncio.gather(*(self.freeze(worker, ALL_FROZEN_SECONDS) for worker in self.workers))

    def chosen(self, draw: float) -> Worker:
        """One of the workers that serve, for a `draw` from [0, 1); the others stand by where there are some."""
        serving = [worker for worker in self.workers if worker.is_alive and worker.is_ready] or self.workers
        return serving[int(draw * len(serving))]

    def _replace(self, worker: Worker, how: str) -> None:
        self.done[how] += 1
        worker.sent = how
        if worker in self.workers:
            self.leaving.append(worker)
            self.workers[self.workers.index(worker)] = self.start()

    async def _keep(self) -> None:
        """Put another one in the place of each that ended by itself, as one does that starts without a server."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            for worker in [one for one in self.workers if not one.is_alive]:
                self._replace(worker, "died" if worker.is_ready else "not started")
            self.leaving = [one for one in self.leaving if one.is_alive]

    async def _end(self) -> None:
        everyone = [*self.workers, *self.leaving]
        for worker in everyone:
            worker.send(signal.SIGCONT)
        await asyncio.gather(*(end(worker.process) for worker in everyone))
