"""What a trial came to, counted from the journal of its world."""

import json
import sqlite3
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evals.effects_bench.model import SKIPPED


@dataclass
class Verdict:
    """What one trial came to."""

    arm: str
    suite: str
    task: str
    fault: str
    seed: int
    twice: int = 0
    """Effects that are there more often than the task asks for."""
    lost: int = 0
    """Effects that are missing although the arm says that all is done."""
    named: int = 0
    """Effects that are missing, and somebody is told: a person is asked, the end says it, or the arm failed."""
    wrong: int = 0
    """Effects that the task does not ask for."""
    futile: int = 0
    """Calls after the first that could not succeed: the credentials were refused already."""
    is_right: bool = False
    """Whether the world is as the task wants it."""
    hangs: bool = False
    restarts: int = 0
    seconds: float = 0.0
    characters: int = 0
    """What the model was sent."""


def judge(verdict: Verdict, journal: Path, told: Mapping[str, Any], said: str, *, is_failed: bool) -> None:
    """Fill in what the journal says.

    `said` is what the arm printed in the end, `told` is what its world tells. An arm that failed was noticed by whoever
    starts it again.
    """
    calls = [told["calls"][number] for number in told["changing"]]
    wanted = Counter(_name(call["tool"], call["args"]) for call in calls)
    with sqlite3.connect(journal) as book:
        rows = book.execute("SELECT tool, args, fault, changed FROM calls ORDER BY number").fetchall()
    made = Counter(_name(tool, json.loads(args)) for tool, args, _, changed in rows if changed)
    missing, named_tools = wanted - made, said.partition(SKIPPED)[2]
    is_told = is_failed or "a person is" in said  # a task that hangs has a column of its own
    verdict.twice = sum((made - wanted)[name] for name in wanted)
    verdict.wrong = sum(number for name, number in made.items() if name not in wanted)
    verdict.named = sum(
        number for name, number in missing.items() if is_told or json.loads(name)[0] in named_tools.split("\n")[0]
    )
    verdict.lost = sum(missing.values()) - verdict.named
    verdict.futile = max(0, sum(fault == "unauthorized" for _, _, fault, _ in rows) - 1)
    verdict.is_right = bool(told["is_right"])


def _name(tool: str, args: Mapping[str, Any]) -> str:
    return json.dumps([tool, args], sort_keys=True)
