"""A task whose workflow task fails: the cause, as the server tells it, and the remedies.

Made when a running task is shown, followed, cancelled or explained, and its workflow task has failed.

The server schedules a failed workflow task again until a worker completes it. History has the first failure only. Later
failures increase the attempt; the SDK does not report them, so each takes until its timeout: 10 s, and from the third
attempt on longer, up to 10 min. Meanwhile the server holds signals and cancel requests back.
"""

import shlex
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, Field
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType, PendingWorkflowTaskState, TimeoutType, WorkflowTaskFailedCause as Fails
from temporalio.api.failure.v1 import Failure
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryReverseRequest
from temporalio.client import Client, WorkflowExecutionDescription
from temporalio.converter import DataConverter
from temporalio.exceptions import ApplicationError

from client.problem import Problem, ProblemKind
from client.remedy import Door, Remedy, Text, render, start_worker
from client.tasks import converter_of
from client.text import cut, one_line, printable
from runtime.payloads import CodecFailed, NoKey
from workflows.faults.fault import Quadrant, parse_faults
from workflows.ids import reset_rollback_id, rollback_id

UNREADABLE = (ValueError, LookupError, RuntimeError)
"""The exceptions that decoding raises for a payload whose codec is missing here, or that another client wrote."""
# Enough, since repeated failures add only one event, and each signal or cancel request a few more.
PAGE, MAX_PAGES = 20, 10
"""The number of events per page, and the most pages, that are read from the end of the history."""
MAX_MESSAGE = 300
SURE = 3
"""From this attempt on, a workflow task counts as failing for good; fewer failures may come from a killed worker."""
SOON = " (within some 10 min)"
"""Words for how long a repaired task needs to go on: until the open attempt of its workflow task has timed out."""
ROLLBACK = "UndoWorkflow"
"""The type of the workflow that undoes a closed task."""


class Cause(StrEnum):
    """Why a workflow task fails, as far as the server tells."""

    NONDETERMINISM = "nondeterminism"
    UNHANDLED = "unhandled_failure"
    PAYLOAD = "payload"
    LIMIT = "limit"
    TIMEOUT = "timeout"
    REPLAY = "replay"
    """No workflow task failed yet, but a query did: the worker's code cannot replay the history of the task."""


WHY = {
    Cause.NONDETERMINISM: "the worker's code decides otherwise than the task's history says",
    Cause.UNHANDLED: "the worker's code raises an exception",
    Cause.PAYLOAD: "the worker cannot read its values, or cannot keep them in the store",
    Cause.LIMIT: "it asks for more than the server takes",
    Cause.TIMEOUT: "workers took it and did not answer in time",
    Cause.REPLAY: "the worker's code cannot replay its history",
}
LIMITS = frozenset(
    {
        Fails.WORKFLOW_TASK_FAILED_CAUSE_PAYLOADS_TOO_LARGE,
        Fails.WORKFLOW_TASK_FAILED_CAUSE_GRPC_MESSAGE_TOO_LARGE,
        Fails.WORKFLOW_TASK_FAILED_CAUSE_REQUEST_TOO_LARGE,
        Fails.WORKFLOW_TASK_FAILED_CAUSE_BAD_SIGNAL_INPUT_SIZE,
        Fails.WORKFLOW_TASK_FAILED_CAUSE_PENDING_ACTIVITIES_LIMIT_EXCEEDED,
        Fails.WORKFLOW_TASK_FAILED_CAUSE_PENDING_CHILD_WORKFLOWS_LIMIT_EXCEEDED,
        Fails.WORKFLOW_TASK_FAILED_CAUSE_PENDING_SIGNALS_LIMIT_EXCEEDED,
        Fails.WORKFLOW_TASK_FAILED_CAUSE_PENDING_REQUEST_CANCEL_LIMIT_EXCEEDED,
        Fails.WORKFLOW_TASK_FAILED_CAUSE_PENDING_NEXUS_OPERATIONS_LIMIT_EXCEEDED,
    }
)
OF_PAYLOADS = frozenset({*Quadrant, NoKey.__name__, CodecFailed.__name__})
"""The types of failures of a workflow task whose payloads cannot be read."""
RESET = Fails.WORKFLOW_TASK_FAILED_CAUSE_RESET_WORKFLOW
HARMLESS = frozenset(
    {
        Fails.WORKFLOW_TASK_FAILED_CAUSE_UNHANDLED_COMMAND,  # something arrived while it was being completed
        Fails.WORKFLOW_TASK_FAILED_CAUSE_UNHANDLED_UPDATE,
        Fails.WORKFLOW_TASK_FAILED_CAUSE_RESET_STICKY_TASK_QUEUE,
        Fails.WORKFLOW_TASK_FAILED_CAUSE_FORCE_CLOSE_COMMAND,
        Fails.WORKFLOW_TASK_FAILED_CAUSE_FAILOVER_CLOSE_COMMAND,
        Fails.WORKFLOW_TASK_FAILED_CAUSE_WORKFLOW_PAUSE_REQUESTED_BEFORE_TASK_STARTED,
    }
)
"""Causes of failures by the server itself, which schedules the workflow task again at once."""


class FailingTask(BaseModel, frozen=True):
    """A running task whose workflow task has failed, and was not completed since."""

    cause: Cause
    message: str
    """The message of the failure, from the worker: untrusted content, on one line, cut to MAX_MESSAGE characters."""
    attempt: int
    """The attempt of the workflow task that runs or comes next; 0 if the server does not say."""
    since: datetime
    """The time of the first failure; for the cause REPLAY, the time of the failed query."""
    is_taken: bool = Field(default=True, exclude=True)
    """Whether a worker has started the current attempt."""
    failures: int = Field(default=0, exclude=True)
    """The number of failures in the history; `attempt` can be smaller, since a Signal restarts its count."""
    workflow_id: str = Field(exclude=True)
    task_id: str = Field(exclude=True)
    """The id of the task; for a rollback, of the task whose effects it undoes."""
    queue: str = Field(exclude=True)
    event: int = Field(default=0, exclude=True)
    """The event id of the newest failure; 0 if the history has none."""
    step: str | None = Field(default=None, exclude=True)
    """The newest step to which `reset` may go back; None if there is none, or if it was not looked up."""

    @property
    def is_sure(self) -> bool:
        """Whether the workflow task has failed so often (see SURE) that it will fail again."""
        return max(self.attempt, self.failures) >= SURE

    @property
    def reason(self) -> str:
        """What happened, in a sentence without its full stop."""
        detail = f" ({self.message.rstrip('.')})" if self.message else ""
        if self.cause is Cause.REPLAY:
            return f"Task {self.workflow_id!r} is running, but {WHY[self.cause]}{detail}"
        return f"Task {self.workflow_id!r} cannot go on, since {self.short}{detail}"

    @property
    def short(self) -> str:
        """A short form of `reason` for a line whose end may be cut: without the task's id and the worker's message."""
        tries = [f"attempt {self.attempt}"] if self.attempt > 1 else []
        tries += [f"since {self.since:%Y-%m-%d %H:%M:%SZ}"] if self.cause is not Cause.REPLAY else []
        often = f" ({', '.join(tries)})" if tries else ""
        return f"its workflow task fails{often}; {WHY[self.cause]}"

    @property
    def remedy(self) -> Text:
        start = start_worker(self.queue)
        serve = () if self.is_taken else (" (no worker has it now: ", start, ")")
        return Text(self.cure, *serve, "; ", self._else)

    @property
    def may_heal(self) -> bool:
        """Whether the task may recover without a person, as when a store is available again or a worker continues."""
        return self.cause in (Cause.PAYLOAD, Cause.TIMEOUT)

    @property
    def cure(self) -> str:
        """The best remedy for the cause, as a clause."""
        match self.cause:
            case Cause.PAYLOAD:
                return f"it goes on by itself{SOON} when the store is back, or a worker has the right store and keys"
            case Cause.LIMIT:
                return f"run workers whose code and tools ask for less, and it goes on by itself{SOON}"
            case Cause.TIMEOUT:
                return "see the logs of the workers: restart one that hangs, mend the code where one broke"
            case _:
                return f"run workers with the earlier code, or with code that is fixed, and it goes on by itself{SOON}"

    @property
    def _else(self) -> Text:
        """The other remedies: a task can be reset or terminated, a rollback only terminated and started again."""
        ends = printable(f"`temporal workflow terminate -w {shlex.quote(self.workflow_id)}`") + " ends it"
        if self.task_id != self.workflow_id:
            return Text(ends, ", and ", Remedy("undo", self.task_id), " begins anew")
        reset = Remedy("reset", self.task_id, {"to": self.step or ""})
        back = (reset, " goes on from before that step, or ") if self.step else ()
        effects, undo = Remedy("effects", self.task_id), Remedy("undo", self.task_id)
        return Text("or ", *back, ends, ", then ", effects, " lists what stays and ", undo, " takes it back")

    def document(self, door: Door) -> dict[str, Any]:
        """The failing task as JSON; `door` formats the remedies for the reader."""
        return {**self.model_dump(mode="json"), "reason": f"{self.reason}.", "remedy": f"{render(self.remedy, door)}."}

    def problem(self) -> Problem:
        return Problem("workflow_task_fails", self.reason, self.remedy, ProblemKind.NEEDS_PERSON)


async def failing(client: Client, description: WorkflowExecutionDescription) -> FailingTask | None:
    """The FailingTask of a running workflow; None if its workflow task does not fail."""
    pending = description.raw_description.pending_workflow_task
    is_taken = pending.state == PendingWorkflowTaskState.PENDING_WORKFLOW_TASK_STATE_STARTED
    if not description.raw_description.HasField("pending_workflow_task") or (is_taken and pending.attempt == 1):
        return None
    # A later attempt, or one that no worker has started: the history tells whether earlier ones failed.
    streak, id = [event async for event in _streak(client, description)], description.id
    found = await of_streak(streak, converter_of(client, id), id, description.task_queue, pending.attempt)
    if found is None:
        return None
    undone = id.removeprefix(reset_rollback_id("")).removeprefix(rollback_id(""))
    task_id = undone if description.workflow_type == ROLLBACK else id
    return found.model_copy(update={"is_taken": is_taken, "task_id": task_id})


async def of_streak(
    streak: Sequence[HistoryEvent], converter: DataConverter, id: str, queue: str, attempt: int
) -> FailingTask | None:
    """The FailingTask for `streak`: the failures of the workflow task since its last completion, the newest first.

    None without failures, or if all failures are timeouts and `attempt` is below `SURE`.
    """
    failed = [event for event in streak if event.HasField("workflow_task_failed_event_attributes")]
    if not failed and (not streak or attempt < SURE):  # a worker that was killed once is no news
        return None
    newest, first = (failed or streak)[0], streak[-1]
    attributes = newest.workflow_task_failed_event_attributes
    cause = await _cause(attributes.cause, attributes.failure, converter) if failed else Cause.TIMEOUT
    raised = attributes.failure.application_failure_info.type if cause is Cause.UNHANDLED else ""
    message = await _message(attributes.failure, converter) if failed else ""
    return FailingTask(
        cause=cause,
        message=cut(one_line(": ".join(filter(None, [raised, message]))), MAX_MESSAGE),
        attempt=attempt,
        failures=len(streak),
        since=first.event_time.ToDatetime(UTC),
        workflow_id=id,
        task_id=id,
        queue=queue,
        event=newest.event_id,
    )


async def _message(failure: Failure, converter: DataConverter) -> str:
    """The message of a failure, also of one whose attributes are encrypted, if the key is here."""
    if failure.HasField("encoded_attributes"):
        with suppress(*UNREADABLE, ApplicationError):
            [attributes] = await converter.decode([failure.encoded_attributes])
            return str(attributes["message"])
        return ""
    return failure.message


def is_failure(event: HistoryEvent) -> bool:
    """Whether a worker failed a workflow task, or kept it until its timeout."""
    if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT:
        return event.workflow_task_timed_out_event_attributes.timeout_type == TimeoutType.TIMEOUT_TYPE_START_TO_CLOSE
    is_failed = event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED
    return is_failed and event.workflow_task_failed_event_attributes.cause not in HARMLESS | {RESET}


def unanswered(description: WorkflowExecutionDescription, message: str) -> FailingTask:
    """The FailingTask of a workflow whose worker answered the query for its state with the error `message`."""
    return FailingTask(
        cause=Cause.REPLAY,
        message=cut(one_line(message), MAX_MESSAGE),
        attempt=0,
        since=datetime.now(UTC),
        workflow_id=description.id,
        task_id=description.id,
        queue=description.task_queue,
    )


async def _streak(client: Client, description: WorkflowExecutionDescription) -> AsyncIterator[HistoryEvent]:
    request = GetWorkflowExecutionHistoryReverseRequest(
        namespace=client.namespace,
        execution=WorkflowExecution(workflow_id=description.id, run_id=description.run_id),
        maximum_page_size=PAGE,
    )
    for _ in range(MAX_PAGES):
        page = await client.workflow_service.get_workflow_execution_history_reverse(request)
        for event in page.history.events:  # the newest first
            is_reset = event.workflow_task_failed_event_attributes.cause == RESET
            if is_reset or event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED:
                return  # failures before it no longer count
            if is_failure(event):
                yield event
        if not page.next_page_token:
            return
        request.next_page_token = page.next_page_token


async def _cause(server_cause: int, failure: Failure, converter: DataConverter) -> Cause:
    if server_cause == Fails.WORKFLOW_TASK_FAILED_CAUSE_NON_DETERMINISTIC_ERROR:
        return Cause.NONDETERMINISM
    if server_cause in LIMITS:
        return Cause.LIMIT
    if server_cause == Fails.WORKFLOW_TASK_FAILED_CAUSE_EXTERNAL_STORAGE_FAILURE or await _is_fault(failure, converter):
        return Cause.PAYLOAD
    return Cause.UNHANDLED


async def _is_fault(failure: Failure, converter: DataConverter) -> bool:
    """Whether a failure or one of its causes has a `Fault`: in a workflow task, stores and keyrings raise faults."""
    while True:
        if failure.application_failure_info.type in OF_PAYLOADS:  # the details may be encrypted
            return True
        details = failure.application_failure_info.details.payloads
        with suppress(*UNREADABLE):  # the codec is missing here
            if details and parse_faults(await converter.decode(details[:1])):
                return True
        if not failure.HasField("cause"):
            return False
        failure = failure.cause
