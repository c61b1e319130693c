"""The tasks of a trial: what they do, how they are run and reset, and what their histories say.

The seed decides what they do, and what goes wrong at the payment service.
"""

import asyncio
import random
import secrets
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Literal

from pydantic import JsonValue
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.history.v1 import ActivityTaskScheduledEventAttributes, HistoryEvent
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import (
    Client,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowHandle,
    WorkflowHistory,
    WorkflowQueryFailedError,
)
from temporalio.exceptions import ApplicationError, WorkflowAlreadyStartedError
from temporalio.service import RPCError

from client.history.reader import read_history
from client.history.story import Story, with_values
from client.replay import replayed
from evals.chaos.payments import Trouble
from evals.chaos.world import SIZE, Note
from runtime.payloads import DATA_CONVERTER
from workflows.account.outcome import Outcome
from workflows.account.task import Task
from workflows.agent import OUTCOME_MEMO, AgentWorkflow
from workflows.faults.fault import Quadrant
from workflows.ids import RECONCILIATION
from workflows.limits.budget import Limits
from workflows.plans import own_activities
from workflows.plans.proposal import Step

UNTROUBLED = 0.45
"""The share of payments that succeed at once, with those that are denied."""
TROUBLES = (
    [Trouble.DROP],
    [Trouble.DROP],
    [Trouble.KILL],
    [Trouble.KILL],
    [Trouble.RESET],
    [Trouble.DOWN],
    [Trouble.DOWN, Trouble.DROP],
    [Trouble.BUSY],
    [Trouble.BUSY, Trouble.BUSY],
    [Trouble.SLOW],
    [Trouble.LATE],
)
DENIED = 0.02
"""The share of payments that the service rejects."""


@dataclass
class Job:
    """One task; each of its effects has a reference that is unique in the trial."""

    id: str
    dice: random.Random
    steps: list[Step] = field(default_factory=list)
    troubles: dict[str, list[str]] = field(default_factory=dict)
    """What goes wrong, by reference, call by call."""
    on_escalation: Literal["end", "undo"] = "end"

    @property
    def task(self) -> Task:
        """The input of the workflow."""
        return Task(
            text=self.id,
            plan=tuple(self.steps),
            plan_only=True,
            limits=Limits(replans=0),
            on_escalation=self.on_escalation,
        )

    def reference(self, step: str) -> str:
        """The reference of a step's effect."""
        return f"{self.id}.{step}"

    def add(self, kind: str, *needs: str, **args: JsonValue) -> str:
        """Add a step; its id."""
        id = f"s{len(self.steps) + 1}"
        self.steps.append(Step(id=id, kind=kind, args={"reference": self.reference(id), **args}, needs=needs))
        return id

    def pay(self, kind: str, *needs: str) -> str:
        """Add a call of the payment service, with the troubles that it meets."""
        amount: dict[str, JsonValue] = {} if kind == "get_rate" else {"amount": self.dice.randint(1, 500)}
        id = self.add(kind, *needs, **amount)
        draw = self.dice.random()
        if draw < DENIED:
            self.troubles[self.reference(id)] = [Trouble.DENIED]
        elif draw > UNTROUBLED:
            self.troubles[self.reference(id)] = [*self.dice.choice(TROUBLES)]
        return id

    def transfer(self, *needs: str) -> str:
        """Add a transfer between two accounts."""
        source, target = self.dice.sample(range(1, SIZE + 1), 2)
        return self.add("transfer", *needs, source=source, target=target, amount=self.dice.randint(1, 200))

    def receipt(self, of: str) -> str:
        """Add a receipt for the result of another step."""
        return self.add("write_receipt", of={"$from": of, "path": "id"})


def _move(job: Job, *needs: str) -> str:
    return job.receipt(job.transfer(*needs))


def _shop(job: Job, *needs: str) -> str:
    paid = job.pay("pay", job.pay("get_rate", *needs))
    job.transfer(paid)
    return job.receipt(paid)


def _strict(job: Job, *needs: str) -> str:
    return job.receipt(job.pay("pay_strictly", *needs))


def _once(job: Job, *needs: str) -> str:
    paid = job.pay("pay_once", *needs)
    if paid_late := job.troubles.get(job.reference(paid)):
        job.troubles[f"find {job.reference(paid)}"] = [Trouble.DOWN] * (Trouble.DROP in paid_late)
    return job.transfer(paid)


def _limits(job: Job, *needs: str) -> str:
    return job.transfer(job.pay("set_limit", *needs), job.pay("set_limit", *needs))


def _wide(job: Job, *needs: str) -> str:
    moved = [job.transfer(*needs) for _ in range(4)]
    return job.add("write_receipt", *moved, of={"$from": moved[0], "path": "id"})


def _blind(job: Job, *needs: str) -> str:
    return job.receipt(job.pay("pay_blindly", *needs))


def _exits(job: Job, *needs: str) -> str:
    return job.transfer(job.add("pay_and_exit", *needs, amount=7))


def _stops(job: Job, *needs: str) -> str:
    return job.transfer(job.add("pay_and_stop", *needs, amount=7))


def _refused(job: Job, *needs: str) -> str:
    return job.add("transfer", job.transfer(*needs), source=1, target=2, amount=10**9)


def _long(job: Job, *needs: str) -> str:
    """A transfer after a result that lies in the store, and a receipt that refers to it."""
    printed = job.add("print_statement", *needs, account=1)
    paid = job.pay("pay", printed)
    return job.add("write_receipt", job.transfer(paid), of={"$from": printed, "path": "account"})


MIDDLES: Sequence[Callable[..., str]] = (
    _move,
    _shop,
    _shop,
    _strict,
    _once,
    _once,
    _limits,
    _wide,
    _long,
    _exits,
    _stops,
)
ENDS: Sequence[Callable[..., str]] = (*MIDDLES, *MIDDLES, _blind, _blind, _refused)
"""What may end a task. A task cannot go on after the last three, which may fail."""


def jobs(count: int, seed: int, name: str = "chaos") -> list[Job]:
    """The tasks of a trial."""
    return [_job(f"{name}-{seed}-{number}", random.Random(f"{seed}/{number}")) for number in range(1, count + 1)]  # noqa: S311  # a trial, no secret


def _job(id: str, dice: random.Random) -> Job:
    job = Job(id, dice)
    last = dice.choice(MIDDLES)(job)
    dice.choice(ENDS)(job, last)
    job.on_escalation = dice.choice(["end", "undo"])
    return job


LAST_STEP = "get_rate"
"""The kind of the step that follows in each task of `single`."""


def single(id: str, kind: str) -> Job:
    """A task of one step whose worker is killed, `s1`, and one that follows."""
    job = Job(id, random.Random(id))  # noqa: S311  # a trial, no secret
    if kind == "transfer":
        job.transfer()
    else:
        job.add(kind, **({} if kind == "get_rate" else {"amount": 100}))
    after = job.add(LAST_STEP, "s1")
    job.troubles[job.reference(after)] = [Trouble.DOWN]
    return job


@dataclass
class Steps:
    """The activities of one run."""

    completed: dict[str, datetime] = field(default_factory=dict)
    """When each was finished, by the server's clock."""
    again: set[str] = field(default_factory=set)
    """Those that were scheduled after they were finished."""
    reconciled: list[str] = field(default_factory=list)
    """The result of each reconciliation: found, not found, or failed."""

    @classmethod
    def of(cls, events: Sequence[HistoryEvent]) -> "Steps":
        """Read them from a history."""
        steps, ids = cls(), dict[int, str]()
        for event in events:
            match event.WhichOneof("attributes"):
                case "activity_task_scheduled_event_attributes":
                    id = event.activity_task_scheduled_event_attributes.activity_id
                    ids[event.event_id] = id
                    if id in steps.completed and not id.endswith(RECONCILIATION):
                        steps.again.add(id)
                case "activity_task_completed_event_attributes":
                    id = ids[event.activity_task_completed_event_attributes.scheduled_event_id]
                    steps.completed[id] = event.event_time.ToDatetime(UTC)
                    steps.reconciled += ["found"] * id.endswith(RECONCILIATION)
                case "activity_task_failed_event_attributes":
                    failed = event.activity_task_failed_event_attributes
                    is_reconciliation = ids[failed.scheduled_event_id].endswith(RECONCILIATION)
                    is_answer = failed.failure.application_failure_info.type == Quadrant.PERSISTENT_SEMANTIC
                    steps.reconciled += ["not found" if is_answer else "failed"] * is_reconciliation
        return steps


async def replay_failures(histories: AsyncIterator[WorkflowHistory]) -> list[str]:
    """The tasks whose histories do not replay, each with its error."""
    return [f"{one.task_id}: {one.reason}" async for one in replayed(histories) if one.cause]


def ran_again(steps: Mapping[str, Steps], notes: Sequence[Note]) -> Iterator[str]:
    """The steps that were scheduled or called again after they were completed, each with its task."""
    for task, activities in steps.items():
        yield from (f"{task} {id}" for id in sorted(activities.again))
    for note in notes:
        completed = steps[note.task].completed.get(note.step) if note.task in steps else None
        if completed is not None and note.scheduled > completed and not note.step.endswith(RECONCILIATION):
            yield f"{note.task} {note.step}, attempt {note.attempt}"


RETRY_SECONDS = 0.5
POLL_SECONDS = 0.05
RPC_TIMEOUT = timedelta(seconds=20)
OPEN = (WorkflowExecutionStatus.RUNNING, WorkflowExecutionStatus.CONTINUED_AS_NEW)

Handle = WorkflowHandle[AgentWorkflow, Outcome]


@dataclass
class TaskRunner:
    """Runs tasks on one queue, so many at a time, even while the server is away."""

    client: Client
    queue: str
    jobs: Sequence[Job]
    at_once: int
    changed: Callable[[], None]
    """Called after each end of a task."""
    running: list[Job] = field(default_factory=list)
    finished: list[Job] = field(default_factory=list)
    _ended: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def run(self) -> None:
        """Run all tasks to their ends."""
        waiting = iter(self.jobs)
        async with asyncio.TaskGroup() as lanes:
            for _ in range(self.at_once):
                lanes.create_task(self._work(waiting))

    async def wait_finished(self, finished: float) -> None:
        """Wait until so many tasks have ended."""
        async with self._ended:
            await self._ended.wait_for(lambda: len(self.finished) >= finished)

    def chosen(self, dice: random.Random, *, closed: bool) -> Job | None:
        """One of the running tasks, or of the closed ones; None if there is none."""
        among = self.finished if closed else self.running
        return dice.choice(among) if among else None

    def handle(self, job: Job) -> Handle:
        """A handle of the newest run of a task."""
        return self.client.get_workflow_handle_for(AgentWorkflow.run, job.id)

    async def start(self, job: Job) -> None:
        """Start a task, again and again until the server has it."""
        while True:
            try:
                await self.client.start_workflow(
                    AgentWorkflow.run, job.task, id=job.id, task_queue=self.queue, rpc_timeout=RPC_TIMEOUT
                )
            except WorkflowAlreadyStartedError:  # by a request whose answer was lost
                return
            except RPCError:
                await asyncio.sleep(RETRY_SECONDS)
            else:
                return

    async def wait_closed(self, job: Job) -> None:
        """Wait until a task has ended, also over resets."""
        while True:
            with suppress(RPCError, TimeoutError):
                if (await self.handle(job).describe(rpc_timeout=RPC_TIMEOUT)).status not in OPEN:
                    return
                with suppress(WorkflowFailureError):
                    await asyncio.wait_for(self.handle(job).result(), RPC_TIMEOUT.total_seconds())
                continue
            await asyncio.sleep(RETRY_SECONDS)

    async def wait_completed(self, job: Job, step: str) -> None:
        """Wait until the server has the result of a step."""
        while step not in Steps.of((await self.handle(job).fetch_history()).events).completed:  # noqa: ASYNC110
            await asyncio.sleep(POLL_SECONDS)

    async def follow(self) -> None:
        """Query running tasks, as people who follow them do, also while no worker lives; until cancelled."""
        dice = random.Random(self.queue)  # noqa: S311  # a trial, no secret
        while True:
            job = self.chosen(dice, closed=False)
            if job is not None:
                with suppress(RPCError, WorkflowQueryFailedError):
                    await self.handle(job).query(AgentWorkflow.progress, rpc_timeout=RPC_TIMEOUT)
            await asyncio.sleep(POLL_SECONDS)

    async def _work(self, waiting: Iterator[Job]) -> None:
        for job in waiting:  # one iterator, shared by all lanes
            await self.start(job)
            self.running.append(job)
            await self.wait_closed(job)
            self.running.remove(job)
            async with self._ended:
                self.finished.append(job)
                self._ended.notify_all()
            self.changed()


async def outcome(handle: Handle) -> Outcome | None:
    """How a task ended, with what only its history has; None if Replan did not end it."""
    ended = await _closing_outcome(handle)
    if ended is None or not any(step.in_history for step in ended.steps):
        return ended
    return with_values(ended, Story(await read_history(handle.id, handle.fetch_history_events(), DATA_CONVERTER)))


async def _closing_outcome(handle: Handle) -> Outcome | None:
    try:
        return await handle.result()
    except WorkflowFailureError as error:
        cause = error.cause
        if isinstance(cause, ApplicationError) and cause.details:
            return Outcome.model_validate(cause.details[0])
        memo = await (await handle.describe()).memo()
        return Outcome.model_validate(memo[OUTCOME_MEMO]) if OUTCOME_MEMO in memo else None


READS = ("get_rate", "balance", "find_payment", "print_statement")


class ResetPoint(StrEnum):
    """Where a task is reset to."""

    BEFORE_EFFECT = "before an effect"
    AFTER_PROPOSAL = "after its proposal"
    BEFORE_PROPOSAL = "before its proposal"


async def reset(client: Client, id: str, point: ResetPoint, draw: float = 0.0) -> bool:
    """Reset the newest run of a task by Temporal's own reset; False if it has not come so far.

    `draw` from [0, 1) chooses among its effects.

    Raises:
        RPCError: the server cannot be reached, or the run cannot be reset.
    """
    run = (await client.get_workflow_handle(id).describe()).run_id
    history = await client.get_workflow_handle(id, run_id=run).fetch_history()
    scheduled = [
        event.activity_task_scheduled_event_attributes
        for event in history.events
        if event.HasField("activity_task_scheduled_event_attributes")
    ]
    events = _events(scheduled, point)
    if not events:
        return False
    request = ResetWorkflowExecutionRequest(
        namespace=client.namespace,
        workflow_execution=WorkflowExecution(workflow_id=id, run_id=run),
        reason=f"chaos: {point}",
        workflow_task_finish_event_id=events[int(draw * len(events))],
        request_id=secrets.token_hex(16),
        identity=client.identity,
    )
    await client.workflow_service.reset_workflow_execution(request)
    return True


def _events(scheduled: Sequence[ActivityTaskScheduledEventAttributes], point: ResetPoint) -> list[int]:
    """The workflow tasks that the run can be reset to."""
    own = {spec.kind for spec in own_activities.SPECS}
    steps = [activity for activity in scheduled if activity.activity_type.name not in own]
    match point:
        case ResetPoint.BEFORE_PROPOSAL:
            found = [activity for activity in scheduled if activity.activity_type.name == own_activities.PLAN.kind][:1]
            # A plan that needs no I/O is made in the workflow task that schedules its first step.
            found = found or steps[:1]
        case ResetPoint.AFTER_PROPOSAL:
            found = steps[:1]
        case ResetPoint.BEFORE_EFFECT:
            found = [activity for activity in steps if _is_effect(activity)]
    return [activity.workflow_task_completed_event_id for activity in found]


def _is_effect(activity: ActivityTaskScheduledEventAttributes) -> bool:
    return activity.activity_type.name not in READS and ":" not in activity.activity_id
