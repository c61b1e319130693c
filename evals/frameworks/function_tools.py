"""Agents whose function tools are effects, each killed once at a drawn moment, and resumed by their own means."""

import asyncio
import os
import random
import shutil
import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from evals.frameworks.bank import MOMENTS
from evals.frameworks.trial import PATIENCE_SECONDS, TrialFailed, start
from evals.markdown import table
from replan.testing.model_api import Json
from replan.testing.openai_api import OpenAIApi
from replan.testing.script import ModelCall, ModelReply, Response, calls
from runtime.child import last_line

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
WANTED = {"pay": 2, "mail": 1}
"""What the book of a run has in the end: two equal payments, which are meant, and a mail."""
CALLS = sum(WANTED.values())
MOST_SECONDS = {"called": 0.0, "sending": 0.02, "committed": 0.02, "recorded": 0.0, "returned": 0.02}
"""The most seconds after a moment at which the agent is killed."""

MIN_SECONDS = 1e-5


class End(StrEnum):
    """What a run came to."""

    ONCE = "each once"
    PERSON = "a person is asked"
    """Nothing is there twice, and the agent was told that nobody can know."""
    TWICE = "twice"
    LOST = "lost"


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
    book: Mapping[str, int] = field(default_factory=dict)
    """How often each effect is there in the end."""
    said: str = ""
    """What the agent printed in the end, and the last line of its log."""

    def __str__(self) -> str:
        return f"{self.number}/{self.moment}/{self.seconds:.4f}"

    @property
    def end(self) -> End:
        if any(self.book.get(kind, 0) > wanted for kind, wanted in WANTED.items()):
            return End.TWICE
        if "OutcomeUnknown" in self.said or "DoubtfulCall" in self.said:
            return End.PERSON
        return End.ONCE if self.book == WANTED else End.LOST


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


async def play(kill: Kill, python: Path, folder: Path, model: BankModel) -> None:
    """Run an agent in a new `folder` until it is killed, run it again to its end, and fill in what came of it.

    Raises TrialFailed if it is not killed, or does not end.
    """
    while not await _is_killed(kill, python, folder, model):
        if kill.seconds < MIN_SECONDS:
            raise TrialFailed(f"{kill.framework} was not killed at {kill}.")
        kill.seconds /= 4  # it had ended before
        shutil.rmtree(folder)
    again = await _start(kill, python, folder, "never", model)
    said, _ = await asyncio.wait_for(again.communicate(), PATIENCE_SECONDS)
    kill.said = f"{said.decode()} {last_line(folder / 'never.log')}"
    with sqlite3.connect(folder / "book") as book:
        kill.book = Counter(row[0] for row in book.execute("SELECT kind FROM book"))
    if again.returncode and kill.end in (End.ONCE, End.LOST):
        raise TrialFailed(f"{kill.framework} failed after {kill}: {last_line(folder / 'never.log')}")


async def _is_killed(kill: Kill, python: Path, folder: Path, model: BankModel) -> bool:
    await asyncio.to_thread(folder.mkdir)
    process = await _start(kill, python, folder, str(kill), model)
    await asyncio.wait_for(process.communicate(), PATIENCE_SECONDS)
    if (process.returncode or 0) > 0:
        raise TrialFailed(f"{kill.framework} failed before {kill}: {last_line(folder / f'{kill.moment}.log')}")
    return process.returncode != 0


async def _start(kill: Kill, python: Path, folder: Path, until: str, model: BankModel) -> asyncio.subprocess.Process:
    command = [str(python), str(HERE / f"{kill.framework}_functions_agent.py"), "state", "effects.db", "book", until]
    paths = [str(HERE / "bare"), str(ROOT)] if kill.is_bare else [str(ROOT)]
    more = {"PYTHONPATH": os.pathsep.join(paths)}
    log = f"{until if until == 'never' else kill.moment}.log"
    return await start(command, folder, log, model, asyncio.subprocess.PIPE, more)


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
