"""Kills at chosen points: three for each kind at each of its points, one task each, and what became of them."""

import asyncio
import signal
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pydantic import BaseModel, computed_field

from activities.boundary.failpoints import Failpoint
from evals.chaos.fleet import Worker, WorkerUnavailable
from evals.chaos.stage import Stage
from evals.chaos.tasks import LAST_STEP, Job, Steps, TaskRunner, outcome, single
from evals.chaos.world import read_effects


class Expected(BaseModel):
    """How a task ends, and how often its effect happens."""

    statuses: tuple[str, ...]
    effects: tuple[int, ...] = ()
    """The right counts; empty for a kind without effect."""

    def __str__(self) -> str:
        counts = " or ".join(map(str, self.effects)) or "-"
        return f"{' or '.join(self.statuses)}, {counts}"


class Cell(BaseModel):
    """One line of the table: what is expected of a kind at a point, and what its tasks came to."""

    effect: str
    """The kind's effect, and more where that matters."""
    point: str
    expected: Expected
    ended: list[str] = []
    """The status of each task."""
    effects: list[int | None] = []
    """How often the effect of each task happened."""
    remark: str = ""
    """What else is wrong; empty if nothing is."""
    is_apart: bool = False
    """Whether it shows something that no promise covers."""

    @computed_field  # type: ignore[prop-decorator]  # as pydantic's own pages have it
    @property
    def is_right(self) -> bool:
        """Whether every task ended as expected, with the expected effects."""
        counts = [count for count in self.effects if count is not None]
        as_expected = set(self.ended) <= set(self.expected.statuses) and bool(self.ended)
        return as_expected and set(counts) <= set(self.expected.effects) and not self.remark

    @property
    def row(self) -> tuple[str, ...]:
        """The line of the table."""
        counts = " ".join("-" if count is None else str(count) for count in self.effects)
        ended = " ".join(f"{number} x {status}" for status, number in Counter(self.ended).items())
        verdict = "apart" if self.is_apart and self.is_right else "right" if self.is_right else "WRONG"
        return self.effect, self.point, ended, counts, str(self.expected), verdict

    def __str__(self) -> str:
        return f"{self.effect} {self.point}: {self.ended}, effects {self.effects}, not {self.expected}. {self.remark}"


AFTER_ANSWER = "after_answer"
"""A point of the harness: the server has the answer, and the worker dies before the next step."""
POINTS = (*Failpoint, AFTER_ANSWER)
TIMES = 3
POLL_SECONDS = 0.05
DEATH_SECONDS = 60.0
END_SECONDS = 120.0

KINDS = {
    "get_rate": "read",
    "set_limit": "idempotent",
    "pay": "keyed",
    "transfer": "transactional",
    "pay_once": "unkeyed, with reconcile",
    "pay_blindly": "unkeyed, without",
}
"""The kinds whose workers are killed, and their effects."""
ONCE = Expected(statuses=("completed",), effects=(1,))
BEFORE_CALL = (Failpoint.BEFORE_CLAIM, Failpoint.AFTER_CLAIM)


def expected(kind: str, point: str) -> Expected:
    """The right outcome of a kind whose worker is killed at a point."""
    if kind == "get_rate":
        return Expected(statuses=("completed",))
    if kind == "pay_blindly" and point not in (AFTER_ANSWER, Failpoint.AFTER_COMMIT):  # the ledger has no result
        return Expected(statuses=("escalated",), effects=(0 if point in BEFORE_CALL else 1,))
    return ONCE


class Kill(NamedTuple):
    """One kill, and the task that it disrupts."""

    kind: str
    point: str
    job: Job


def placed_kills(seed: int, points: Sequence[str] = POINTS, times: int = TIMES) -> list[Kill]:
    """All kills, in an order in which no kind follows itself."""
    return [
        Kill(kind, point, single(f"placed-{seed}-{kind}-{point}-{number}".replace("_", "-"), kind))
        for point in points
        for number in range(1, times + 1)
        for kind in KINDS
    ]


@dataclass
class PlacedKills:
    """Makes the kills, in several chains at the same time."""

    stage: Stage
    changed: Callable[[], None]
    """Called after each kill."""
    _given_up: dict[str, str] = field(default_factory=dict)
    """Why a kill failed or a task did not end, by the task's id."""

    async def run(self, kills: Sequence[Kill], chains: int) -> list[Cell]:
        """Make the kills, wait until all tasks have ended, and report what became of them."""
        length = -(-len(kills) // chains)
        parts = [kills[begin : begin + length] for begin in range(0, len(kills), length)]
        async with asyncio.TaskGroup() as running:
            for number, part in enumerate(parts, 1):
                running.create_task(self._chain(f"placed-{number}", part))
        return await self._cells(kills)

    async def _chain(self, queue: str, part: Sequence[Kill]) -> None:
        """Make a part of the kills; if one fails, record why and leave the rest."""
        done = list[Kill]()
        try:
            await self._kill_all(queue, part, done)
        except (WorkerUnavailable, TimeoutError) as problem:
            why = f"given up: {str(problem) or type(problem).__name__}"
            self._given_up |= {kill.job.id: why for kill in part if kill not in done}

    async def _kill_all(self, queue: str, part: Sequence[Kill], done: list[Kill]) -> None:
        """Each worker serves the task of the kill before to its end, and then dies in its own; fills `done`.

        Raises:
            WorkerUnavailable: a worker did not start.
            TimeoutError: a worker does not die, or a task does not end.
        """
        runner = TaskRunner(self.stage.client, queue, [kill.job for kill in part], 1, lambda: None)
        async with self.stage.fleet(queue, 0) as fleet:
            before = None
            for kill in (*part, None):
                # Each task ends with a step of this kind, at which a worker with the failpoint would die.
                is_apart = before is not None and kill is not None and kill.kind == LAST_STEP
                worker = await fleet.add(*([] if is_apart else self._failpoint(kill)))
                if before is not None:
                    await asyncio.wait_for(runner.wait_closed(before.job), END_SECONDS)
                    done.append(before)
                if is_apart:
                    fleet.terminate(worker)
                    worker = await fleet.add(*self._failpoint(kill))
                if kill is None:
                    fleet.terminate(worker)
                    return
                await runner.start(kill.job)
                await self._death(runner, kill, worker)
                before = kill
                self.changed()

    def _failpoint(self, kill: Kill | None) -> list[str]:
        if kill is None or kill.point == AFTER_ANSWER:
            return []
        return ["--dev", "--break", f"{kill.kind}=die@{kill.point}:1"]

    async def _death(self, runner: TaskRunner, kill: Kill, worker: Worker) -> None:
        """Wait until the worker has died at its failpoint; kill it if the point is after the answer.

        Raises:
            TimeoutError: it does not die.
        """
        async with asyncio.timeout(DEATH_SECONDS):
            if kill.point == AFTER_ANSWER:
                await runner.wait_completed(kill.job, "s1")
                worker.send(signal.SIGKILL)
            while worker.is_alive:  # noqa: ASYNC110  # no event tells
                await asyncio.sleep(POLL_SECONDS)

    async def _cells(self, kills: Sequence[Kill]) -> list[Cell]:
        happened = await read_effects(self.stage.databases.bank, self.stage.book)
        runner = TaskRunner(self.stage.client, "", [], 1, lambda: None)
        cells = dict[tuple[str, str], Cell]()
        for kind, point, job in kills:
            empty = Cell(effect=KINDS[kind], point=point, expected=expected(kind, point))
            cell = cells.setdefault((kind, point), empty)
            if job.id in self._given_up:
                cell.remark = self._given_up[job.id]
                continue
            ended = await outcome(runner.handle(job))
            cell.ended.append(str(ended.status) if ended else "unfinished")
            cell.effects.append(happened.count(kind, job.reference("s1")))
            events = (await runner.handle(job).fetch_history()).events
            if again := Steps.of(events).again:
                cell.remark = f"ran again: {sorted(again)}"
        order = list(KINDS.values())
        return sorted(cells.values(), key=lambda cell: (order.index(cell.effect), POINTS.index(cell.point)))
