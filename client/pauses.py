"""What operators have paused: activities with `temporal activity pause`, workflows with `temporal workflow pause`.

Read from the server's description of a workflow, whenever a running task is shown, listed or explained, and before a
request is answered. No event of the history has a pause.
"""

import math
import shlex
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.client import Client, WorkflowExecutionDescription

from client.problem import Problem, ProblemKind
from client.remedy import Remedy, Text
from client.text import printable
from runtime.client import DEFAULT_ADDRESS, DEFAULT_NAMESPACE
from workflows.account.outcome import Outcome
from workflows.account.records import Pause, StepStatus
from workflows.account.task import TaskStatus
from workflows.faults import retries

HOUR = timedelta(hours=1)
OPEN = (StepStatus.RUNNING, StepStatus.PAUSED)
"""The statuses of a step with an open call."""


def pauses(client: Client, description: WorkflowExecutionDescription) -> tuple[Pause, ...]:
    """The pauses of a workflow: first that of the workflow itself, then those of its activities."""
    paused = [activity for activity in description.raw_description.pending_activities if activity.paused]
    of_activities = [_of_activity(client, description.id, activity) for activity in paused]
    return (*_of_workflow(client, description), *of_activities)


def is_paused(description: WorkflowExecutionDescription) -> bool:
    """Whether the whole workflow is paused."""
    return description.raw_description.workflow_extended_info.HasField("pause_info")


def require_resumed(description: WorkflowExecutionDescription) -> None:
    """Raise Problem if the whole workflow is paused, so that it takes no answer."""
    if is_paused(description):
        remedy = Text(Remedy("show", description.id), " has the command that resumes it")
        raise Problem("paused", f"Task {description.id!r} is paused, and takes no answer", remedy, ProblemKind.FAILED)


def with_pauses(outcome: Outcome, paused: Sequence[Pause]) -> Outcome:
    """The Outcome of an unfinished task, in which paused steps, and a paused task, have the status `paused`."""
    if not paused:
        return outcome
    calls = {pause.activity for pause in paused}
    steps = [
        step.model_copy(update={"status": StepStatus.PAUSED if step.id in calls else StepStatus.RUNNING})
        if step.status in OPEN
        else step
        for step in outcome.steps
    ]
    status = TaskStatus.PAUSED if None in calls else outcome.status
    return outcome.model_copy(update={"steps": tuple(steps), "paused": tuple(paused), "status": status})


def _of_workflow(client: Client, description: WorkflowExecutionDescription) -> list[Pause]:
    if not is_paused(description):
        return []
    info = description.raw_description.workflow_extended_info.pause_info
    since = info.paused_time.ToDatetime(UTC) if info.HasField("paused_time") else None
    resume = _command(client, "workflow", "unpause", "--workflow-id", description.id)
    return [Pause(activity=None, since=since, by=info.identity, reason=info.reason, resume=resume)]


def _of_activity(client: Client, id: str, activity: PendingActivityInfo) -> Pause:
    info, which = activity.pause_info, ("--workflow-id", id, "--activity-id", activity.activity_id)
    origin = info.manual if info.HasField("manual") else info.rule
    deadline, extend = None, ""
    timeout = activity.activity_options.schedule_to_close_timeout.ToTimedelta()
    if activity.HasField("expiration_time") and timeout:
        # The expiration time is never updated, so it tells when the activity was scheduled first.
        began = activity.expiration_time.ToDatetime(UTC) - retries.STEP_DEADLINE
        deadline, hours = began + timeout, math.ceil((datetime.now(UTC) - began + retries.STEP_DEADLINE) / HOUR)
        extend = _command(client, "activity", "update-options", *which, "--schedule-to-close-timeout", f"{hours}h")
    return Pause(
        activity=activity.activity_id,
        kind=activity.activity_type.name,
        since=info.pause_time.ToDatetime(UTC) if info.HasField("pause_time") else None,
        by=origin.identity or info.rule.rule_id,
        reason=origin.reason,
        is_running=activity.HasField("last_started_time"),
        resume=_command(client, "activity", "unpause", *which),
        deadline=deadline,
        extend=extend,
    )


def _command(client: Client, *args: str) -> str:
    """`temporal WORDS`, with the address and the namespace unless they are the defaults of the Temporal CLI."""
    address, namespace = client.service_client.config.target_host, client.namespace
    is_usual = address in (DEFAULT_ADDRESS, DEFAULT_ADDRESS.replace("localhost", "127.0.0.1"))
    server = [] if is_usual else ["--address", address]
    server += [] if namespace == DEFAULT_NAMESPACE else ["--namespace", namespace]
    return printable(f"temporal {shlex.join([*args, *server])}")
