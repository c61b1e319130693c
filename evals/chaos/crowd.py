"""The tasks of a trial, so many at a time, from their start to a final state, however often that takes a new try."""

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta

from temporalio.client import (
    Client,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowHandle,
    WorkflowQueryFailedError,
)
from temporalio.exceptions import ApplicationError, WorkflowAlreadyStartedError
from temporalio.service import RPCError

from evals.chaos.histories import Steps
from evals.chaos.jobs import Job
from workflows.agent import OUTCOME_MEMO, AgentWorkflow
from workflows.outcome import Outcome

PAUSE = 0.5
"""Seconds before the server is asked again."""
GLANCE = 0.05
LOOK = timedelta(seconds=20)
"""How long one question for a result may take."""
OPEN = (WorkflowExecutionStatus.RUNNING, WorkflowExecutionStatus.CONTINUED_AS_NEW)

Handle = WorkflowHandle[AgentWorkflow, Outcome]


@dataclass
class Crowd:
    """All tasks of one trial on one queue."""

    client: Client
    queue: str
    jobs: Sequence[Job]
    at_once: int
    changed: Callable[[], None]
    """Called whenever a task has ended."""
    running: list[Job] = field(default_factory=list)
    finished: list[Job] = field(default_factory=list)
    _ended: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def run(self) -> None:
        """Bring all tasks to a final state."""
        waiting = iter(self.jobs)
        async with asyncio.TaskGroup() as hands:
            for _ in range(self.at_once):
                hands.create_task(self._work(waiting))

    async def reached(self, finished: float) -> None:
        """Wait until so many tasks have ended."""
        async with self._ended:
            await self._ended.wait_for(lambda: len(self.finished) >= finished)

    def chosen(self, dice: random.Random, *, closed: bool) -> Job | None:
        """One of the tasks that run, or of those that have ended."""
        among = self.finished if closed else self.running
        return dice.choice(among) if among else None

    def handle(self, job: Job) -> Handle:
        """The newest run of a task."""
        return self.client.get_workflow_handle_for(AgentWorkflow.run, job.id)

    async def start(self, job: Job) -> None:
        """Start a task, once, whatever happens to the server meanwhile."""
        while True:
            try:
                await self.client.start_workflow(
                    AgentWorkflow.run, job.task, id=job.id, task_queue=self.queue, rpc_timeout=LOOK
                )
            except WorkflowAlreadyStartedError:  # by a call whose answer was lost
                return
            except RPCError:
                await asyncio.sleep(PAUSE)
            else:
                return

    async def closed(self, job: Job) -> None:
        """Wait until a task has ended, whatever happens to the server meanwhile, or to the run that it was in."""
        while True:
            with suppress(RPCError, TimeoutError):
                if (await self.handle(job).describe(rpc_timeout=LOOK)).status not in OPEN:
                    return
                with suppress(WorkflowFailureError):
                    await asyncio.wait_for(self.handle(job).result(), LOOK.total_seconds())
                continue
            await asyncio.sleep(PAUSE)

    async def completed(self, job: Job, step: str) -> None:
        """Wait until the server has the result of a step."""
        while step not in Steps.of((await self.handle(job).fetch_history()).events).completed:  # noqa: ASYNC110
            await asyncio.sleep(GLANCE)

    async def follow(self) -> None:
        """Ask running tasks how far they are, as followers do, whether there is a worker or not; until cancelled."""
        dice = random.Random(self.queue)  # noqa: S311  # a trial, no secret
        while True:
            job = self.chosen(dice, closed=False)
            if job is not None:
                with suppress(RPCError, WorkflowQueryFailedError):
                    await self.handle(job).query(AgentWorkflow.progress, rpc_timeout=LOOK)
            await asyncio.sleep(GLANCE)

    async def _work(self, waiting: Iterator[Job]) -> None:
        for job in waiting:  # one iterator, shared by all hands
            await self.start(job)
            self.running.append(job)
            await self.closed(job)
            self.running.remove(job)
            async with self._ended:
                self.finished.append(job)
                self._ended.notify_all()
            self.changed()


async def outcome(handle: Handle) -> Outcome | None:
    """How a task ended; None where it did not end in a way of ours."""
    try:
        return await handle.result()
    except WorkflowFailureError as error:
        cause = error.cause
        if isinstance(cause, ApplicationError) and cause.details:
            return Outcome.model_validate(cause.details[0])
        memo = await (await handle.describe()).memo()
        return Outcome.model_validate(memo[OUTCOME_MEMO]) if OUTCOME_MEMO in memo else None
