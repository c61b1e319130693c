"""What only the server knows of a running task: attempts under way, their progress, what operators have paused.

Made at each poll of a task that is followed, and once when a running task is shown.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from temporalio.api.enums.v1 import PendingActivityState
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.client import (
    Client,
    WorkflowExecutionDescription,
)
from temporalio.converter import DataConverter
from temporalio.exceptions import ApplicationError, FailureError

from client.encrypted import NO_KEY
from client.history.fetch import number_of_attempt
from client.history.records import PLANNING
from client.pauses import OPEN, pauses, with_pauses
from client.tasks import (
    converter_of,
)
from runtime.payloads import NoKey
from workflows import ids
from workflows.account.outcome import Outcome
from workflows.account.records import StepStatus
from workflows.account.task import TaskStatus
from workflows.faults.fault import ProgressReport, parse_faults, parse_thinking, parse_working
from workflows.plans import own_activities
from workflows.text import legible
from workflows.unfinished import Unfinished

INTERNAL_ACTIVITIES = {
    own_activities.CATALOGUE.kind: "asking what the worker can do",
    own_activities.PLAN.kind: "asking the planner",
    own_activities.REPLAN.kind: "asking the planner for a new plan",
    own_activities.COMPACT.kind: "summarising the older turns of the conversation",
    own_activities.FIND_EFFECT.kind: "asking the ledger whether a call took effect",
}


@dataclass(frozen=True)
class Attempt:
    """The newest attempt of a running step."""

    number: int
    """The number of the attempt, counted over all activity executions of the step."""
    of: int | None
    """The maximum of `number`; None without a limit."""
    code: str | None = None
    """The code of the previous attempt's failure; None for a first attempt."""
    due: datetime | None = None
    """When the attempt begins, after its backoff; None if it has begun."""

    @property
    def label(self) -> str:
        return f"attempt {self.number}" + (f" of {self.of}" if self.of else "")


@dataclass(frozen=True)
class Snapshot:
    """The progress of a running task at one poll."""

    outcome: Outcome
    attempts: Mapping[str, Attempt] = field(default_factory=dict)
    doing: tuple[str, ...] = ()
    """In words, the open activities that are not steps: planning, observing, reconciling."""
    requests: Mapping[str, Attempt] = field(default_factory=dict)
    """For each open request to the planner, and each other activity of Replan's own, by its id: the newest attempt."""
    thinking: Mapping[str, int] = field(default_factory=dict)
    """For each activity that waits for a model's reply, by its id: how many tokens of the reply have come."""
    working: Mapping[str, ProgressReport] = field(default_factory=dict)
    """For each activity whose call reports progress, by the id of the activity: the newest report."""
    queued: frozenset[str] = frozenset()
    """The ids of the tools' activities that no worker has taken from the task queue yet."""
    words: Mapping[str, Unfinished] = field(default_factory=dict)
    """For each activity that waits for a model's reply, by its id: the reply so far; empty if it was not requested."""
    is_replayed: bool = False
    """Whether no worker answered, so that the history was replayed here."""

    @property
    def needs_answer(self) -> bool:
        """Whether the task waits for a person, and none of its steps or other activities is running."""
        goes_on = self.doing or any(step.status is StepStatus.RUNNING for step in self.outcome.steps)
        asks = any(request.is_open for request in self.outcome.requests)
        # Of an encrypted task without its key, no request can be read.
        return not goes_on and (asks or (self.outcome.code == NO_KEY and self.outcome.status is TaskStatus.WAITING))


async def snapshot_of(client: Client, outcome: Outcome, description: WorkflowExecutionDescription) -> Snapshot:
    running = {step.id: step for step in outcome.steps if step.status in OPEN}
    attempts, requests, doing, queued = dict[str, Attempt](), dict[str, Attempt](), list[str](), set[str]()
    thinking, working, converter = dict[str, int](), dict[str, ProgressReport](), converter_of(client, description.id)
    for activity in description.raw_description.pending_activities:
        kind = activity.activity_type.name
        is_scheduled = activity.state == PendingActivityState.PENDING_ACTIVITY_STATE_SCHEDULED
        # The server calls a call scheduled, too, that waits between two attempts.
        if is_scheduled and not activity.HasField("next_attempt_schedule_time") and kind not in INTERNAL_ACTIVITIES:
            queued.add(activity.activity_id)
        details = await _heartbeat_details(converter, activity)
        tokens = parse_thinking(details)
        if tokens is not None:
            thinking[activity.activity_id] = tokens
        if call := parse_working(details):
            working[activity.activity_id] = call
        if activity.paused and activity.activity_id not in running:
            continue  # `pauses` tells of it
        if kind in INTERNAL_ACTIVITIES:
            requests[activity.activity_id] = await _attempt(converter, activity)
            phrase = await asking(converter, outcome, activity)
            doing.append(phrase if tokens is None else f"{phrase}: {thinking_text(tokens)}")
        elif step := running.get(activity.activity_id):
            attempts[step.id] = await _attempt(converter, activity, step.attempts)
        elif activity.activity_id.endswith(ids.RECONCILIATION):
            doing.append(f"finding out with {kind} whether a call took effect")
        elif activity.activity_id.endswith(ids.OBSERVATION):
            doing.append(f"looking at the world again with {kind}")
        else:  # of a step that is not known
            doing.append(f"calling {kind}")
    shown = with_pauses(outcome, pauses(client, description))
    return Snapshot(shown, attempts, tuple(dict.fromkeys(doing)), requests, thinking, working, frozenset(queued))


async def _heartbeat_details(converter: DataConverter, activity: PendingActivityInfo) -> list[Any]:
    """The details of the last heartbeat of the running attempt; empty if no attempt runs."""
    if activity.state != PendingActivityState.PENDING_ACTIVITY_STATE_STARTED:
        return []
    try:
        return await converter.decode(activity.heartbeat_details.payloads)
    except NoKey:
        return []


def thinking_text(tokens: int) -> str:
    """The progress of a model's reply in words, such as `thinking, 240 tokens`; `tokens` have come so far."""
    return f"thinking, {tokens:,} {'token' if tokens == 1 else 'tokens'}" if tokens else "thinking"


def working_text(working: ProgressReport) -> str:
    """The progress of a call, such as `3 of 10: copying files`; the text after the colon is from the called server."""
    far = f"{working.done:,g}" + (f" of {working.total:,g}" if working.total is not None else "")
    return ": ".join([far, *filter(None, [legible(working.words)])])


async def asking(converter: DataConverter, outcome: Outcome, activity: PendingActivityInfo) -> str:
    """An internal activity in words, such as `asking the planner: attempt 2 of 5, after timeout`."""
    kind = activity.activity_type.name
    phrase = "asking the model" if outcome.strategy == "react" and kind in PLANNING else INTERNAL_ACTIVITIES[kind]
    if not activity.HasField("last_failure"):
        return phrase
    of = f" of {activity.maximum_attempts}" if activity.maximum_attempts else ""
    waits = "waiting for attempt" if activity.HasField("next_attempt_schedule_time") else "attempt"
    return f"{phrase}: {waits} {activity.attempt}{of}, after {await _code_of_last_failure(converter, activity)}"


async def _attempt(converter: DataConverter, activity: PendingActivityInfo, made: int = 0) -> Attempt:
    """The newest attempt of an activity, after `made` attempts of earlier activity executions."""
    # The server's number counts only the attempts of the open activity execution.
    waits = activity.HasField("next_attempt_schedule_time")
    number = await number_of_attempt(converter, activity)
    most = activity.maximum_attempts + number - activity.attempt if activity.maximum_attempts else None
    return Attempt(
        number=made + number,
        of=made + most if most else None,
        code=await _code_of_last_failure(converter, activity) if activity.HasField("last_failure") else None,
        due=activity.next_attempt_schedule_time.ToDatetime(UTC) if waits else None,
    )


async def _code_of_last_failure(converter: DataConverter, activity: PendingActivityInfo) -> str:
    try:
        failure = await converter.decode_failure(activity.last_failure)
    except NoKey:
        return "a fault"
    details = failure.details[:1] if isinstance(failure, ApplicationError) else []
    faults = parse_faults(details)
    if faults:
        return faults[0].code.value
    return "timeout" if isinstance(failure, FailureError) and not isinstance(failure, ApplicationError) else "a fault"
