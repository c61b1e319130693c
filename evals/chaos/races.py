"""Two workers with one activity: both at the same moment, and one that was stopped where nothing can hold it; and one
worker whose thread nothing can stop."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from activities.boundary.failpoints import Point
from evals.chaos import effects
from evals.chaos.cell import Cell, Expected
from evals.chaos.crowd import Crowd, outcome
from evals.chaos.fleet import Worker, WorkerUnavailable
from evals.chaos.jobs import Job, single
from evals.chaos.stage import Stage

TWICE = {"transfer": "transactional", "pay_patiently": "keyed"}
"""The kinds that two workers are given at once; a retry of another one is not given to anybody."""
LATE = (Point.BEFORE_CLAIM, Point.AFTER_CLAIM)
OVERDUE = {"pay_late": "completed", "pay_too_late": "escalated"}
"""The kinds whose threads outlive their timeouts, and how their tasks end."""
COUNT = len(TWICE) + len(LATE) + 1 + len(OVERDUE)
"""How many cells there are."""
STOP_SECONDS = 60.0
END_SECONDS = 120.0
LOOK_SECONDS = 0.05
CUT_SECONDS = 0.1
APART_SECONDS = 1.5
"""How long two workers hear nothing of the server, and so of each other: neither learns that it is not the only one."""
LAND_SECONDS = 3.0
"""How long a call that was let go may take."""


async def twice(stage: Stage, seed: int, kind: str) -> Cell:
    """Freeze a worker before the claim, freeze the one that gets the retry there, too, and let both go at once."""
    race = Race.of(stage, f"twice-{kind}-{seed}", kind)
    cell = Cell(effect=TWICE[kind], point="twice at once", expected=Expected(statuses=("completed",), effects=(1,)))
    breaks = ["--dev", "--break", f"{kind}=freeze@{Point.BEFORE_CLAIM}:1"]
    async with race.told(cell), stage.fleet(race.queue, 0) as fleet:
        first = await race.stopped(await fleet.hire(*breaks), start=True)
        second = await race.stopped(await fleet.hire(*breaks))
        apart = asyncio.create_task(stage.proxy.drop(APART_SECONDS))
        await asyncio.sleep(0)
        for worker in (first, second):
            worker.send(signal.SIGCONT)
        await apart
        await race.over()
        cell.remark = _unlike(sorted(_said(worker) for worker in (first, second)), kind)
    return cell


def _said(worker: Worker) -> str:
    """How the one call of a worker ended, by its log."""
    lines = [json.loads(line) for line in worker.log.read_text().splitlines() if line.startswith("{")]
    ends = [line["outcome"] for line in lines if line.get("event") == "step" and line.get("step") == "s1"]
    return ", ".join(ends) or "nothing"


def _unlike(said: Sequence[str], kind: str) -> str:
    """What is wrong with two answers; the ledger's second answer is the row of the first."""
    right = ["ok", "replayed"] if kind == "transfer" else ["ok", "ok"]
    return "" if said == right else f"the two answers were {said}"


async def late(stage: Stage, seed: int, point: Point) -> Cell:
    """Freeze an unkeyed call before it is made until another worker has made it, and let it go then."""
    expected = Expected(statuses=("completed",), effects=(1,))
    cell = Cell(effect="unkeyed, with reconcile", point=f"frozen {point}, let go late", expected=expected)
    race = Race.of(stage, f"late-{point}-{seed}", "pay_once")
    return await _let_go_late(race, cell, "--dev", "--break", f"pay_once=freeze@{point}:1")


async def frozen(stage: Stage, seed: int) -> Cell:
    """Stop an unkeyed call after its last look at the clock, and let it go when the task is over."""
    expected = Expected(statuses=("completed",), effects=(1, 2))
    cell = Cell(effect="unkeyed", point="stopped between check and send", expected=expected, is_apart=True)
    return await _let_go_late(Race.of(stage, f"frozen-{seed}", "pay_frozen"), cell)


async def overdue(stage: Stage, seed: int, kind: str) -> Cell:
    """Let a thread block past its timeout, and past the limit of its attempt where it is to be too late."""
    expected = Expected(statuses=(OVERDUE[kind],), effects=(1,))
    where = "past its limit" if OVERDUE[kind] == "escalated" else "past its timeout"
    cell = Cell(effect="unkeyed, in a thread", point=where, expected=expected)
    race = Race.of(stage, f"overdue-{kind}-{seed}", kind)
    async with race.told(cell), stage.fleet(race.queue, 1):
        await race.crowd.start(race.job)
        await race.over()
    return cell


async def _let_go_late(race: "Race", cell: Cell, *breaks: str) -> Cell:
    async with race.told(cell), race.stage.fleet(race.queue, 0) as fleet:
        first = await race.stopped(await fleet.hire(*breaks), start=True)
        await fleet.hire()
        await race.closed()
        first.send(signal.SIGCONT)
        await race.over()
    return cell


@dataclass(frozen=True)
class Race:
    """One task of one step, which is watched closely."""

    stage: Stage
    kind: str
    job: Job
    crowd: Crowd

    @classmethod
    def of(cls, stage: Stage, id: str, kind: str, queue: str | None = None) -> "Race":
        """The task `id` of a kind; on a queue of its own where none is named."""
        job = single(id.replace("_", "-"), kind)
        return cls(stage, kind, job, Crowd(stage.client, queue or job.id, [job], 1, lambda: None))

    @property
    def queue(self) -> str:
        """Of its workers."""
        return self.crowd.queue

    async def stopped(self, worker: Worker, *, start: bool = False) -> Worker:
        """Wait until a worker has frozen itself, and cut its connection, so that the server gives it nothing more.

        Raises:
            TimeoutError: it did not freeze.
        """
        if start:
            await self.crowd.start(self.job)
        async with asyncio.timeout(STOP_SECONDS):
            while not worker.is_stopped:  # noqa: ASYNC110  # no event tells
                await asyncio.sleep(LOOK_SECONDS)
        await self.stage.proxy.drop(CUT_SECONDS)
        return worker

    async def closed(self) -> None:
        """Wait until the task has ended. Raises TimeoutError."""
        await asyncio.wait_for(self.crowd.closed(self.job), END_SECONDS)

    async def over(self) -> None:
        """Wait until the task has ended, and all that was let go has landed. Raises TimeoutError."""
        await self.closed()
        await asyncio.sleep(LAND_SECONDS)

    @asynccontextmanager
    async def told(self, cell: Cell) -> AsyncIterator[None]:
        """Add to the cell what became of the task; where the race is not over in time, that is what is wrong."""
        try:
            yield
        except (TimeoutError, WorkerUnavailable) as problem:
            cell.remark = f"given up: {problem or type(problem).__name__}"
            return
        happened = await effects.read(self.stage.databases.bank, self.stage.book)
        ended = await outcome(self.crowd.handle(self.job))
        cell.ended.append(str(ended.status) if ended else "unfinished")
        cell.effects.append(happened.count(self.kind, self.job.reference("s1")))


async def races(stage: Stage, seed: int, changed: Callable[[], None]) -> list[Cell]:
    """All of them, `changed` called after each."""
    cells = list[Cell]()
    doubled = (twice(stage, seed, kind) for kind in TWICE)
    blocked = (overdue(stage, seed, kind) for kind in OVERDUE)
    for race in (*doubled, *(late(stage, seed, point) for point in LATE), frozen(stage, seed), *blocked):
        cells.append(await race)
        changed()
    return cells
