"""The situations with functions of `replan.effects`: each process of an agent is a forked child, which is killed."""

import asyncio
import json
import os
import random
import shutil
import signal
import sqlite3
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from enum import StrEnum
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from evals.situations.situation import SITUATIONS, Act, Call, End, Situation, end_of
from replan.effects import DoubtfulCall, Effects, KeyConflict, OutcomeUnknown

SESSION = "order-17"
SETTLE_SECONDS = 0.02
"""Between the two looks of `reconcile=`; no call of these agents arrives later."""


class Names(StrEnum):
    """What a call is recognised by."""

    NOTHING = "no keys"
    KEYS = "the caller's keys"
    IDS = "ids of a framework"


class Arm(NamedTuple):
    """How the function is declared and called."""

    names: Names
    has_reconcile: bool
    is_told: bool = False
    """Whether it is told what the exception of a rejection means."""

    def __str__(self) -> str:
        means = ", raises=" if self.is_told else ""
        return f"functions, {self.names}{means}, {'with' if self.has_reconcile else 'without'} reconcile"


ARMS = [Arm(names, has_reconcile) for names in Names for has_reconcile in (True, False)]
TOLD = [Arm(names, has_reconcile, is_told=True) for names in Names for has_reconcile in (True, False)]
"""The arms for the rejected call."""


class Conflict(Exception):
    """The service rejects the call; no table knows this class."""


class World:
    """The service's own book of charges."""

    def __init__(self, file: Path) -> None:
        self._file = file
        with self._opened() as book:
            book.execute("CREATE TABLE charges (customer TEXT, amount INTEGER, note TEXT)")

    def charge(self, customer: str, amount: int, note: str) -> None:
        with self._opened() as book:
            book.execute("INSERT INTO charges VALUES (?, ?, ?)", (customer, amount, note))

    def count(self, **wanted: Any) -> int:
        """How many charges have these values."""
        holds = " AND ".join(f"{name} = :{name}" for name in wanted) or "1"
        with self._opened() as book:
            return int(book.execute(f"SELECT count(*) FROM charges WHERE {holds}", wanted).fetchone()[0])  # noqa: S608

    def _opened(self) -> sqlite3.Connection:
        return sqlite3.connect(self._file, timeout=30)


class Agent:
    """One process of an agent."""

    def __init__(self, arm: Arm, folder: Path, world: World, *, is_async: bool) -> None:
        self.effects = Effects(str(folder / "effects.db"), SESSION, on_joined=lambda _: None)
        self._arm, self._world, self._is_async = arm, world, is_async
        self._act = Act.OK
        options: dict[str, Any] = {"settle": SETTLE_SECONDS}
        if arm.has_reconcile:
            options["reconcile"] = self._find
        if arm.is_told:
            options |= {"raises": {Conflict: "conflict"}, "requests": 1}
        function: Callable[..., Any] = self._charge_async if is_async else self._charge_now
        self._charge: Callable[..., Any] = self.effects.unkeyed(**options)(function)

    def call(self, call: Call, number: int) -> str:
        """Make a call; returns the answer, or the name of the error."""
        self._act = call.act
        try:
            with self._named(call, number):
                given = {"customer": "cus_1", "amount": 500, "note": call.note}
                answer = self._charge(**given)
                return str(asyncio.run(answer) if self._is_async else answer)
        except Exception as error:
            return type(error).__name__

    def _named(self, call: Call, number: int) -> AbstractContextManager[None]:
        # A reworded call comes from another turn of the model, so it has another id; a caller's key is about the work.
        first = 0 if call.is_again else number
        match self._arm.names:
            case Names.NOTHING:
                return nullcontext()
            case Names.KEYS:
                return self.effects.scope(key=f"refund-{first}")
            case Names.IDS:
                is_reworded = call.note == "your refund is approved"
                return self.effects.scope(run="run-1", call=f"call_{number if is_reworded else first}")

    async def _charge_async(self, customer: str, amount: int, note: str) -> dict[str, int]:
        await asyncio.sleep(0)
        return self._charge_now(customer, amount, note)

    def _charge_now(self, customer: str, amount: int, note: str) -> dict[str, int]:
        match self._act:
            case Act.DIE_BEFORE:
                _die()
            case Act.REJECT:
                raise Conflict("409 the price moved")
        self._world.charge(customer, amount, note)
        match self._act:
            case Act.DIE_AFTER:
                _die()
            case Act.LOSE_ANSWER:
                raise TimeoutError("no answer")
        return {"charged": amount}

    def _find(self, customer: str, amount: int, note: str) -> dict[str, int] | None:
        found = self._world.count(customer=customer, amount=amount, note=note)
        return {"charged": amount} if found else None


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


UNKNOWN = {error.__name__ for error in (OutcomeUnknown, DoubtfulCall, KeyConflict)}
"""What an agent is told where a person decides."""


def play(situation: Situation, arm: Arm, folder: Path, template: Path, draw: random.Random) -> End:
    """What a run of a situation comes to, in a new `folder`; `template` is an empty store."""
    folder.mkdir(parents=True)
    shutil.copy(template, folder / "effects.db")
    world, is_async = World(folder / "world.db"), draw.random() < 0.5
    is_new = draw.random() < 0.5 if situation.in_new_process is None else situation.in_new_process
    answers = list[str]()
    for part in _processes(situation.calls, is_new=is_new):
        answers += _forked(partial(_run, partial(Agent, arm, folder, world, is_async=is_async), part, answers))
    asked = UNKNOWN & {*answers[-1:]}
    return end_of(world.count(), situation.wanted, is_asked=bool(asked))


def _processes(calls: Sequence[Call], *, is_new: bool) -> Iterator[list[tuple[int, Call]]]:
    numbered = [*zip(count(), calls, strict=False)]
    if is_new:
        yield numbered[:1]
        yield numbered[1:]
    else:
        yield numbered


def _run(begin: Callable[[], Agent], calls: Sequence[tuple[int, Call]], before: Sequence[str]) -> list[str]:
    """Make calls in a process; one that is meant as the first one is made only if that has no answer yet."""
    agent, answers = begin(), list[str]()
    for number, call in calls:
        told = [*before, *answers]
        if call.is_again and any(answer.startswith("{") for answer in told):
            break
        answers.append(agent.call(call, number))
    agent.effects.close()
    return answers


def _forked(work: Callable[[], list[str]]) -> list[str]:
    """What `work` returns in a forked child; nothing if the child is killed."""
    reader, writer = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if not child:
        try:
            os.write(writer, json.dumps(work()).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    if not text and not os.WIFSIGNALED(status):
        raise RuntimeError("An agent's process failed.")
    return list(json.loads(text)) if text else []


def empty_store(folder: Path) -> Path:
    """A store without a call, made by another process: whoever forks has no open store."""
    file = folder / "template.db"

    def make() -> list[str]:
        with Effects(str(file)):
            return [str(file)]

    (_,) = _forked(make)
    return file


def cell(number: int, arm: Arm, runs: int, folder: Path, template: Path, seed: int) -> Counter[End]:
    """What so many runs of a situation come to."""
    draw = random.Random(f"{seed} {number} {arm}")  # noqa: S311  # a trial, no secret
    ends = Counter[End]()
    for run in range(runs):
        place = folder / f"{number}-{arm.names.name}-{arm.has_reconcile}-{arm.is_told}-{run}"
        ends[play(SITUATIONS[number], arm, place, template, draw)] += 1
        shutil.rmtree(place)
    return ends
