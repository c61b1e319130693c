"""`reset`: a task goes on from just before a step, in a new run of the same task."""

import secrets
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

from google.protobuf.message import Message
from temporalio.api.common.v1 import Payload, WorkflowExecution
from temporalio.api.enums.v1 import ResetReapplyExcludeType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import Client, WorkflowExecutionStatus

from console import calls, document, tools
from console.calls import UNREADABLE, Call, Calls
from console.cells import printable
from console.connection import ui_url
from console.options import Common
from console.outcome import Handle
from console.problem import Exit, Problem
from console.results import reference_of
from console.shown import starter
from workflows.inspect import Claim, Inquiry
from workflows.plan import nearest
from workflows.task import Task

MAX_NAMED = 5


async def reset(client: Client, handle: Handle, common: Common, *, to: str, why: str | None) -> int:
    """Begin a new run of a task that keeps what happened before `to` was first scheduled, and its keys.

    Raises:
        Problem: the task has no such step, it never started, what it did would be done twice, its deadline passed, or
            the store does not have what the new run needs.
    """
    seen = await handle.describe()
    this_run = client.get_workflow_handle(handle.id, run_id=seen.run_id)
    events = (await this_run.fetch_history()).events
    made = await calls.read(events, client.data_converter)
    step = _step(made, to, handle.id, events)
    _refuse_twice(made, step, handle.id)
    await _refuse_late(client, events, handle.id)
    await require_payloads(client, await common.at(handle), [one for one in events if one.event_id <= step.task])
    request = ResetWorkflowExecutionRequest(
        namespace=client.namespace,
        workflow_execution=WorkflowExecution(workflow_id=handle.id, run_id=seen.run_id),
        reason=why or f"starter.py reset --to {to}",
        workflow_task_finish_event_id=step.task,
        request_id=secrets.token_hex(16),
        reset_reapply_exclude_types=[ResetReapplyExcludeType.RESET_REAPPLY_EXCLUDE_TYPE_CANCEL_REQUEST],
        identity=client.identity,
    )
    run_id = (await client.workflow_service.reset_workflow_execution(request)).run_id
    if seen.status is WorkflowExecutionStatus.RUNNING:
        after = await calls.read((await this_run.fetch_history()).events, client.data_converter)
        _refuse_overtaken(made, after, step, handle.id)
    _say(client, handle.id, run_id, step, common)
    return Exit.COMPLETED


def _step(made: Calls, to: str, id: str, events: Sequence[HistoryEvent]) -> Call:
    step = made.first(to)
    if step is not None:
        return step
    called = list(dict.fromkeys(call.id for call in made.all))
    if to in made.planned:
        reason = f"Step {to!r} of task {id!r} never started"
        raise Problem("not_started", reason, f"reset to one that did: {_names(called)}")
    continued = events[0].workflow_execution_started_event_attributes.continued_execution_run_id
    whose = f"The newest run of task {id!r}, which continues another," if continued else f"Task {id!r}"
    reason = f"{whose} has no step {to!r}{nearest(to, called).rstrip('?')}"
    remedy = f"reset to one of {_names(called)}" if called else "it has not begun; `--again` starts it anew"
    raise Problem("unknown_step", reason, remedy)


def _refuse_twice(made: Calls, step: Call, id: str) -> None:
    twice = made.undone_by(step)
    if not twice:
        return
    one = twice[-1]
    free = [call.id for call in made.all if not made.undone_by(call) and made.first(call.id) == call]
    reason = f"Going back to {step.id!r} would do {one.id!r} again, which {one.change} ({one.kind}, event {one.event})"
    if one.closed is None:
        remedy = f"wait until it has ended, or stop the task with `{starter('cancel', id)}`"
    elif free:
        remedy = f"reset to what came after it: {_names(free)}"
    else:
        remedy = "start a new task for what is left to do"
    raise Problem("changed_world", reason, remedy, Exit.FAILED)


async def _refuse_late(client: Client, events: Sequence[HistoryEvent], id: str) -> None:
    """A deadline counts from the first start, so a task that is past it would only end again."""
    began = events[0].workflow_execution_started_event_attributes
    try:
        task: Task = (await client.data_converter.decode(began.input.payloads[:1], [Task]))[0]
    except UNREADABLE:  # a codec that is not here: the server will tell
        return
    start = events[0].event_time.ToDatetime(UTC)
    if task.limits.deadline and start + timedelta(seconds=task.limits.deadline) <= datetime.now(UTC):
        reason = f"The deadline of task {id!r}, {task.limits.deadline:g} s after its start, has passed"
        raise Problem("deadline", reason, "start a new task", Exit.FAILED)


async def require_payloads(client: Client, common: Common, events: Sequence[HistoryEvent]) -> None:
    """Have a worker look whether all is there that these events only refer to.

    Raises:
        Problem: something is not, or no worker tells.
    """
    claims = {text: claim for event in events for text, claim in _claims(event)}
    if not claims:
        return
    lacks = (await tools.ask(client, common, Inquiry(about="claims", claims=tuple(claims.values())))).lacks
    if lacks is None:
        remedy = "restart it on the version of this console"
        raise Problem("old_worker", "The worker is too old to look for large results", remedy, Exit.FAILED)
    if lacks:
        reason = f"The new run would lack what the old one had ({lacks.rstrip('.')})"
        raise Problem("payload_lost", reason, "start a new task for what is left to do", Exit.FAILED)


def _claims(message: Message) -> Iterator[tuple[str, Claim]]:
    """What a message of the history refers to in a worker's store, each with a text that tells it from others."""
    if isinstance(message, Payload):
        if reference := reference_of(message):
            claim = Claim(driver=reference.driver_name, data=dict(reference.claim_data))
            yield claim.model_dump_json(), claim
        return
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        one_map = field.message_type.GetOptions().map_entry
        inner = value.values() if one_map else value if field.is_repeated else (value,)
        for item in inner:
            if isinstance(item, Message):
                yield from _claims(item)


def _refuse_overtaken(before: Calls, after: Calls, step: Call, id: str) -> None:
    """Tell of what the old run did in the world between the look at it and its end."""
    known = {(call.event, call.change) for call in before.all}
    new = [call for call in after.undone_by(step) if (call.event, call.change) not in known]
    if new:
        reason = f"The task was reset, but meanwhile its old run had called {new[-1].id!r}, which {new[-1].change}"
        remedy = f"stop it with `{starter('cancel', id)}` unless that may happen twice"
        raise Problem("overtaken", reason, remedy, Exit.FAILED)


def _say(client: Client, id: str, run_id: str, step: Call, common: Common) -> None:
    place = ui_url(client.service_client.config.target_host, client.namespace, id)
    if common.json:
        fields = {"task_id": id, "run_id": run_id, "to": step.id, "event": step.task, "ui_url": place}
        print(document.of_anything(fields))
        return
    print(printable(f"{id} goes on from before {step.id} (event {step.task})."))
    print(f"Follow: {starter('show', id, '--follow')}")


def _names(ids: Sequence[str]) -> str:
    return ", ".join(ids[:MAX_NAMED]) + (", ..." if len(ids) > MAX_NAMED else "")
