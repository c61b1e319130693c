"""The one who strikes: random blows by a schedule, and the kills that the payment service asks for."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta

from temporalio.service import RPCError

from evals.chaos.blows import Blow, What
from evals.chaos.crowd import Crowd
from evals.chaos.fleet import Fleet
from evals.chaos.jobs import Job
from evals.chaos.resets import Point, reset
from evals.chaos.stage import Stage
from workflows.agent import AgentWorkflow

BREATH = 0.5
"""Seconds between two blows at the least."""
REFUSE_SECONDS = 1.5
WATCH_SECONDS = 0.05
TRIES = 20
UNDONE = 0.5
"""The share of cancelled tasks that are rolled back."""
CALL = timedelta(seconds=5)


@dataclass
class Killer:
    """Strikes at everything that one trial has."""

    stage: Stage
    crowd: Crowd
    fleet: Fleet
    changed: Callable[[], None]
    done: Counter[str] = field(default_factory=Counter)
    reset: set[str] = field(default_factory=set)
    """Ids of the tasks that were reset, or may have been."""

    async def strike(self, blows: Sequence[Blow]) -> None:
        """Deal out all blows as the tasks go on."""
        async with asyncio.TaskGroup() as lasting:
            for blow in blows:
                await self.crowd.reached(blow.at * len(self.crowd.jobs))
                match blow.what:
                    case What.FREEZE:
                        lasting.create_task(self.fleet.freeze(self.fleet.chosen(blow.draw)))
                        self._count(blow.what)
                    case What.FREEZE_ALL:
                        lasting.create_task(self.fleet.freeze_all())
                        self._count(blow.what)
                    case What.PRUNE:
                        lasting.create_task(self._prune())
                    case What.RESET_RUNNING | What.RESET_CLOSED:
                        lasting.create_task(self._reset(blow))
                    case _:
                        await self._strike(blow)
                        self._count(blow.what)
                await asyncio.sleep(BREATH)

    async def _strike(self, blow: Blow) -> None:
        match blow.what:
            case What.KILL:
                self.fleet.kill(self.fleet.chosen(blow.draw))
            case What.TERMINATE:
                self.fleet.terminate(self.fleet.chosen(blow.draw))
            case What.RESTART_SERVER:
                await self.stage.server.restart()
            case What.DROP:
                await self.stage.proxy.used()
                await self.stage.proxy.drop(REFUSE_SECONDS)
            case What.RESTART_DATABASE:
                await self.stage.databases.restart()
            case What.CANCEL:
                await self._cancel(blow)

    async def _prune(self) -> None:
        """Date all payloads of the store back, as workers with a wrong clock would have done, and prune them."""
        if not await self.stage.is_dated_back():
            return
        done = await self.fleet.starter("prune", "--older-than", "1", "--queue", self.crowd.queue)
        if done == 0:  # else the server or the workers were away just then
            self._count(What.PRUNE)

    async def _cancel(self, blow: Blow) -> None:
        """Ask for the end of a running task, with or without a rollback; it may end by itself first."""
        dice = random.Random(blow.draw)  # noqa: S311  # a trial, no secret
        job = self.crowd.chosen(dice, closed=False)
        if job is not None:
            with suppress(RPCError):
                if dice.random() < UNDONE:
                    await self.crowd.handle(job).signal(AgentWorkflow.undo_when_cancelled, rpc_timeout=CALL)
                await self.crowd.handle(job).cancel(rpc_timeout=CALL)

    async def _reset(self, blow: Blow) -> None:
        """Reset one of the tasks that has come far enough, and wait until it has ended again."""
        dice = random.Random(blow.draw)  # noqa: S311  # a trial, no secret
        for _ in range(TRIES):
            job = self.crowd.chosen(dice, closed=blow.what is What.RESET_CLOSED)
            if job is not None and job.id not in self.reset and await self._is_reset(job, dice):
                self._count(blow.what)
                await self.crowd.closed(job)
                return
            await asyncio.sleep(BREATH)

    async def _is_reset(self, job: Job, dice: random.Random) -> bool:
        self.reset.add(job.id)
        try:
            is_done = await reset(self.stage.client, job.id, dice.choice([*Point]), dice.random())
        except RPCError:  # the server is down, or the run ended meanwhile; perhaps only the answer was lost
            await self.crowd.closed(job)
            return False
        if not is_done:
            self.reset.remove(job.id)
        return is_done

    def _count(self, what: str) -> None:
        self.done[what] += 1
        self.changed()

    async def watch(self) -> None:
        """Kill each worker that the payment service names, before it gets its answer; until cancelled."""
        last = 0
        while True:
            for number, worker in self.stage.book.condemned(last):
                last = number
                if self.fleet.kill_process(worker):
                    self._count("kill on the service's word")
            await asyncio.sleep(WATCH_SECONDS)
