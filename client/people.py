"""Answers the requests of a task on behalf of a person.

Runs when a person is shown the requests of a task, and when the person answers one, at any door.
"""

import asyncio
import getpass
import re
import secrets
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

from pydantic import ValidationError
from temporalio.client import (
    WorkflowExecution,
    WorkflowExecutionStatus,
    WorkflowUpdateFailedError,
    WorkflowUpdateHandle,
    WorkflowUpdateRPCTimeoutOrCancelledError,
    WorkflowUpdateStage,
)
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from client.encrypted import require_key
from client.pauses import require_resumed
from client.problem import Problem, ProblemKind, wrong_value
from client.remedy import Argument, Remedy, Text, start_worker
from client.tasks import BY_MEMO, TASK_MEMO, Handle, memo_field, query_progress
from client.vouching import Voucher
from workflows.agent import OTHERS_MEMO, REQUEST_MEMO
from workflows.commands import Option
from workflows.json_values import digest
from workflows.people.card import Asker
from workflows.people.requests import (
    CHOICES,
    MAX_NAME,
    Choice,
    Given,
    HumanRequest,
    NotAccepted,
    Requests,
    find_request,
    missing_options,
)

TAKEN_WITHIN = timedelta(seconds=8)
"""How long a worker may take to accept an answer."""
CHECKED_WITHIN = timedelta(seconds=60)
"""How long the check of a provided result may take before it is no longer waited for."""
COMPLETED_WORKFLOW = "AcceptedUpdateCompletedWorkflow"
"""The type of the failure of an accepted Update whose run was closed before the Update was completed."""


def login_name() -> str:
    """The name of the user who runs this process; empty if the user has no name."""
    with suppress(OSError, KeyError):  # Python 3.13 raises only OSError
        return getpass.getuser()[:MAX_NAME]
    return ""


def given_with(choice: Choice, fields: Mapping[str, Any]) -> Given:
    """The values sent with an answer; `by` is by default the login name. Raises Problem for a wrong or missing one."""
    try:
        given = CHOICES[choice].given(**{"by": login_name(), **fields})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise wrong_value(str(first["loc"][0]), first) from error
    if missing := missing_options(choice, given):
        raise _missing(choice, missing)
    return given


def _missing(choice: Choice, options: Sequence[Option]) -> Problem:
    names = [part for option in options for part in (" or ", Argument(option.name))][1:]
    remedy = f"it is {options[0].label}" if len(options) == 1 else "it says how much more"
    problem = Problem("usage", Text(f"The answer {choice.value} needs ", *names), remedy)
    problem.argument = options[0].name
    return problem


def reference_to(request: HumanRequest, choice: Choice) -> dict[str, Any]:
    """The fields with which an answer names what the person saw. Raises Problem if no worker has reported the call."""
    if not CHOICES[choice].needs_code:
        return {"request": request.id}
    if request.call is None:
        reason = f"No worker has told which call the request {request.id} is about, so nobody can {choice} it yet"
        remedy = "ask for the open requests again, until one has its `call`; a busy worker tells it later"
        raise Problem("not_taken", reason, remedy, ProblemKind.UNREACHABLE)
    others = {"others": [call.code for call in request.others]} if choice is Choice.APPROVE_ALL else {}
    return {"request": request.id, "call": request.call.code, **others}


async def open_requests(handle: Handle) -> list[HumanRequest]:
    """The open requests of a task, the oldest first. If no worker answers, only the oldest, as far as it is published.

    Raises:
        WorkflowQueryFailedError: the worker answers with an error.
    """
    description = await handle.describe()
    if description.status is not WorkflowExecutionStatus.RUNNING:
        return []
    await require_key(description)
    if progress := await query_progress(handle):
        return progress.open_requests
    oldest = await oldest_request(description)
    return [oldest] if oldest else []


async def asker(handle: Handle) -> Asker:
    """The data of the task that the card of a request shows, from the memo of the task."""
    description = await handle.describe()
    text, by = await memo_field(description, TASK_MEMO, str), await memo_field(description, BY_MEMO, str)
    return Asker(handle.id, text or "", by or "")


async def request_to_approve(handle: Handle, id: str | None = None) -> HumanRequest:
    """The open request for an approval with this id, or the only one, with the call that is to be approved.

    Raises:
        Problem: there is no such request, there are several, or no worker answers, so that nobody can see the call.
    """
    description = await handle.describe()
    if description.status is not WorkflowExecutionStatus.RUNNING:
        raise _closed(handle.id)
    await require_key(description)
    require_resumed(description)
    progress = await query_progress(handle)
    if progress is None:
        raise _not_taken(handle.id, description.task_queue)
    opened = [request for request in progress.open_requests if request.call and id in (None, request.id)]
    if len(opened) == 1:
        return opened[0]
    ids = ", ".join(request.id for request in opened)
    reason = f"Several calls wait for an approval: {ids}" if opened else "No such call waits for an approval"
    which = ("; name one with ", Argument("request")) if opened else ()
    remedy = Text(Remedy("answer", handle.id), " shows what is asked", *which)
    raise Problem("not_accepted", reason, remedy, ProblemKind.FAILED)


async def oldest_request(execution: WorkflowExecution) -> HumanRequest | None:
    """The oldest open request of a task, from its memo; None if there is none or it cannot be read."""
    return await memo_field(execution, REQUEST_MEMO, HumanRequest)


async def open_incidents(execution: WorkflowExecution) -> list[HumanRequest]:
    """The open requests of a task with a cause that other tasks may share, from its memo, the oldest first."""
    oldest, others = await oldest_request(execution), await memo_field(execution, OTHERS_MEMO, Requests)
    return [request for request in [*([oldest] if oldest else []), *(others.root if others else [])] if request.cause]


async def answer(
    handle: Handle, choice: Choice, key: str | None = None, /, *, voucher: Voucher | None = None, **fields: Any
) -> str | None:
    """Answer a request of a task, and return the task's reply; None if the task does not reply in time.

    The same answer to the same request, or with the same `key`, is one Update, however often it is sent. If it is sent
    again after the task has ended, the reply of the last run is returned; an Update that an earlier run accepted is not
    found. `fields` are the values of the answer. A `voucher` signs who answers; then `by` is its person.

    Raises:
        Problem: a value cannot be sent, the task does not accept the answer, or no worker took it in time.
    """
    sent = given_with(choice, {**fields, **({"by": voucher.person} if voucher else {})})
    description = await handle.describe()
    await require_key(description)
    id = await _update_id(description, choice, sent, key)
    if description.status is not WorkflowExecutionStatus.RUNNING:
        return await _earlier_reply(handle, id)
    require_resumed(description)
    if voucher is not None:
        sent = await _vouched(handle, choice, sent, voucher, description)
    until = time.monotonic() + TAKEN_WITHIN.total_seconds()
    while True:
        try:
            return await _reply_in_time(handle.id, await _send(handle, choice, sent, id, until, description.task_queue))
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
        # The run has ended meanwhile, perhaps to continue as new: the new run knows which Updates the old one accepted.
        if (await handle.describe()).status is not WorkflowExecutionStatus.RUNNING:
            return await _earlier_reply(handle, id)
        if time.monotonic() > until:
            raise _not_taken(handle.id, description.task_queue)


async def _vouched(
    handle: Handle, choice: Choice, sent: Given, voucher: Voucher, execution: WorkflowExecution
) -> Given:
    """An answer with what its door signs; as it is, if there is no request that it could be for."""
    progress = await query_progress(handle)
    if progress is None:
        raise _not_taken(handle.id, execution.task_queue)
    request = None
    try:
        request = find_request(progress.requests, choice, sent)
    except NotAccepted:
        if choice is not Choice.EXTEND:  # which a task takes also if it asks nothing
            return sent  # the task itself says it
    where = (execution.namespace, handle.id, execution.run_id)
    return sent.model_copy(update={"statement": voucher.of_answer(choice, sent, request, where)})


def still_needed(said: str | None) -> int:
    """How many more people must give the same answer, from the reply of a task; 0 if none must."""
    found = re.search(r"\((\d+) of (\d+)\)$", said or "")
    return int(found[2]) - int(found[1]) if found else 0


async def _update_id(execution: WorkflowExecution, choice: Choice, sent: Given, key: str | None) -> str:
    oldest = None if sent.request or key else await oldest_request(execution)
    request = sent.request or (oldest.id if oldest and choice in oldest.choices else "")
    # Without a request, a later answer in the same words is another answer.
    about = digest(key)[:12] if key else request or secrets.token_hex(6)
    given = sent.model_dump(mode="json", exclude={"request", "statement"})
    return f"{about}-{choice.value}-{digest(given)[:16]}"


async def _send(
    handle: Handle, choice: Choice, sent: Given, id: str, until_monotonic: float, queue: str
) -> WorkflowUpdateHandle[str]:
    sending = asyncio.create_task(
        handle.start_update(
            choice.value,
            sent.model_dump(mode="json", exclude_unset=True),
            wait_for_stage=WorkflowUpdateStage.ACCEPTED,
            id=id,
            result_type=str,
        )
    )
    try:
        await asyncio.wait([sending], timeout=max(0.0, until_monotonic - time.monotonic()))
        if not sending.done():
            raise _not_taken(handle.id, queue)
        return sending.result()
    finally:
        if not sending.done():
            sending.cancel()
            with suppress(WorkflowUpdateRPCTimeoutOrCancelledError):
                await sending


async def _reply_in_time(task_id: str, update: WorkflowUpdateHandle[str]) -> str | None:
    try:
        return await update.result(rpc_timeout=CHECKED_WITHIN)
    except WorkflowUpdateRPCTimeoutOrCancelledError:
        current = asyncio.current_task()
        if current and current.cancelling():
            raise asyncio.CancelledError from None
        return None
    except WorkflowUpdateFailedError as failure:
        cause = failure.cause
        if isinstance(cause, ApplicationError) and cause.type == COMPLETED_WORKFLOW:
            return None
        message = cause.message if isinstance(cause, ApplicationError) else str(cause)
        remedy = Text(Remedy("answer", task_id), " shows what it asks now")
        raise Problem("not_accepted", message, remedy, ProblemKind.FAILED) from failure


async def _earlier_reply(handle: Handle, id: str) -> str | None:
    """The reply of an ended task to the Update `id`. Raises Problem if the Update did not reach it before its end."""
    try:
        return await _reply_in_time(handle.id, handle.get_update_handle(id, result_type=str))
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        raise _closed(handle.id) from None


def _closed(id: str) -> Problem:
    reason = f"Task {id!r} has ended, and takes no answer"
    return Problem("closed", reason, Text(Remedy("show", id), " shows how"), ProblemKind.FAILED)


def _not_taken(id: str, queue: str) -> Problem:
    reason = f"No worker has taken the answer to task {id!r} yet, and one that starts soon may still take it"
    remedy = Text(Remedy("show", id), " tells, and ", start_worker(queue), " starts one")
    return Problem("not_taken", reason, remedy, ProblemKind.UNREACHABLE)
