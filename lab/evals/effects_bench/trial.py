"""One trial: a world that fails where it is told to, a model, and an arm that is started again when it dies."""

import asyncio
import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import httpx2

from evals.effects_bench.judge import Verdict, judge
from evals.effects_bench.model import TruthModel
from evals.fakes.model_api import KEY
from evals.frameworks.trial import TrialFailed, without_keys
from runtime.child import last_line

HERE = Path(__file__).parent
FORKED = HERE.parent / "frameworks" / "forked.py"
TASKS: Mapping[str, Mapping[str, Any]] = json.loads((HERE / "tasks.json").read_text(encoding="utf-8"))
"""By world, its tools that change something, and how many calls of each task do; `worlds.py` prints it."""
FAULTS = ("none", "unsent", "limited", "unavailable", "unanswered", "killed", "slow", "unauthorized", "conflict")
BACKOFF_SECONDS = 1.0
"""How long its supervisor waits before it starts an arm again."""
RESTARTS = 4
"""How often an arm that died is started again."""
PATIENCE_SECONDS = 60.0


class Worlds:
    """The process from which the world of each trial is forked."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process, self._lock = process, asyncio.Lock()

    @classmethod
    async def start(cls, python: Path, log: Path) -> Self:
        """Raises TrialFailed."""
        changing = json.dumps({name: suite["changing"] for name, suite in TASKS.items()})
        with log.open("wb") as errors:
            process = await asyncio.create_subprocess_exec(
                *(str(python), str(HERE / "world_server.py"), changing),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
            )
        worlds = cls(process)
        if await worlds._line() != "ready":
            raise TrialFailed(f"The worlds did not start: {last_line(log)}")
        return worlds

    async def open(self, trial: Mapping[str, Any]) -> tuple[int, str]:
        """The process and the URL of a world. Raises TrialFailed."""
        async with self._lock:
            if self._process.stdin:
                self._process.stdin.write(f"{json.dumps(trial)}\n".encode())
                await self._process.stdin.drain()
            opened = json.loads(await self._line() or '{"port": 0}')
        if not opened["port"]:
            raise TrialFailed(f"The world of {trial['task']} did not start")
        return opened["pid"], f"http://127.0.0.1:{opened['port']}"

    async def _line(self) -> str:
        return (await self._process.stdout.readline()).decode().strip() if self._process.stdout else ""

    async def close(self) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()


@dataclass
class Arm:
    """A way of running an agent: its program, and the Python that has what it needs."""

    name: str
    program: Path
    python: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that the program needs besides those of a trial."""


@dataclass
class Stage:
    """The worlds and the model of all trials."""

    folder: Path
    worlds: Worlds
    model: TruthModel
    number: int = 0

    async def play(self, arm: Arm, verdict: Verdict, at: int) -> None:
        """Play a trial, and fill in what it came to. Raises TrialFailed if the world or the arm cannot be started."""
        self.number += 1
        name = f"trial-{self.number}"
        folder = self.folder / name
        folder.mkdir()
        journal = folder / "journal.db"
        wanted = {"suite": verdict.suite, "task": verdict.task, "journal": str(journal), "fault": verdict.fault}
        pid, url = await self.worlds.open({**wanted, "at": at})
        try:
            async with httpx2.AsyncClient() as client:
                self.model.solutions[name] = (await client.get(f"{url}/told")).json()
                text = self.model.solutions[name]["text"]
                begun = time.monotonic()
                said, is_failed = await self._ended(arm, verdict, {"WORLD": url, "TRIAL": name, "TEXT": text}, folder)
                verdict.seconds = round(time.monotonic() - begun, 2)
                judge(verdict, journal, (await client.get(f"{url}/told")).json(), said, is_failed=is_failed)
            verdict.characters = self.model.asked.get(name, 0)
        finally:
            with suppress(ProcessLookupError):
                os.kill(pid, 9)

    async def _ended(self, arm: Arm, verdict: Verdict, variables: Mapping[str, str], folder: Path) -> tuple[str, bool]:
        """What the arm said in the end, and whether it failed; it is started again while it dies or fails."""
        environment = {**without_keys(), **arm.environment, **variables, "FOLDER": str(folder)}
        environment |= {"OPENAI_BASE_URL": f"{self.model.url}/v1", "OPENAI_API_KEY": KEY}
        said = ""
        for number in range(RESTARTS + 1):
            verdict.restarts, log = number, folder / f"arm-{number}.log"
            with log.open("wb") as output, log.with_suffix(".err").open("wb") as errors:
                process = await asyncio.create_subprocess_exec(
                    *(str(arm.python), str(arm.program)), env=environment, cwd=folder, stdout=output, stderr=errors
                )
            try:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    code = await process.wait()
            except TimeoutError:
                verdict.hangs = True
                process.kill()
                await process.wait()
                return "", True
            said = log.read_text(errors="replace")
            if not code:
                return said, False
            await asyncio.sleep(BACKOFF_SECONDS)
        return said, True
