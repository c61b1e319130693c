"""The random part: many tasks, workers that serve them, and disruptions until all of them have ended."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import NamedTuple

from temporalio.service import RPCError

from evals.chaos.account import Account, audit
from evals.chaos.fleet import Fleet
from evals.chaos.stage import Stage
from evals.chaos.tasks import Job, ResetPoint, TaskRunner, reset
from workflows.agent import AgentWorkflow

BEGIN, END = 0.02, 0.92
"""The share of the tasks that have ended at the first disruption, and at the last."""
PAUSE_SECONDS = 0.5
"""The least time between two disruptions."""
REFUSE_SECONDS = 1.5
WATCH_SECONDS = 0.05
TRIES = 20
ROLLED_BACK = 0.5
"""The share of cancelled tasks that are rolled back."""
RPC_TIMEOUT = timedelta(seconds=5)
WORKERS = 3
AT_ONCE = 20
"""Tasks that run at the same time."""
FOLLOWERS = 6
"""How many ask all the time how far a task is."""
STUCK_SECONDS = 180.0
"""A trial in which no task ends for so long is given up."""


class Action(StrEnum):
    """What a disruption does."""

    KILL = "kill"
    FREEZE = "freeze"
    FREEZE_ALL = "freeze all workers"
    TERMINATE = "terminate"
    RESTART_SERVER = "restart the server"
    DROP = "drop the connections"
    RESTART_DATABASE = "restart the database"
    RESET_RUNNING = "reset a running task"
    RESET_CLOSED = "reset a closed task"
    CANCEL = "cancel a running task"
    PRUNE = "prune the store"


class Disruption(NamedTuple):
    """One disruption of a schedule."""

    at: float
    """The share of the tasks that have ended before."""
    action: Action
    draw: float
    """Chooses a worker or a task; from [0, 1)."""


def amounts(kills: int, restarts: int, drops: int, *, has_database: bool) -> Mapping[Action, int]:
    """How often each action is done: the rest follows from these three."""
    few = -(-kills // 6)
    return {
        Action.KILL: kills,
        Action.FREEZE: few,
        Action.FREEZE_ALL: -(-few // 4),
        Action.TERMINATE: few,
        Action.RESTART_SERVER: restarts,
        Action.DROP: drops,
        Action.RESTART_DATABASE: 3 * has_database,
        Action.RESET_RUNNING: few,
        Action.RESET_CLOSED: few,
        Action.CANCEL: few,
        Action.PRUNE: few,
    }


def schedule(amounts: Mapping[Action, int], seed: int) -> Sequence[Disruption]:
    """All disruptions in their order, each action spread about evenly over the trial."""
    dice = random.Random(f"blows/{seed}")  # noqa: S311  # a trial, no secret
    return sorted(
        Disruption(BEGIN + (END - BEGIN) * (number + dice.random()) / count, action, dice.random())
        for action, count in amounts.items()
        for number in range(count)
    )


@dataclass
class Disruptor:
    """Disrupts one trial: by its schedule, and as the payment service asks."""

    stage: Stage
    runner: TaskRunner
    fleet: Fleet
    changed: Callable[[], None]
    done: Counter[str] = field(default_factory=Counter)
    reset: set[str] = field(default_factory=set)
    """Ids of the tasks that were reset, or may have been."""

    async def run(self, disruptions: Sequence[Disruption]) -> None:
        """Make all disruptions as the tasks go on."""
        async with asyncio.TaskGroup() as lasting:
            for disruption in disruptions:
                await self.runner.wait_finished(disruption.at * len(self.runner.jobs))
                match disruption.action:
                    case Action.FREEZE:
                        lasting.create_task(self.fleet.freeze(self.fleet.chosen(disruption.draw)))
                        self._count(disruption.action)
                    case Action.FREEZE_ALL:
                        lasting.create_task(self.fleet.freeze_all())
                        self._count(disruption.action)
                    case Action.PRUNE:
                        lasting.create_task(self._prune())
                    case Action.RESET_RUNNING | Action.RESET_CLOSED:
                        lasting.create_task(self._reset(disruption))
                    case _:
                        await self._disrupt(disruption)
                        self._count(disruption.action)
                await asyncio.sleep(PAUSE_SECONDS)

    async def watch(self) -> None:
        """Kill each worker that the payment service names, before it gets its answer; until cancelled."""
        last = 0
        while True:
            for number, worker in self.stage.book.workers_to_kill(last):
                last = number
                if self.fleet.kill_process(worker):
                    self._count("kill at the service's request")
            await asyncio.sleep(WATCH_SECONDS)

    async def _disrupt(self, disruption: Disruption) -> None:
        match disruption.action:
            case Action.KILL:
                self.fleet.kill(self.fleet.chosen(disruption.draw))
            case Action.TERMINATE:
                self.fleet.terminate(self.fleet.chosen(disruption.draw))
            case Action.RESTART_SERVER:
                await self.stage.server.restart()
            case Action.DROP:
                await self.stage.proxy.used()
                await self.stage.proxy.drop(REFUSE_SECONDS)
            case Action.RESTART_DATABASE:
                await self.stage.databases.restart()
            case Action.CANCEL:
                await self._cancel(disruption)

    async def _prune(self) -> None:
        """Make all payloads in the store old, as workers with a wrong clock would have, and prune them."""
        if not await self.stage.date_payloads_back():
            return
        code = await self.fleet.starter("prune", "--older-than", "1", "--queue", self.runner.queue)
        if code == 0:  # else the server or the workers were away
            self._count(Action.PRUNE)

    async def _cancel(self, disruption: Disruption) -> None:
        """Cancel a running task, with or without a rollback; it may end by itself first."""
        dice = random.Random(disruption.draw)  # noqa: S311  # a trial, no secret
        job = self.runner.chosen(dice, closed=False)
        if job is not None:
            with suppress(RPCError):
                if dice.random() < ROLLED_BACK:
                    await self.runner.handle(job).signal(AgentWorkflow.undo_when_cancelled, rpc_timeout=RPC_TIMEOUT)
                await self.runner.handle(job).cancel(rpc_timeout=RPC_TIMEOUT)

    async def _reset(self, disruption: Disruption) -> None:
        """Reset one of the tasks that has come far enough, and wait until it has ended again."""
        dice = random.Random(disruption.draw)  # noqa: S311  # a trial, no secret
        for _ in range(TRIES):
            job = self.runner.chosen(dice, closed=disruption.action is Action.RESET_CLOSED)
            if job is not None and job.id not in self.reset and await self._try_reset(job, dice):
                self._count(disruption.action)
                await self.runner.wait_closed(job)
                return
            await asyncio.sleep(PAUSE_SECONDS)

    async def _try_reset(self, job: Job, dice: random.Random) -> bool:
        self.reset.add(job.id)
        try:
            is_reset = await reset(self.stage.client, job.id, dice.choice([*ResetPoint]), dice.random())
        except RPCError:  # the server is down, or the run ended meanwhile; perhaps only the answer was lost
            await self.runner.wait_closed(job)
            return False
        if not is_reset:
            self.reset.remove(job.id)
        return is_reset

    def _count(self, action: str) -> None:
        self.done[action] += 1
        self.changed()


class Result(NamedTuple):
    """What a trial came to."""

    account: Account
    disruptions: Counter[str]
    workers: Counter[str]
    stuck: str
    """Why it was given up; empty if it was not."""


class Trial:
    """One run of the random part."""

    def __init__(
        self, stage: Stage, jobs: Sequence[Job], disruptions: Sequence[Disruption], changed: Callable[["Trial"], None]
    ):
        """Prepare it; `changed` is called after each end of a task and after each disruption."""
        self.stage = stage
        self._disruptions = disruptions
        self.runner = TaskRunner(stage.client, "chaos", jobs, AT_ONCE, lambda: changed(self))
        self.fleet = stage.fleet("chaos", WORKERS)
        self.disruptor = Disruptor(stage, self.runner, self.fleet, lambda: changed(self))

    async def run(self) -> Result:
        """Run all tasks while they are disrupted, and make the account.

        Raises:
            WorkerUnavailable: the workers did not start.
        """
        async with self.fleet:
            stuck = await self._until_over()
        stage = self.stage
        account = await audit(self.runner, stage.book, stage.databases.bank, stage.notes, self.disruptor.reset)
        return Result(account, self.disruptor.done, self.fleet.done, stuck)

    async def _until_over(self) -> str:
        """Run tasks and disruptions; why they were given up, or an empty text."""
        work = asyncio.gather(self.runner.run(), self.disruptor.run(self._disruptions))
        background = [self.disruptor.watch(), *(self.runner.follow() for _ in range(FOLLOWERS))]
        watching = [asyncio.create_task(coroutine) for coroutine in background]
        try:
            while not work.done():
                before = len(self.runner.finished)
                await asyncio.wait([work], timeout=STUCK_SECONDS)
                if not work.done() and len(self.runner.finished) == before:
                    ids = ", ".join(job.id for job in self.runner.running)
                    return f"no task ended for {STUCK_SECONDS:g} s; still running: {ids or 'none'}"
            await work
            return ""
        finally:
            work.cancel()
            for task in watching:
                task.cancel()
