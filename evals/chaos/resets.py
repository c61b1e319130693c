"""Temporal's own reset of a task: it goes on from an earlier point in a new run, with the same keys."""

import secrets
from collections.abc import Sequence
from enum import StrEnum

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.history.v1 import ActivityTaskScheduledEventAttributes
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import Client

from workflows import routing

READS = ("get_rate", "balance", "find_payment", "print_statement")


class Point(StrEnum):
    """Where a task is taken back to."""

    BEFORE_EFFECT = "before an effect"
    AFTER_PROPOSAL = "after its proposal"
    BEFORE_PROPOSAL = "before its proposal"


async def reset(client: Client, id: str, point: Point, draw: float = 0.0) -> bool:
    """Take the newest run of a task back; whether it has come so far. `draw` from [0, 1) chooses among its effects.

    Raises:
        RPCError: the server cannot be reached, or the run cannot be reset.
    """
    seen = await client.get_workflow_handle(id).describe()
    history = await client.get_workflow_handle(id, run_id=seen.run_id).fetch_history()
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
        workflow_execution=WorkflowExecution(workflow_id=id, run_id=seen.run_id),
        reason=f"chaos: {point}",
        workflow_task_finish_event_id=events[int(draw * len(events))],
        request_id=secrets.token_hex(16),
        identity=client.identity,
    )
    await client.workflow_service.reset_workflow_execution(request)
    return True


def _events(scheduled: Sequence[ActivityTaskScheduledEventAttributes], point: Point) -> list[int]:
    """The workflow tasks that the run can be taken back to."""
    own = {spec.kind for spec in routing.OWN}
    proposals = [one for one in scheduled if one.activity_type.name == routing.PLAN.kind]
    steps = [one for one in scheduled if one.activity_type.name not in own]
    match point:
        case Point.BEFORE_PROPOSAL:
            found = proposals[:1]
        case Point.AFTER_PROPOSAL:
            found = steps[:1]
        case Point.BEFORE_EFFECT:
            found = [one for one in steps if one.activity_type.name not in READS and ":" not in one.activity_id]
    return [one.workflow_task_completed_event_id for one in found]
