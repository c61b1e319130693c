"""Running one activity: its options, what came of it as a result or as faults; whether the task was cancelled.

Runs from the scheduling of an activity until it is over, retries by Temporal included.
"""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from pydantic import JsonValue
from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception
from temporalio.workflow import ActivityCancellationType

from workflows.calls.header import CallHeader, attached
from workflows.faults import routes
from workflows.faults.fault import Fault, parse_faults
from workflows.faults.outside import earlier_faults, expired, from_activity_error, from_application_error
from workflows.plans import own_activities
from workflows.plans.catalogue import ToolSpec
from workflows.plans.proposal import Proposed, StepReturn
from workflows.task_queues import control_queue, notification_queue
from workflows.web_ui import summary

T = TypeVar("T")


async def run_activity(
    spec: ToolSpec, attempts: int, payload: JsonValue, returns: type[T], *, id: str, title: str, header: CallHeader
) -> tuple[T | Fault, tuple[Fault, ...]]:
    """Run an activity; return its result or fault, and the known faults of the attempts before the final attempt."""
    with attached(header):
        route, queue = routes.route(spec, attempts), workflow.info().task_queue
        on = control_queue(queue) if spec.kind in own_activities.KINDS else queue
        running = _schedule(route, payload, returns, id=id, title=title, queue=on)
        return await _result_and_faults(running, spec, attempts)


async def deliver(notification: JsonValue, *, id: str, title: str) -> str:
    """Have a worker with `--notify` notify its receiver, and return the name of the receiver.

    Raises:
        ActivityError: no receiver was told within the schedule-to-close timeout of `DELIVERY`.
    """
    queue = notification_queue(workflow.info().task_queue)
    return await _schedule(routes.DELIVERY, notification, str, id=id, title=title, queue=queue)


def _schedule(
    route: routes.Route, payload: JsonValue, returns: type[T], *, id: str, title: str, queue: str
) -> Awaitable[T]:
    return workflow.execute_activity(
        route.activity,
        payload,
        result_type=returns,
        activity_id=id,
        summary=summary(title),
        task_queue=queue,
        start_to_close_timeout=route.start_to_close,
        schedule_to_close_timeout=route.schedule_to_close,
        heartbeat_timeout=route.heartbeat,
        retry_policy=route.retry,
        # Only then is the outcome of a cancelled call known.
        cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
    )


async def run_locally(
    spec: ToolSpec, payload: JsonValue, returns: type[T], *, id: str, title: str, header: CallHeader
) -> T | Fault:
    """Execute a local activity: one attempt in the worker that runs the workflow task, without a round trip.

    If the worker crashes or times out, no attempt is counted, because the workflow task is repeated. A local activity
    has no heartbeats, no retries and no other worker: after a fault that these may cure, call `run_activity`.
    """
    with attached(header):
        running = workflow.execute_local_activity(
            spec.kind,
            payload,
            result_type=returns,
            activity_id=id,
            summary=summary(title),
            start_to_close_timeout=routes.local_timeout(spec),
            retry_policy=routes.ONE_ATTEMPT,
            cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        )
        return (await _result_and_faults(running, spec, attempts=1))[0]


async def _result_and_faults(
    running: Awaitable[T], spec: ToolSpec, attempts: int
) -> tuple[T | Fault, tuple[Fault, ...]]:
    try:
        result = await running
    except ApplicationError as error:  # of the only attempt of a local activity
        return from_application_error(error, spec, attempts), ()
    except ActivityError as error:
        if is_cancelled_exception(error):
            raise asyncio.CancelledError from None
        known = expired(error, spec)
        if known is not None:
            return known, earlier_faults(error)
        return from_activity_error(error, spec, attempts), earlier_faults(error)
    return result, parse_faults(result.earlier) if isinstance(result, StepReturn | Proposed) else ()


def raise_if_cancelled() -> None:
    """Raise CancelledError if the current asyncio task was asked to stop, even if its activity ended normally."""
    if is_cancelled():
        raise asyncio.CancelledError


def is_cancelled() -> bool:
    """Whether the current asyncio task was asked to stop, even if its activity ended normally and so hid that."""
    current = asyncio.current_task()
    return current is not None and current.cancelling() > 0
