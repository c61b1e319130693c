"""Agents whose function tools are effects, each killed once at a drawn moment, and resumed by their own means."""

import asyncio
import json
import os
import random
import shutil
import signal
import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from evals.fakes.model_api import Json
from evals.fakes.openai_api import OpenAIApi
from evals.fakes.script import ModelCall, ModelReply, Response, calls
from evals.frameworks.bank import MOMENTS
from evals.frameworks.trial import PATIENCE_SECONDS, TrialFailed, sdk, without_keys
from evals.markdown import table
from runtime.child import last_line

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
WANTED = {"pay": 2, "mail": 1}
"""What the book of a run has in the end: two equal payments, which are meant, and a mail."""
CALLS = sum(WANTED.values())
MOST_SECONDS = {"called": 0.0, "sending": 0.02, "committed": 0.02, "recorded": 0.0, "returned": 0.02}
"""The most seconds after a moment at which the agent is killed."""

MIN_SECONDS = 1e-5
NEVER, KILLED = "never", "killed.log"
"""A run without a kill, which is the name of its log, and the log of the other one."""


class End(StrEnum):
    """What a run came to."""

    ONCE = "each once"
    PERSON = "a person is asked"
    """Nothing is there twice, and the agent was told that nobody can know."""
    TWICE = "twice"
    LOST = "lost"
    """An effect, or the answer of one."""


class BankModel(OpenAIApi):
    """Pays and mails in its first turn, pays once more in the second, and then says what the calls returned."""

    def answer(self, path: str, headers: Mapping[str, str], body: Json) -> Response:
        results = [str(message["content"]) for message in body["messages"] if message["role"] == "tool"]
        pay = ModelCall("pay", {"who": "ann"})
        if not results:
            return calls(pay, ModelCall("mail", {"to": "ann", "subject": "receipt"}))
        return calls(pay) if len(results) < CALLS else ModelReply(text="; ".join(results))


@dataclass
class Kill:
    """A run of a framework's agent, and how it ended."""

    framework: str
    number: int
    """Which of the calls it is that the agent is killed in."""
    moment: str
    seconds: float
    is_bare: bool = False
    """Whether the agent runs without replan.effects."""
    book: Sequence[str] = ()
    """The receipts of the effects that are there in the end, as in `pay 1`."""
    said: str = ""
    """What the agent printed in the end, and the last line of its log."""

    def __str__(self) -> str:
        return f"{self.number}/{self.moment}/{self.seconds:.4f}"

    @property
    def end(self) -> End:
        counts = Counter(receipt.partition(" ")[0] for receipt in self.book)
        if any(counts[kind] > wanted for kind, wanted in WANTED.items()):
            return End.TWICE
        if "OutcomeUnknown" in self.said or "DoubtfulCall" in self.said:
            return End.PERSON
        has_answers = all(receipt in self.said for receipt in self.book)
        return End.ONCE if counts == WANTED and has_answers else End.LOST


def drawn(framework: str, kills: int, seed: int, *, is_bare: bool = False) -> list[Kill]:
    """So many runs, whose moments come equally often."""
    draw = random.Random(f"{framework} {seed}")  # noqa: S311  # a trial, no secret
    moments = [*MOMENTS]
    return [
        Kill(
            framework,
            draw.randint(1, CALLS),
            moment := moments[number % len(moments)],
            draw.uniform(0, MOST_SECONDS[moment]),
            is_bare,
        )
        for number in range(kills)
    ]


@dataclass
class Agents:
    """Runs the agents of kills, one after the other; ends with the block."""

    folder: Path
    pythons: Mapping[str, Path]
    """By framework, the Python of its environment."""
    model: BankModel
    _parents: dict[tuple[str, bool], asyncio.subprocess.Process] = field(default_factory=dict)

    async def __aenter__(self) -> "Agents":
        return self

    async def __aexit__(self, *_error: object) -> None:
        for parent in self._parents.values():
            with suppress(ProcessLookupError):
                parent.kill()
            await parent.wait()

    async def play(self, kill: Kill, name: str) -> None:
        """Run an agent in a new folder until it is killed, run it again to its end, and fill in what came of it.

        Raises TrialFailed if it is not killed, or does not end.
        """
        folder = self.folder / name
        await asyncio.to_thread(folder.mkdir)
        while (code := await self._run(kill, folder, str(kill))) != -signal.SIGKILL:
            if code or kill.seconds < MIN_SECONDS:
                raise TrialFailed(f"{kill.framework} was not killed at {kill}: {last_line(folder / KILLED)}")
            kill.seconds /= 4  # it had ended before
            await asyncio.to_thread(_empty, folder)
        code = await self._run(kill, folder, NEVER)
        kill.said = (folder / NEVER).read_text(errors="replace")
        with sqlite3.connect(folder / "book") as book:
            kill.book = [f"{kind} {receipt}" for kind, receipt in book.execute("SELECT kind, rowid FROM book")]
        if code and kill.end in (End.ONCE, End.LOST):
            raise TrialFailed(f"{kill.framework} failed after {kill}: {last_line(folder / NEVER)}")

    async def _run(self, kill: Kill, folder: Path, until: str) -> int:
        """The exit code of a run of the agent in `folder`."""
        parent = await self._parent(kill)
        if parent.stdin is None or parent.stdout is None:
            raise TrialFailed(f"{kill.framework} has no pipes.")
        wanted = {
            "arguments": ["state", "effects.db", "book", until],
            "folder": str(folder),
            "environment": sdk(self.model),
            "log": str(folder / (until if until == NEVER else KILLED)),
        }
        parent.stdin.write(f"{json.dumps(wanted)}\n".encode())
        answer = await asyncio.wait_for(parent.stdout.readline(), PATIENCE_SECONDS)
        if not answer:
            raise TrialFailed(f"{kill.framework} did not start: {last_line(self._log(kill))}")
        return int(answer)

    async def _parent(self, kill: Kill) -> asyncio.subprocess.Process:
        """The process that forks the agents of a framework."""
        which = kill.framework, kill.is_bare
        if which not in self._parents:
            program = HERE / f"{kill.framework}_functions_agent.py"
            paths = [*([str(HERE / "bare")] if kill.is_bare else []), str(ROOT), str(ROOT / "lab")]
            with self._log(kill).open("wb") as log:
                self._parents[which] = await asyncio.create_subprocess_exec(
                    str(self.pythons[kill.framework]),
                    str(HERE / "forked.py"),
                    str(program),
                    env={**without_keys(), "PYTHONPATH": os.pathsep.join(paths)},
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=log,
                )
            ready = self._parents[which].stdout
            if ready is None or await asyncio.wait_for(ready.readline(), PATIENCE_SECONDS) != b"ready\n":
                raise TrialFailed(f"{kill.framework} cannot be imported: {last_line(self._log(kill))}")
        return self._parents[which]

    def _log(self, kill: Kill) -> Path:
        return self.folder / f"{kill.framework}{'-bare' if kill.is_bare else ''}.log"


def _empty(folder: Path) -> None:
    for file in folder.iterdir():
        if file.is_dir():
            shutil.rmtree(file)
        else:
            file.unlink()


def rows(played: Sequence[Kill]) -> str:
    """What the runs came to, in Markdown."""
    columns = ("framework", "function tools", "kills", *End)
    found = dict[tuple[str, bool], Counter[End]]()
    for kill in played:
        found.setdefault((kill.framework, kill.is_bare), Counter())[kill.end] += 1
    lines = [
        [
            name,
            "as they are" if is_bare else "with replan.effects",
            str(ends.total()),
            *(str(ends[end]) for end in End),
        ]
        for (name, is_bare), ends in found.items()
    ]
    return table(columns, lines)
