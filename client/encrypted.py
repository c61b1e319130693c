"""Describes tasks whose values are encrypted, without their key: status, times, and the kinds of steps.

Runs when such a task is shown or listed, and before a value is sent to a task that cannot be read here.
"""

from contextlib import suppress

from temporalio.api.common.v1 import Payload
from temporalio.client import Client, WorkflowExecution, WorkflowExecutionDescription, WorkflowExecutionStatus
from temporalio.service import RPCError

from client.history.decoder import is_encrypted
from client.history.records import Call, CallEnd, History
from client.problem import Problem, ProblemKind
from client.remedy import Text
from client.tasks import TASKS
from runtime.payloads import NoKey
from workflows.account import search_attributes
from workflows.account.outcome import Outcome, OutcomeStep
from workflows.account.progress import Progress
from workflows.account.records import Revision, StepStatus
from workflows.account.search_attributes import is_quotable
from workflows.account.task import Task, TaskStatus
from workflows.people.requests import HumanRequest, RequestKind

NO_KEY = "no_key"
"""The code of a Problem, or of an Outcome, if the key of encrypted values is missing."""
ENCRYPTED = "(encrypted)"
"""What stands for the text of a task that cannot be read here."""
UNTOLD = "The values of this task are encrypted and their key is not here, so only status, times and kinds are told."
GIVE_KEY = Text.of("give `{keys}` or set REPLAN_CODEC, as the workers have it")
"""The remedy where the key of an encrypted task is missing."""


def no_key(error: NoKey) -> Problem:
    """The Problem of an action that needs a key that is missing here."""
    return Problem(NO_KEY, error.args[0].removesuffix("."), GIVE_KEY, ProblemKind.FAILED)


async def require_key(execution: WorkflowExecution) -> None:
    """Raise Problem if the task is encrypted and the key is missing here: values sent to it would be in clear."""
    if found := await _unreadable_memo_payload(execution):
        raise no_key(NoKey(found.metadata.get("encoding", b"").decode(errors="replace")))


async def require_key_of_queue(client: Client, queue: str) -> None:
    """Raise Problem if tasks of a task queue are encrypted and cannot be read here: a new task would be in clear.

    Only one task is checked, a running task if there is any.
    """
    if client.data_converter.payload_codec is not None or not is_quotable(queue):
        return
    with suppress(RPCError):  # whoever starts the task is told
        async for row in client.list_workflows(f"{TASKS} AND TaskQueue = '{queue}'", limit=1):
            if await is_sealed(row):
                reason = f"Task {row.id!r} of queue {queue} is encrypted, and a task from here would be in clear"
                raise Problem(NO_KEY, reason, Text(GIVE_KEY, ", or choose another queue"), ProblemKind.FAILED)


async def is_sealed(execution: WorkflowExecution) -> bool:
    """Whether the memo of a task is encrypted, and cannot be read here."""
    return await _unreadable_memo_payload(execution) is not None


async def _unreadable_memo_payload(execution: WorkflowExecution) -> Payload | None:
    for payload in execution.raw_info.memo.fields.values():
        if is_encrypted(payload):
            try:
                await execution.data_converter.decode([payload])
            except Exception:  # codecs may raise anything
                return payload
            return None
    return None


def sealed_outcome(history: History, description: WorkflowExecutionDescription) -> Outcome:
    """The Outcome of a task so far or of its end, from its events without their payloads."""
    known = {attribute.key.name: attribute.value for attribute in description.typed_search_attributes}
    progress = Progress(
        task=Task(text=ENCRYPTED),
        task_id=description.id,
        started_at=history.started_at or description.start_time,
        planner=known.get(search_attributes.PLANNER.name) or "",
        replans=known.get(search_attributes.REPLANS.name) or 0,
    )
    status = _status(description, str(known.get(search_attributes.STATUS.name, "")))
    outcome = progress.outcome(description.close_time or history.last_at)
    steps = {call.id: call for call in history.calls if call.is_step}
    return outcome.model_copy(
        update={
            "status": status,
            "reason": UNTOLD,
            "code": NO_KEY,
            "ended_at": description.close_time,
            "strategy": known.get(search_attributes.STRATEGY.name) or outcome.strategy,
            "revisions": (Revision(number=1),) if steps else (),  # the steps are shown below a plan
            "steps": tuple(_outcome_step(call, history.of_step(id)) for id, call in steps.items()),
        }
    )


def sealed_request(execution: WorkflowExecution, cause: str = "") -> HumanRequest:
    """A placeholder for a request that cannot be read here; `since` and `until` are the start of the task."""
    since = execution.start_time
    return HumanRequest(
        id="", kind=RequestKind.FAULT, code=NO_KEY, reason=UNTOLD, since=since, until=since, choices=(), cause=cause
    )


def _status(description: WorkflowExecutionDescription, published_status: str) -> TaskStatus:
    if description.status is WorkflowExecutionStatus.RUNNING:
        return TaskStatus.WAITING if published_status == TaskStatus.WAITING else TaskStatus.RUNNING
    if description.status is WorkflowExecutionStatus.COMPLETED:
        return TaskStatus.COMPLETED
    if description.status is WorkflowExecutionStatus.CANCELED:
        return TaskStatus.CANCELLED
    ended = (TaskStatus.ESCALATED, TaskStatus.OVER_BUDGET)
    return TaskStatus(published_status) if published_status in ended else TaskStatus.FAILED


def _outcome_step(last: Call, calls: list[Call]) -> OutcomeStep:
    return OutcomeStep(
        id=last.id,
        kind=last.kind,
        title=last.id,
        status=StepStatus(last.closed) if last.closed else StepStatus.RUNNING,
        attempts=sum(max(1, call.attempt) for call in calls),
        started=calls[0].started_at or calls[0].at,
        ended=last.ended_at,
        result_omitted=last.closed is CallEnd.COMPLETED,
    )
