"""The activities with which an incident is resolved: they query tasks, and signal many tasks at once."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from temporalio import activity
from temporalio.api.batch.v1 import BatchOperationSignal
from temporalio.api.common.v1 import Payloads
from temporalio.api.enums.v1 import BatchOperationState
from temporalio.api.workflowservice.v1 import DescribeBatchOperationRequest, StartBatchOperationRequest
from temporalio.client import Client, WorkflowExecution, WorkflowQueryFailedError
from temporalio.converter import WorkflowSerializationContext
from temporalio.service import RPCError, RPCStatusCode as Status

from activities.boundary.attempt import attempt_of
from activities.errors import Busy, NeedsPerson, Unreachable
from workflows.account.progress import Progress
from workflows.agent import OTHERS_MEMO, REQUEST_MEMO
from workflows.people.incidents import Batch, CanaryEnd, Fate, Gone, Look, Search, WaitingTasks, fate_of, waiting_query
from workflows.people.requests import HumanRequest, Requests
from workflows.people.updates import RESOLVE
from workflows.plans import own_activities

POLL_SECONDS = 0.5
QUERY_SECONDS = 5.0
LATER = frozenset(
    {Status.UNAVAILABLE, Status.DEADLINE_EXCEEDED, Status.INTERNAL, Status.ABORTED, Status.CANCELLED, Status.UNKNOWN}
)


@activity.defn(name=own_activities.FIND_WAITING.kind)
async def find_waiting(search: Search) -> WaitingTasks:
    """Count the tasks that wait because of a cause, and find the task that has waited longest."""
    async with attempt_of(own_activities.FIND_WAITING):
        tasks, again, first = 0, 0, None
        with _answering():
            async for row in activity.client().list_workflows(waiting_query(search.cause, search.queue)):
                about = [request for request in await _requests(row) if request.cause == search.cause]
                if about and all(waiting_request.after == search.resolution for waiting_request in about):
                    again += 1
                    continue
                tasks += 1
                since = min((waiting_request.since for waiting_request in about), default=row.start_time)
                if row.id not in search.not_ and (first is None or since < first[0]):
                    first = since, row.id
        return WaitingTasks(tasks=tasks, again=again, first=first[1] if first else None)


@activity.defn(name=own_activities.LOOK_AT_CANARY.kind)
async def look_at_canary(look: Look) -> CanaryEnd:
    """Return what became of a task that a resolution answered; PENDING if the task does not answer the Query."""
    async with attempt_of(own_activities.LOOK_AT_CANARY):
        handle = activity.client().get_workflow_handle(look.task)
        try:
            async with asyncio.timeout(QUERY_SECONDS):
                progress = await handle.query("progress", result_type=Progress)
        except (TimeoutError, WorkflowQueryFailedError):
            return CanaryEnd(fate=Fate.PENDING)
        except RPCError as error:
            return CanaryEnd(fate=Fate.GONE if error.status is Status.NOT_FOUND else Fate.PENDING)
        return fate_of(progress, look.resolution)


@activity.defn(name=own_activities.SIGNAL_WAITING.kind)
async def signal_waiting(batch: Batch) -> Gone:
    """Start the batch operation that signals all tasks, unless an earlier attempt started it, and wait for its end."""
    async with attempt_of(own_activities.SIGNAL_WAITING):
        client, resolution = activity.client(), batch.resolution
        with _answering():
            await _start(client, batch)
            describe = DescribeBatchOperationRequest(namespace=client.namespace, job_id=batch.id)
            while True:
                batch_operation = await client.workflow_service.describe_batch_operation(describe, retry=True)
                if batch_operation.state != BatchOperationState.BATCH_OPERATION_STATE_RUNNING:
                    break
                await asyncio.sleep(POLL_SECONDS)
        if batch_operation.state != BatchOperationState.BATCH_OPERATION_STATE_COMPLETED:
            reason = f"The server's batch operation {batch.id} for {resolution.cause} failed: see"
            raise NeedsPerson(f"{reason} `temporal batch describe --job-id {batch.id}`, then resolve it once more.")
        return Gone(gone=batch_operation.failure_operation_count)


async def _start(client: Client, batch: Batch) -> None:
    """Start a batch operation, unless an earlier attempt started it. Raises NeedsPerson if a codec forbids it."""
    resolution = batch.resolution
    # All tasks get the same payload, and a task fails for ever on a payload that it cannot decode.
    of_task = client.data_converter.with_context(WorkflowSerializationContext(client.namespace, "task"))
    if of_task.payload_codec is not client.data_converter.payload_codec:
        reason = "The other tasks were not told, since the payload codec has a key for each workflow"
        raise NeedsPerson(f"{reason}: answer each of them with `retry`.")
    why = f"{resolution.by or 'somebody'} resolved {resolution.cause}"
    request = StartBatchOperationRequest(
        namespace=client.namespace,
        job_id=batch.id,
        visibility_query=waiting_query(resolution.cause, batch.queue),
        reason=why,
        signal_operation=BatchOperationSignal(
            signal=RESOLVE,
            input=Payloads(payloads=await client.data_converter.encode([resolution])),
            identity=client.identity,
        ),
    )
    try:
        await client.workflow_service.start_batch_operation(request)
    except RPCError as error:
        if error.status is not Status.ALREADY_EXISTS:  # an earlier attempt started it
            raise


async def _requests(row: WorkflowExecution) -> list[HumanRequest]:
    """The open requests that a task publishes in its memo; none if they cannot be read."""
    with suppress(Exception):  # any program may start a workflow of this type, and codecs may raise anything
        oldest = await row.memo_value(REQUEST_MEMO, None, type_hint=HumanRequest)
        others = await row.memo_value(OTHERS_MEMO, Requests([]), type_hint=Requests)
        return [*([oldest] if oldest else []), *others.root]
    return []


@contextmanager
def _answering() -> Iterator[None]:
    """Inside the block, raise Busy, Unreachable or NeedsPerson in place of an RPCError of the server."""
    try:
        yield
    except RPCError as error:
        if error.status is Status.RESOURCE_EXHAUSTED:
            raise Busy("The server has too much to do, or runs another batch operation.", retry_after=5) from error
        if error.status in LATER:
            raise Unreachable("The Temporal server does not answer.") from error
        raise NeedsPerson(f"The Temporal server refuses it ({error.status.name}: {error.message}).") from error


RESOLVING = (find_waiting, look_at_canary, signal_waiting)
