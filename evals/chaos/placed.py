"""Kills in chosen places: three for each effect at each of its points, one task each, and what became of them."""

import asyncio
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from activities.boundary.failpoints import Point
from evals.chaos import effects
from evals.chaos.cell import Cell, Expected
from evals.chaos.crowd import Crowd, outcome
from evals.chaos.fleet import Fleet, Worker, WorkerUnavailable
from evals.chaos.histories import Steps
from evals.chaos.jobs import Job, single
from evals.chaos.stage import Stage

AFTER_ANSWER = "after_answer"
"""The fifth point: the server has the answer, and the worker dies before the next step."""
POINTS = (*Point, AFTER_ANSWER)
TIMES = 3
LOOK_SECONDS = 0.05
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
"""The kinds that are hit, and their effects."""
ONCE = Expected(statuses=("completed",), effects=(1,))
BLINDLY = {
    Point.BEFORE_CLAIM: Expected(statuses=("escalated",), effects=(0,)),
    Point.AFTER_CLAIM: Expected(statuses=("escalated",), effects=(0,)),
    Point.BEFORE_COMMIT: Expected(statuses=("escalated",), effects=(1,)),
    Point.AFTER_COMMIT: Expected(statuses=("escalated",), effects=(1,)),
}
"""A call that nothing can find out about is left to a person, whatever really happened."""


def expected(kind: str, point: str) -> Expected:
    """What is right for a kind that is hit at a point."""
    if kind == "get_rate":
        return Expected(statuses=("completed",))
    return BLINDLY.get(Point(point), ONCE) if kind == "pay_blindly" and point != AFTER_ANSWER else ONCE


class Hit(NamedTuple):
    """One kill and the task that it hits."""

    kind: str
    point: str
    job: Job


def hits(seed: int, points: Sequence[str] = POINTS, times: int = TIMES) -> list[Hit]:
    """All kills in an order in which no kind follows itself."""
    return [
        Hit(kind, point, single(f"placed-{seed}-{kind}-{point}-{number}".replace("_", "-"), kind))
        for point in points
        for number in range(1, times + 1)
        for kind in KINDS
    ]


@dataclass
class Placed:
    """Carries the kills out, in some chains at the same time."""

    stage: Stage
    changed: Callable[[], None]
    """Called after each kill."""
    _given_up: dict[str, str] = field(default_factory=dict)
    """Why a task was not killed as it should, or did not end, by its id."""

    async def run(self, wanted: Sequence[Hit], chains: int) -> list[Cell]:
        """Kill, wait until all tasks have ended, and say what became of them."""
        length = -(-len(wanted) // chains)
        parts = [wanted[begin : begin + length] for begin in range(0, len(wanted), length)]
        async with asyncio.TaskGroup() as running:
            for number, part in enumerate(parts, 1):
                running.create_task(self._chain(f"placed-{number}", part))
        return await self._cells(wanted)

    async def _chain(self, queue: str, part: Sequence[Hit]) -> None:
        """Carry out a part of the kills; where one does not succeed, note why and leave the rest."""
        done = list[Hit]()
        try:
            await self._kill_all(queue, part, done)
        except (WorkerUnavailable, TimeoutError) as problem:
            why = f"given up: {problem or type(problem).__name__}"
            self._given_up |= {hit.job.id: why for hit in part if hit not in done}

    async def _kill_all(self, queue: str, part: Sequence[Hit], done: list[Hit]) -> None:
        """Each victim serves the task before its own to its end, and then dies of its own; `done` are the ended ones.

        Raises:
            WorkerUnavailable: a worker did not start.
            TimeoutError: a victim lives on, or a task does not end.
        """
        crowd = Crowd(self.stage.client, queue, [hit.job for hit in part], 1, lambda: None)
        async with self.stage.fleet(queue, 0) as fleet:
            before = None
            for hit in (*part, None):
                worker = await self._victim(fleet, hit)
                if before is not None:
                    await asyncio.wait_for(crowd.closed(before.job), END_SECONDS)
                    done.append(before)
                if hit is None:
                    fleet.terminate(worker)
                    return
                await crowd.start(hit.job)
                await self._death(crowd, hit, worker)
                before = hit
                self.changed()

    async def _victim(self, fleet: Fleet, hit: Hit | None) -> Worker:
        breaks = (
            [] if hit is None or hit.point == AFTER_ANSWER else ["--dev", "--break", f"{hit.kind}=die@{hit.point}:1"]
        )
        return await fleet.hire(*breaks)

    async def _death(self, crowd: Crowd, hit: Hit, victim: Worker) -> None:
        """Wait until the victim has died; where it does not do so by itself, of our hand after its answer.

        Raises:
            TimeoutError: it lives on.
        """
        async with asyncio.timeout(DEATH_SECONDS):
            if hit.point == AFTER_ANSWER:
                await crowd.completed(hit.job, "s1")
                victim.send(signal.SIGKILL)
            while victim.is_alive:  # noqa: ASYNC110  # no event tells
                await asyncio.sleep(LOOK_SECONDS)

    async def _cells(self, wanted: Sequence[Hit]) -> list[Cell]:
        happened = await effects.read(self.stage.databases.bank, self.stage.book)
        crowd = Crowd(self.stage.client, "", [], 1, lambda: None)
        cells = dict[tuple[str, str], Cell]()
        for kind, point, job in wanted:
            empty = Cell(effect=KINDS[kind], point=point, expected=expected(kind, point))
            cell = cells.setdefault((kind, point), empty)
            if job.id in self._given_up:
                cell.remark = self._given_up[job.id]
                continue
            ended = await outcome(crowd.handle(job))
            cell.ended.append(str(ended.status) if ended else "unfinished")
            cell.effects.append(happened.count(kind, job.reference("s1")))
            events = (await crowd.handle(job).fetch_history()).events
            if again := Steps.of(events).again:
                cell.remark = f"ran again: {sorted(again)}"
        order = list(KINDS.values())
        return sorted(cells.values(), key=lambda cell: (order.index(cell.effect), POINTS.index(cell.point)))
