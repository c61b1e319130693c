"""One trial: a world that fails where it is told to, a model, and an arm that is started again when it dies."""

import asyncio
import json
import os
import signal
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import httpx2
import psutil
from temporalio.client import Client
from temporalio.service import RPCError

from evals.effects_bench.judge import Verdict, judge
from evals.effects_bench.model import TruthModel
from evals.fakes.model_api import KEY
from evals.frameworks.trial import TrialFailed, without_keys
from runtime.child import last_line

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
FORKED = HERE.parent / "frameworks" / "forked.py"
TASKS: Mapping[str, Mapping[str, Any]] = json.loads((HERE / "tasks.json").read_text(encoding="utf-8"))
"""By world, its tools that change something, and how many calls of each task do; `worlds.py` prints it."""
FAULTS = ("none", "unsent", "limited", "unavailable", "unanswered", "killed", "slow", "unauthorized", "conflict")
BACKOFF_SECONDS = 1.0
"""How long its supervisor waits before it starts an arm again."""
READY = b"ready"
"""What `forked.py` says when all is imported."""
RESTARTS = 4
"""How often an arm that died is started again."""
PATIENCE_SECONDS = 60.0


class Worlds:
    """The process from which the world of each trial is forked."""

    def __init__(self, python: Path, log: Path) -> None:
        self._python, self._log, self._lock = python, log, asyncio.Lock()
        self._process: asyncio.subprocess.Process | None = None

    async def _start(self) -> None:
        tools = json.dumps(
            {name: {what: suite[what] for what in ("changing", "reading")} for name, suite in TASKS.items()}
        )
        with self._log.open("ab") as errors:
            self._process = await asyncio.create_subprocess_exec(
                *(str(self._python), str(HERE / "world_server.py"), tools),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        if await self._line() != "ready":
            raise TrialFailed(f"The worlds did not start: {last_line(self._log)}")

    async def open(self, trial: Mapping[str, Any]) -> tuple[int, str]:
        """The process and the URL of a world. Raises TrialFailed, and TimeoutError; then the next one starts anew."""
        async with self._lock:
            try:
                if self._process is None:
                    await self._start()
                if self._process and self._process.stdin:
                    self._process.stdin.write(f"{json.dumps(trial)}\n".encode())
                async with asyncio.timeout(PATIENCE_SECONDS):
                    opened = json.loads(await self._line() or '{"port": 0}')
                if not opened["port"]:
                    raise TrialFailed(f"The world of {trial['task']} did not start: {last_line(self._log)}")
            except BaseException:
                await self.close()  # its answer would be taken for that of the next trial
                raise
        return opened["pid"], f"http://127.0.0.1:{opened['port']}"

    async def _line(self) -> str:
        return (
            (await self._process.stdout.readline()).decode().strip() if self._process and self._process.stdout else ""
        )

    async def close(self) -> None:
        """End them all."""
        if self._process:
            await _end(self._process)
        self._process = None


@dataclass
class Arm:
    """A way of running an agent: its program, and the Python that has what it needs."""

    name: str
    program: Path
    python: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that the program needs besides those of a trial."""
    has_keys: bool = False
    """Whether its calls have idempotency keys."""


@dataclass
class Stage:
    """The worlds and the model of all trials."""

    folder: Path
    worlds: Worlds
    model: TruthModel
    parents: "Parents"
    number: int = 0
    _client: Client | None = None

    async def play(self, arm: Arm, verdict: Verdict, at: int) -> None:
        """Play a trial, and fill in what it came to."""
        self.number += 1
        name = f"trial-{self.number}"
        folder = self.folder / name
        folder.mkdir()
        verdict.at = at
        try:
            await self._played(arm, verdict, name, folder)
        except Exception as problem:  # one that cannot be played ends no night
            verdict.broken = repr(problem)[:200]
        finally:
            verdict.load = round(os.getloadavg()[0], 1)
            _end_left(folder)
            if address := arm.environment.get("TEMPORAL_ADDRESS"):
                await self._terminate(address, name)

    async def _played(self, arm: Arm, verdict: Verdict, name: str, folder: Path) -> None:
        journal = folder / "journal.db"
        wanted = {"suite": verdict.suite, "task": verdict.task, "journal": str(journal), "fault": verdict.fault}
        pid, url = await self.worlds.open({**wanted, "at": verdict.at})
        try:
            async with httpx2.AsyncClient(timeout=PATIENCE_SECONDS) as client:
                self.model.solutions[name] = (await client.get(f"{url}/told")).json()
                text = self.model.solutions[name]["text"]
                begun = time.monotonic()
                said, is_failed = await self._ended(arm, verdict, {"WORLD": url, "TRIAL": name, "TEXT": text}, folder)
                verdict.seconds = round(time.monotonic() - begun, 2)
                told = (await client.get(f"{url}/told")).json()
            count = self.model.asked.pop(name, Counter())
            verdict.turns, verdict.characters = count["turns"], count["characters"]
            judge(verdict, journal, told, said, is_failed=is_failed, has_keys=arm.has_keys, handed=count["handed"])
        finally:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    async def _terminate(self, address: str, name: str) -> None:
        """End what a trial left on the server: another one must not wait for it."""
        with suppress(RPCError, RuntimeError):
            if self._client is None:
                self._client = await Client.connect(address)
            await self._client.get_workflow_handle(name).terminate()

    async def _ended(self, arm: Arm, verdict: Verdict, variables: Mapping[str, str], folder: Path) -> tuple[str, bool]:
        """What the arm said in the end, and whether it failed; it is started again while it dies or fails."""
        environment = {**variables, "FOLDER": str(folder)}
        environment |= {"OPENAI_BASE_URL": f"{self.model.url}/v1", "OPENAI_API_KEY": KEY}
        said = ""
        for number in range(RESTARTS + 1):
            verdict.restarts, log = number, folder / f"arm-{number}.log"
            wanted = {"arguments": [], "folder": str(folder), "environment": environment, "log": str(log)}
            wanted["errors"] = str(log.with_suffix(".err"))
            try:
                code = await self.parents.run(arm, wanted)
            except TimeoutError:
                verdict.hangs = True
                return "", False
            said = log.read_text(errors="replace")
            if not code:
                return said, False
            await asyncio.sleep(BACKOFF_SECONDS)
        return said, True


class Parents:
    """The processes from which the arms' programs are forked, with their packages imported; they end with the block."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._idle = folder, dict[str, list[asyncio.subprocess.Process]]()
        self._all = list[asyncio.subprocess.Process]()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        for parent in self._all:
            await _end(parent)

    async def run(self, arm: Arm, wanted: Mapping[str, object]) -> int:
        """The exit code of a run. Raises TimeoutError if it hangs, and TrialFailed if it cannot be started."""
        idle = self._idle.setdefault(arm.name, [])
        parent = idle.pop() if idle else await self._start(arm)
        if parent.stdin is None or parent.stdout is None:
            raise TrialFailed(f"{arm.name} has no pipes")
        parent.stdin.write(f"{json.dumps(wanted)}\n".encode())
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                answer = await parent.stdout.readline()
        except BaseException:
            await _end(parent)
            raise
        if not answer:
            await _end(parent)
            raise TrialFailed(f"{arm.name} did not start: {last_line(self._log(arm))}")
        idle.append(parent)
        return int(answer)

    async def _start(self, arm: Arm) -> asyncio.subprocess.Process:
        paths = os.pathsep.join((str(ROOT), str(arm.program.parent)))
        with self._log(arm).open("ab") as errors:
            parent = await asyncio.create_subprocess_exec(
                *(str(arm.python), str(FORKED), str(arm.program)),
                env={**without_keys(), **arm.environment, "PYTHONPATH": paths},
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        self._all.append(parent)
        if parent.stdout is None or (await parent.stdout.readline()).strip() != READY:
            await _end(parent)
            raise TrialFailed(f"{arm.name} cannot be imported: {last_line(self._log(arm))}")
        return parent

    def _log(self, arm: Arm) -> Path:
        return self._folder / f"{arm.name}.log"


async def _end(parent: asyncio.subprocess.Process) -> None:
    """End a process and what it forked."""
    if parent.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(parent.pid, signal.SIGKILL)
        await parent.wait()


def _end_left(folder: Path) -> None:
    """End what an arm started and left behind, such as a worker: its environment names the folder of the trial."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get("FOLDER") == str(folder):
                process.kill()
