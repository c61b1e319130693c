"""The random part: many tasks, a fleet that serves them, and blows until all of them have ended."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from typing import NamedTuple

from evals.chaos.account import Account
from evals.chaos.audit import audit
from evals.chaos.blows import Blow
from evals.chaos.crowd import Crowd
from evals.chaos.jobs import Job
from evals.chaos.killer import Killer
from evals.chaos.stage import Stage

WORKERS = 3
AT_ONCE = 20
"""Tasks that run at the same time."""
FOLLOWERS = 6
"""Who ask all the time how far a task is."""
STUCK_SECONDS = 180.0
"""A trial in which no task ends for so long is given up."""


class Result(NamedTuple):
    """What became of it."""

    account: Account
    blows: Counter[str]
    workers: Counter[str]
    stuck: str


class Trial:
    """One run of the random part."""

    def __init__(self, stage: Stage, jobs: Sequence[Job], blows: Sequence[Blow], changed: Callable[["Trial"], None]):
        """Call `changed` whenever a task has ended or a blow has fallen."""
        self.stage = stage
        self._blows = blows
        self.crowd = Crowd(stage.client, "chaos", jobs, AT_ONCE, lambda: changed(self))
        self.fleet = stage.fleet("chaos", WORKERS)
        self.killer = Killer(stage, self.crowd, self.fleet, lambda: changed(self))

    async def run(self) -> Result:
        """Run all tasks while the blows fall, and make the account.

        Raises:
            WorkerUnavailable: the workers did not start.
        """
        async with self.fleet:
            stuck = await self._until_over()
        stage = self.stage
        account = await audit(self.crowd, stage.book, stage.databases.bank, stage.places.notes, self.killer.reset)
        return Result(account, self.killer.done, self.fleet.done, stuck)

    async def _until_over(self) -> str:
        """Run tasks and blows; why it was given up, where it was."""
        work = asyncio.gather(self.crowd.run(), self.killer.strike(self._blows))
        watching = [asyncio.create_task(one) for one in (self.killer.watch(), *self._followers())]
        try:
            while not work.done():
                before = len(self.crowd.finished)
                await asyncio.wait([work], timeout=STUCK_SECONDS)
                if not work.done() and len(self.crowd.finished) == before:
                    ids = ", ".join(job.id for job in self.crowd.running)
                    return f"no task ended for {STUCK_SECONDS:g} s; still running: {ids or 'none'}"
            await work
            return ""
        finally:
            work.cancel()
            for one in watching:
                one.cancel()

    def _followers(self) -> list[Coroutine[None, None, None]]:
        return [self.crowd.follow() for _ in range(FOLLOWERS)]
