"""The store of a task queue: which one its workers use stands at the server, and every worker that starts reads it.

The record is a workflow that never runs: its id names the queue, its memo the store. The server lets only one workflow
with an id be open, so of two workers that start at the same moment with two stores, one loses. Memo and id are not
encrypted.
"""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog
from google.protobuf.duration_pb2 import Duration
from temporalio.api.common.v1 import Memo, Payload, WorkflowExecution, WorkflowType
from temporalio.api.enums.v1 import TaskQueueType, WorkflowExecutionStatus, WorkflowIdConflictPolicy
from temporalio.api.sdk.v1 import UserMetadata
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import (
    DescribeTaskQueueRequest,
    DescribeWorkflowExecutionRequest,
    StartWorkflowExecutionRequest,
    TerminateWorkflowExecutionRequest,
)
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from runtime.client import REFUSALS, RPC_TIMEOUT
from workflows.faults import retries
from workflows.task_queues import control_queue

TYPE = "QueueStore"
"""The type of the workflows that are records; no worker has it."""
ID, PLACE = "store", "place"
"""The keys of the memo: the id of the store, and where it is."""
FIRST_LOOK, LOOK_SECONDS = 1.0, 10.0
"""Seconds until a worker reads the record again after it began to serve, and between two times after that."""
END_SECONDS = 2.0
"""The most seconds for which the record holds up the end of a worker."""
LATELY = timedelta(seconds=70)
"""A worker whose last poll is older does not count as running: an idle worker polls again within a minute."""

log = structlog.get_logger("replan.worker")


@dataclass(frozen=True)
class NamedStore:
    """A store, by its id and where it is."""

    id: str
    place: str = ""

    def __str__(self) -> str:
        if not (self.id and self.place):  # it is not made yet, or only a task of it is known
            return self.place or self.id
        return f"{self.place} (id {self.id})"


@dataclass(frozen=True)
class Record:
    """What the server has of a queue."""

    store: NamedStore
    run_id: str


class OtherStore(Exception):
    """The queue has another store than this worker; the message names both, and says what to do."""

    def __init__(self, queue: str, theirs: NamedStore, own: NamedStore, why: str, more: str = "") -> None:
        super().__init__(
            f"The queue {queue} has the store {theirs}, and this worker has {own}: {why}. With two stores, an effect"
            " could be applied twice. Start this worker with the store of the queue (--store, or --state), or give it a"
            f" queue of its own (--queue).{more}"
        )


def id_of(queue: str) -> str:
    """The id of the workflow that is the record of a queue."""
    return f"replan-store/{queue}"


async def recorded(client: Client, queue: str) -> Record | None:
    """The record of a queue; None if it has none. Raises RPCError if the server does not answer."""
    execution = WorkflowExecution(workflow_id=id_of(queue))
    request = DescribeWorkflowExecutionRequest(namespace=client.namespace, execution=execution)
    try:
        info = (
            await client.workflow_service.describe_workflow_execution(request, timeout=RPC_TIMEOUT)
        ).workflow_execution_info
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        return None
    if info.status != WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_RUNNING or ID not in info.memo.fields:
        return None
    memo = {name: str(json.loads(info.memo.fields[name].data)) for name in (ID, PLACE) if name in info.memo.fields}
    return Record(NamedStore(memo[ID], memo.get(PLACE, "")), info.execution.run_id)


async def record(client: Client, queue: str, store: NamedStore, replaced: Record | None = None) -> NamedStore:
    """Record the store of a queue unless it has a record other than `replaced`; return the store that it then has.

    Raises:
        RPCError: the server does not answer, or does not permit it.
    """
    if replaced is not None:
        await _forget(client, queue, replaced, f"The queue has {store} now.")
    request = StartWorkflowExecutionRequest(
        namespace=client.namespace,
        workflow_id=id_of(queue),
        workflow_type=WorkflowType(name=TYPE),
        task_queue=TaskQueue(name=id_of(queue)),  # which no worker polls: nothing runs even if the delay is over
        identity=client.identity,
        request_id=secrets.token_hex(16),
        workflow_id_conflict_policy=WorkflowIdConflictPolicy.WORKFLOW_ID_CONFLICT_POLICY_FAIL,
        workflow_start_delay=Duration(seconds=int(retries.LONGEST_TIMER.total_seconds())),
        memo=Memo(fields={ID: _plain(store.id), PLACE: _plain(store.place)}),
        user_metadata=UserMetadata(summary=_plain(f"the queue {queue} uses this store")),
    )
    try:
        await client.workflow_service.start_workflow_execution(request, timeout=RPC_TIMEOUT)
    except RPCError as error:
        if error.status is not RPCStatusCode.ALREADY_EXISTS:
            raise
        found = await recorded(client, queue)
        return found.store if found else await record(client, queue, store)
    return store


@asynccontextmanager
async def assigned(
    client: Client, queue: str, store: NamedStore, replaced: Record | None, fail: Callable[[str], None]
) -> AsyncIterator[None]:
    """Within the block, the queue has this store: workers that are built in the block may serve it.

    `replaced` is a record that may be replaced. `fail` is called with the reason if the queue gets another store.

    Raises:
        OtherStore: another worker was first, with another store.
        RPCError: the server does not answer.
    """
    watching = None
    try:
        found = await record(client, queue, store, replaced) if replaced else await _agreed(client, queue, store)
    except RPCError as error:
        if error.status not in REFUSALS:
            raise
        log.warning("queue_store_unknown", queue=queue, remedy="let the worker start workflows in its namespace")
    else:
        if found.id != store.id:
            raise OtherStore(queue, found, store, "another worker was first")
        watching = asyncio.create_task(_watch(client, queue, store, fail))
    try:
        yield
    finally:
        if watching is not None:
            watching.cancel()
            with suppress(RPCError, TimeoutError):
                async with asyncio.timeout(END_SECONDS):
                    await _release(client, queue, store)


async def _agreed(client: Client, queue: str, store: NamedStore) -> NamedStore:
    """The store of a queue; if it has none, this one from now on."""
    found = await recorded(client, queue)
    return found.store if found else await record(client, queue, store)


async def _watch(client: Client, queue: str, store: NamedStore, fail: Callable[[str], None]) -> None:
    """Read the record again and again, and write it again if it is gone; call `fail` if it names another store."""
    seconds = FIRST_LOOK
    while True:
        await asyncio.sleep(seconds)
        seconds = LOOK_SECONDS
        with suppress(RPCError):
            found = await _agreed(client, queue, store)
            if found.id != store.id:
                fail(str(OtherStore(queue, found, store, "it was given to another store while this one served it")))
                return


async def _release(client: Client, queue: str, store: NamedStore) -> None:
    """Delete the record if neither a task is open nor another worker serves: another store may be the next one's."""
    found = await recorded(client, queue)
    if found is None or found.store.id != store.id or await pollers(client, queue) - {client.identity}:
        return
    if not (await client.count_workflows(f'TaskQueue = "{queue}" AND CloseTime IS NULL')).count:
        await _forget(client, queue, found, "The last worker ended, and no task is open.")


async def pollers(client: Client, queue: str) -> set[str]:
    """The identities of the workers that polled this queue within the last LATELY; some may have ended since."""
    request = DescribeTaskQueueRequest(
        namespace=client.namespace,
        task_queue=TaskQueue(name=control_queue(queue)),
        task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
    )
    found = (await client.workflow_service.describe_task_queue(request, timeout=RPC_TIMEOUT)).pollers
    since = datetime.now(UTC) - LATELY
    return {poller.identity for poller in found if poller.last_access_time.ToDatetime(UTC) > since}


async def _forget(client: Client, queue: str, old: Record, reason: str) -> None:
    request = TerminateWorkflowExecutionRequest(
        namespace=client.namespace,
        workflow_execution=WorkflowExecution(workflow_id=id_of(queue), run_id=old.run_id),
        reason=reason,
        identity=client.identity,
    )
    with suppress(RPCError):  # another worker has done so: who starts the next record is who has the queue
        await client.workflow_service.terminate_workflow_execution(request, timeout=RPC_TIMEOUT)


def _plain(value: Any) -> Payload:
    return Payload(metadata={"encoding": b"json/plain"}, data=json.dumps(value).encode())
