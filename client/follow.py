"""Follow a task until it ends, over restarts of worker and server, and show its progress in a view."""

import asyncio
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from types import TracebackType
from typing import Self

from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.client import (
    Client,
    WorkflowExecutionDescription,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowQueryFailedError,
)
from temporalio.converter import DataConverter
from temporalio.exceptions import ApplicationError, FailureError
from temporalio.service import RPCError, RPCStatusCode

from client.effects import with_reset_point
from client.history.records import PLANNING
from client.problem import Problem, ProblemKind
from client.tasks import QUERY_TIMEOUT, Handle, final_outcome, query_progress
from client.text import starter
from client.workflow_task import FailingTask, failing, unanswered
from workflows import ids, routing
from workflows.agent import AgentWorkflow
from workflows.faults import parse_faults
from workflows.outcome import Outcome, OutcomeStep
from workflows.record import StepStatus

PERMANENT = (
    RPCStatusCode.NOT_FOUND,
    RPCStatusCode.PERMISSION_DENIED,
    RPCStatusCode.UNAUTHENTICATED,
    RPCStatusCode.INVALID_ARGUMENT,
)
"""Errors that asking again does not change; after all others the server is asked again."""
INTERNAL_ACTIVITIES = {
    routing.CATALOGUE.kind: "asking what the worker can do",
    routing.PLAN.kind: "asking the planner",
    routing.REPLAN.kind: "asking the planner for a new plan",
    routing.COMPACT.kind: "summarising the older turns of the conversation",
    routing.FIND_EFFECT.kind: "asking the ledger whether a call took effect",
}


@dataclass(frozen=True)
class Attempt:
    """The attempt of a running step."""

    number: int
    of: int | None
    code: str | None = None
    """The code of the previous attempt's failure; None for a first attempt."""
    due: datetime | None = None
    """When it will begin; None if it has begun."""

    @property
    def words(self) -> str:
        return f"attempt {self.number}" + (f" of {self.of}" if self.of else "")


@dataclass(frozen=True)
class Snapshot:
    outcome: Outcome
    attempts: Mapping[str, Attempt] = field(default_factory=dict)
    doing: tuple[str, ...] = ()
    """Activities beside the steps, in words: planning, observing, reconciling."""


@dataclass(frozen=True)
class TaskState:
    """Whether a task is closed, as the server says, and its progress, if a worker answered, too."""

    closed: bool
    snapshot: Snapshot | None = None
    failing: FailingTask | None = None
    """Why workers cannot tell its progress although there are some."""


async def fetch_state(client: Client, handle: Handle) -> TaskState | None:
    """Ask server and worker once; None if the server does not answer.

    Raises:
        RPCError: the server does not know the task any more, or refuses access.
    """
    seen = await _described(handle)
    if seen is None:
        return None
    if seen.status is not WorkflowExecutionStatus.RUNNING:
        return TaskState(closed=True)
    try:
        if found := await failing(client, seen):  # a query would be rejected by the server, or wait
            return TaskState(closed=False, failing=found)
        known = await query_progress(handle)
        if known is None:  # a worker may have failed the workflow task meanwhile, and with it the question
            later = await _described(handle)
            return TaskState(closed=False, failing=await failing(client, later)) if later else None
    except WorkflowQueryFailedError as error:
        return TaskState(closed=False, failing=unanswered(seen, error.message))
    except RPCError as error:
        if error.status in PERMANENT:
            raise
        return None
    return TaskState(closed=False, snapshot=await _snapshot_of(client, known.outcome(datetime.now(UTC)), seen))


async def _described(handle: Handle) -> WorkflowExecutionDescription | None:
    with _unless_permanent(), suppress(TimeoutError):
        async with asyncio.timeout(QUERY_TIMEOUT.total_seconds()):  # the SDK tries again for longer than people wait
            return await handle.describe()
    return None


@contextmanager
def _unless_permanent() -> Iterator[None]:
    """Suppress errors after which the server is asked again."""
    try:
        yield
    except RPCError as error:
        if error.status in PERMANENT:
            raise


async def _snapshot_of(client: Client, outcome: Outcome, seen: WorkflowExecutionDescription) -> Snapshot:
    running = {step.id: step for step in outcome.steps if step.status is StepStatus.RUNNING}
    attempts, doing = dict[str, Attempt](), list[str]()
    for activity in seen.raw_description.pending_activities:
        kind = activity.activity_type.name
        if kind in INTERNAL_ACTIVITIES:
            doing.append(await asking(client.data_converter, outcome, activity))
        elif step := running.get(activity.activity_id):
            attempts[step.id] = await _attempt(client, step, activity)
        elif activity.activity_id.endswith(ids.RECONCILIATION):
            doing.append(f"finding out with {kind} whether a call took effect")
        else:
            doing.append(f"looking at the world again with {kind}")
    return Snapshot(outcome, attempts, tuple(dict.fromkeys(doing)))


async def asking(converter: DataConverter, outcome: Outcome, activity: PendingActivityInfo) -> str:
    """The activity in words; from the second attempt on with its number and the code of the failure before."""
    kind = activity.activity_type.name
    said = "asking the model" if outcome.strategy == "react" and kind in PLANNING else INTERNAL_ACTIVITIES[kind]
    if not activity.HasField("last_failure"):
        return said
    of = f" of {activity.maximum_attempts}" if activity.maximum_attempts else ""
    waits = "waiting for attempt" if activity.HasField("next_attempt_schedule_time") else "attempt"
    return f"{said}: {waits} {activity.attempt}{of}, after {await _code(converter, activity)}"


async def _attempt(client: Client, step: OutcomeStep, activity: PendingActivityInfo) -> Attempt:
    """The attempt, counted over all activity executions of a step; the server counts within one."""
    waits = activity.HasField("next_attempt_schedule_time")
    return Attempt(
        number=step.attempts + activity.attempt,
        of=step.attempts + activity.maximum_attempts if activity.maximum_attempts else None,
        code=await _code(client.data_converter, activity) if activity.HasField("last_failure") else None,
        due=activity.next_attempt_schedule_time.ToDatetime(UTC) if waits else None,
    )


async def _code(converter: DataConverter, activity: PendingActivityInfo) -> str:
    failure = await converter.decode_failure(activity.last_failure)
    details = failure.details[:1] if isinstance(failure, ApplicationError) else []
    faults = parse_faults(details)
    if faults:
        return faults[0].code.value
    return "timeout" if isinstance(failure, FailureError) and not isinstance(failure, ApplicationError) else "a fault"


POLL_SECONDS = 0.25
LONGEST_POLL = 1.0
"""Seconds between two polls of a task whose answers take long."""
PATIENCE_SECONDS = 2.4
"""How long no worker may answer before the view is told; a query without a worker takes a little longer."""
HEALING_SECONDS = 60.0
"""How long a task whose workflow task fails is followed if it may recover without a person (store unavailable)."""


class Silent(StrEnum):
    SERVER = "server"
    WORKER = "worker"


class View:
    """The methods that a follower calls to show a task; in this base class they show nothing."""

    def __enter__(self) -> Self:
        """Begin to show."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the terminal as it was found, however the following ends."""

    def see(self, snapshot: Snapshot) -> None:
        """Show progress, which may be the same as before."""

    def silence(self, who: Silent) -> None:
        """The server, or all workers, have not answered for seconds."""

    def answers(self, who: Silent) -> None:
        """The server, or a worker, answers again."""

    def failing(self, task: FailingTask | None) -> None:
        """The task's workflow task has failed for seconds; None: it goes on again."""

    def tick(self) -> None:
        """A moment has passed."""

    def end(self, outcome: Outcome) -> None:
        """The task has ended."""


class Follower:
    """Polls one task, and calls the methods of a view."""

    def __init__(self, client: Client, handle: Handle, view: View, *, is_attended: bool = True) -> None:
        # Without a person who watches, a task that only a person can repair is not followed for ever.
        self._client = client
        # of the newest run: a reset begins another
        self._handle: Handle = client.get_workflow_handle_for(AgentWorkflow.run, handle.id)
        self._view = view
        self._is_attended = is_attended
        self._silent: Silent | None = None
        self._failing: FailingTask | None = None
        """The failure that was last passed to the view; None while the workflow task does not fail."""
        self._failing_since: float | None = None
        self._sure_since: float | None = None
        self._heard = time.monotonic()
        self._woken = asyncio.Event()

    async def to_the_end(self) -> Outcome:
        """Follow until the task ends.

        Raises:
            Problem: the server does not know the task any more, or its workflow task fails and no person watches.
            RPCError: the server refuses access.
        """
        looking, waking = asyncio.create_task(self._watch()), asyncio.create_task(self._wake())
        try:
            while not (await asyncio.wait([looking], timeout=POLL_SECONDS))[0]:
                self._view.tick()
            outcome = looking.result()
        finally:
            looking.cancel()
            waking.cancel()
        self._view.end(outcome)
        return outcome

    async def _watch(self) -> Outcome:
        while True:
            began = time.monotonic()
            found = await self._fetch_state()
            self._note(found)
            await self._note_failing(found)
            if found and found.closed and (outcome := await self._ended()):
                return outcome
            took = time.monotonic() - began if found and (found.snapshot or found.failing) else 0
            await self._pause(min(LONGEST_POLL, max(POLL_SECONDS, took)))

    async def _fetch_state(self) -> TaskState | None:
        try:
            return await fetch_state(self._client, self._handle)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            reason = f"The server does not know task {self._handle.id!r} any more"
            raise Problem("unknown_id", reason, "it was deleted, or the server began anew without its data") from error

    async def _ended(self) -> Outcome | None:
        """The Outcome of a closed task; None if the server does not answer any more."""
        with _unless_permanent():
            return await final_outcome(self._handle)
        return None

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._woken.wait(), seconds)
        self._woken.clear()

    async def _wake(self) -> None:
        """Wake the follower when the task ends; this waits with a long poll."""
        ending = self._client.get_workflow_handle(self._handle.id)
        while True:
            try:
                with suppress(WorkflowFailureError):
                    await ending.result()
                return self._woken.set()
            except RPCError:
                await asyncio.sleep(POLL_SECONDS)

    def _note(self, found: TaskState | None) -> None:
        if found is None:
            if self._silent is not Silent.SERVER:
                self._silent = Silent.SERVER
                self._view.silence(Silent.SERVER)
            return
        if self._silent is Silent.SERVER:
            self._again(Silent.SERVER)
        if (found.snapshot or found.failing) and self._silent is Silent.WORKER:
            self._again(Silent.WORKER)
        if found.snapshot:
            self._heard = time.monotonic()
            self._view.see(found.snapshot)
        elif not (found.closed or found.failing or self._silent) and time.monotonic() - self._heard > PATIENCE_SECONDS:
            self._silent = Silent.WORKER
            self._view.silence(Silent.WORKER)

    def _again(self, who: Silent) -> None:
        self._silent, self._heard = None, time.monotonic()
        self._view.answers(who)

    async def _note_failing(self, found: TaskState | None) -> None:
        """Pass to the view that the workflow task fails, or goes on again."""
        if found is None or (found.failing is None and found.snapshot is None and not found.closed):
            return  # without an answer nothing is known of it
        now, task = time.monotonic(), found.failing
        if task is None:
            if self._failing is not None:
                self._view.failing(None)
            self._failing = self._failing_since = self._sure_since = None
            return
        self._heard = now
        self._failing_since = self._failing_since or now
        self._sure_since = (self._sure_since or now) if task.is_sure and task.is_taken else None
        is_news = self._failing is None or task.cause is not self._failing.cause
        if is_news and now - self._failing_since > PATIENCE_SECONDS:
            self._failing = task
            with suppress(RPCError):  # the server does not answer any more; the rest is known
                self._failing = await with_reset_point(self._client, task)
            self._view.failing(self._failing)
        if not self._is_attended and self._is_hopeless(task, now):
            raise self._given_up(self._failing or task)

    def _is_hopeless(self, task: FailingTask, now: float) -> bool:
        """Whether later attempts fail, too: a repaired worker would complete the workflow task within milliseconds."""
        patience = HEALING_SECONDS if task.may_heal else PATIENCE_SECONDS
        return self._sure_since is not None and now - self._sure_since > patience

    def _given_up(self, task: FailingTask) -> Problem:
        problem = task.problem()
        words = ("undo", task.task_id) if task.task_id != task.workflow_id else ("show", task.task_id, "--follow")
        remedy = f"{problem.remedy}; it was not stopped: `{starter(*words)}` follows it again"
        return Problem("workflow_task_fails", problem.reason, remedy, ProblemKind.NEEDS_PERSON)
