"""One look at a task: how far it is, by query and by what the server says of it; neither adds to its history."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.client import (
    Client,
    WorkflowExecutionDescription,
    WorkflowExecutionStatus,
    WorkflowQueryFailedError,
)
from temporalio.converter import DataConverter
from temporalio.exceptions import ApplicationError, FailureError
from temporalio.service import RPCError, RPCStatusCode

from console.call import RECONCILE
from console.outcome import QUERY_TIMEOUT, Handle, account
from console.step_lines import Attempt, Now
from console.workflow_task import FailingTask, failing, unanswered
from workflows import routing
from workflows.faults import readable
from workflows.outcome import Outcome, OutcomeStep
from workflows.record import StepStatus

FOR_GOOD = (
    RPCStatusCode.NOT_FOUND,
    RPCStatusCode.PERMISSION_DENIED,
    RPCStatusCode.UNAUTHENTICATED,
    RPCStatusCode.INVALID_ARGUMENT,
)
"""What a server says that has understood; everything else may be better in a moment."""
OWN = {
    routing.CATALOGUE.kind: "asking what the worker can do",
    routing.PLAN.kind: "asking the planner",
    routing.REPLAN.kind: "asking the planner for a new plan",
    routing.COMPACT.kind: "summarising the older turns of the conversation",
    routing.FIND_EFFECT.kind: "asking the ledger whether a call happened",
}

ASKING = (routing.PLAN.kind, routing.REPLAN.kind)
"""Requests to whoever plans."""


@dataclass(frozen=True)
class Sight:
    """How far a task is, as a worker and the server tell it."""

    outcome: Outcome
    attempts: Mapping[str, Attempt] = field(default_factory=dict)
    """Of the running steps, by id."""
    doing: tuple[str, ...] = ()
    """What goes on beside the steps: planning, looking again, finding out what happened."""

    def now(self) -> Now:
        """What is known beside the Outcome, at this moment."""
        return Now(datetime.now(UTC), self.attempts)


@dataclass(frozen=True)
class Look:
    """What a server answered: whether the task goes on, and how far it is where a worker answered, too."""

    closed: bool
    sight: Sight | None = None
    failing: FailingTask | None = None
    """Why no worker can tell how far it is, where not for want of a worker."""


async def look(client: Client, handle: Handle) -> Look | None:
    """Look once; None when the server does not answer.

    Raises:
        RPCError: the server does not know the task any more, or does not let us in.
    """
    seen = await _described(handle)
    if seen is None:
        return None
    if seen.status is not WorkflowExecutionStatus.RUNNING:
        return Look(closed=True)
    try:
        if found := await failing(client, seen):  # the server lets nobody ask such a task, or keeps the question
            return Look(closed=False, failing=found)
        known = await account(handle)
        if known is None:  # a worker may have failed the workflow task meanwhile, and with it the question
            later = await _described(handle)
            return Look(closed=False, failing=await failing(client, later)) if later else None
    except WorkflowQueryFailedError as error:
        return Look(closed=False, failing=unanswered(seen, error.message))
    except RPCError as error:
        if error.status in FOR_GOOD:
            raise
        return None
    return Look(closed=False, sight=await _sight(client, known.outcome(datetime.now(UTC)), seen))


async def _described(handle: Handle) -> WorkflowExecutionDescription | None:
    try:
        async with asyncio.timeout(QUERY_TIMEOUT.total_seconds()):  # the SDK tries again for longer than people wait
            return await handle.describe()
    except TimeoutError:
        return None
    except RPCError as error:
        if error.status in FOR_GOOD:
            raise
        return None


async def _sight(client: Client, outcome: Outcome, seen: WorkflowExecutionDescription) -> Sight:
    running = {step.id: step for step in outcome.steps if step.status is StepStatus.RUNNING}
    attempts, doing = dict[str, Attempt](), list[str]()
    for activity in seen.raw_description.pending_activities:
        kind = activity.activity_type.name
        if kind in OWN:
            doing.append(await asking(client.data_converter, outcome, activity))
        elif step := running.get(activity.activity_id):
            attempts[step.id] = await _attempt(client, step, activity)
        elif activity.activity_id.endswith(RECONCILE):
            doing.append(f"finding out with {kind} whether a call happened")
        else:
            doing.append(f"looking at the world again with {kind}")
    return Sight(outcome, attempts, tuple(dict.fromkeys(doing)))


async def asking(converter: DataConverter, outcome: Outcome, activity: PendingActivityInfo) -> str:
    """What goes on; from the second attempt on which one it is, and what the one before met."""
    kind = activity.activity_type.name
    said = "asking the model" if outcome.strategy == "react" and kind in ASKING else OWN[kind]
    if not activity.HasField("last_failure"):
        return said
    of = f" of {activity.maximum_attempts}" if activity.maximum_attempts else ""
    waits = "waiting for attempt" if activity.HasField("next_attempt_schedule_time") else "attempt"
    return f"{said}: {waits} {activity.attempt}{of}, after {await _code(converter, activity)}"


async def _attempt(client: Client, step: OutcomeStep, activity: PendingActivityInfo) -> Attempt:
    """The attempt over all schedulings of a step; the server counts within one."""
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
    faults = readable(details)
    if faults:
        return faults[0].code.value
    return "timeout" if isinstance(failure, FailureError) and not isinstance(failure, ApplicationError) else "a fault"
