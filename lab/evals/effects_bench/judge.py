"""What a trial came to, counted from the journal of its world."""

import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evals.effects_bench.model import SKIPPED

ANSWERED = ("done", "known", "not done")
"""What the journal says of a call that the world itself did not refuse."""
AGAIN = ("none", "limited", "conflict")
"""Faults after which the same call is right once more, and a caller can know it."""
AGAIN_BY_KEY = (*AGAIN, "unsent", "unavailable", "unanswered", "slow", "killed")
"""The same, of a caller whose calls have keys."""
LATE_SECONDS = 1.6
"""A world that answers later was too busy: the arms wait for two seconds."""
LOOKING = 2
"""How many turns a conflict needs: a read, and the call once more."""


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
    phantom: int = 0
    """Calls that the world refused because of the arm's own earlier one, which it knew nothing of."""
    asked: bool = False
    """Whether a person is asked, or the arm gave up."""
    needless: bool = False
    """Whether so, although the same call could have been made again: see `AGAIN`, `AGAIN_BY_KEY`."""
    replans: int = 0
    """Turns of the model beyond those that the task and the fault need."""
    is_right: bool = False
    """Whether the world is as the task wants it."""
    hangs: bool = False
    late: int = 0
    """Answers of a world that was too busy; such a trial says little."""
    broken: str = ""
    """Why the trial could not be played; it counts nowhere."""
    at: int = 0
    """The call at which the fault began."""
    load: float = 0.0
    """Of the machine, at the end."""
    restarts: int = 0
    seconds: float = 0.0
    turns: int = 0
    """How often the model was asked."""
    characters: int = 0
    """What the model was sent."""


def judge(
    verdict: Verdict,
    journal: Path,
    told: Mapping[str, Any],
    said: str,
    *,
    is_failed: bool,
    has_keys: bool = False,
    handed: int = 0,
) -> None:
    """Fill in what the journal says.

    `said` is what the arm printed in the end, `told` is what its world tells, `handed` of how many calls the model was
    told that somebody else takes care. An arm that failed was noticed by whoever starts it again; of one that hangs,
    nobody is told.
    """
    calls = [told["calls"][number] for number in told["changing"]]
    wanted = Counter(_name(call["tool"], call["args"]) for call in calls)
    with sqlite3.connect(journal) as book:
        rows = book.execute("SELECT tool, args, fault, outcome, changed, seconds FROM calls ORDER BY number").fetchall()
    made = Counter(_name(tool, json.loads(args)) for tool, args, _, _, changed, _ in rows if changed)
    missing, named_tools = wanted - made, said.partition(SKIPPED)[2]
    is_told = is_failed or "a person is" in said
    verdict.twice = sum((made - wanted)[name] for name in wanted)
    verdict.wrong = sum(number for name, number in made.items() if name not in wanted)
    verdict.named = sum(
        number for name, number in missing.items() if is_told or json.loads(name)[0] in named_tools.split("\n")[0]
    )
    verdict.lost = sum(missing.values()) - verdict.named
    verdict.futile = max(0, sum(fault == "unauthorized" for _, _, fault, *_ in rows) - 1)
    verdict.phantom = _phantoms(rows, wanted)
    verdict.asked = is_told or handed > 0 or bool(named_tools)
    verdict.needless = verdict.asked and verdict.fault in (AGAIN_BY_KEY if has_keys else AGAIN)
    verdict.late = sum(seconds > LATE_SECONDS and fault != "slow" for *_, fault, _, _, seconds in rows)
    verdict.replans = max(0, verdict.turns - len(told["calls"]) - 1 - LOOKING * (verdict.fault == "conflict"))
    verdict.is_right = bool(told["is_right"])


def _phantoms(rows: Iterable[tuple[str, str, str, str, int, float]], wanted: Counter[str]) -> int:
    """How many calls were refused after as many equal ones as the task asks for had been done."""
    made, found = Counter[str](), 0
    for tool, args, _, outcome, changed, _ in rows:
        name = _name(tool, json.loads(args))
        if name in wanted and outcome not in ANSWERED and made[name] >= wanted[name]:
            found += 1
        made[name] += changed
    return found


def _name(tool: str, args: Mapping[str, Any]) -> str:
    return json.dumps([tool, args], sort_keys=True)
