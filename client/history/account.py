"""Computes the account of a task with a local replay of the workflow's code, if its history has no account.

Runs when the history of a task is read that runs, or that was closed from outside, and when its journal is wanted; a
task that ends by itself writes its account, as its Outcome. No worker is asked, and values in a store are not read:
each decision that the workflow makes by such a value is in the history, too.
"""

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from contextvars import ContextVar
from functools import cache
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.client import WorkflowHistory
from temporalio.converter import (
    DataConverter,
    ExternalStorage,
    StorageDriver,
    StorageDriverClaim,
    StorageDriverRetrieveContext,
    StorageDriverStoreContext,
)
from temporalio.runtime import Runtime, TelemetryConfig
from temporalio.worker import (
    ExecuteWorkflowInput,
    Interceptor,
    Replayer,
    UnsandboxedWorkflowRunner,
    WorkflowInboundInterceptor,
    WorkflowInstance,
    WorkflowInstanceDetails,
    WorkflowInterceptorClassInput,
)

from runtime.payloads import NoKey, adapted, with_drivers_of
from workflows.account.progress import Progress
from workflows.agent import AgentWorkflow
from workflows.calls.interceptor import CallInterceptor
from workflows.plans.references import PRUNED_ENCODING

T = TypeVar("T")

STORES = ("replan-store", "aws.s3driver")
"""The names of the workers' storage drivers, in the references of histories."""


async def replayed_progress(task_id: str, events: Sequence[HistoryEvent], converter: DataConverter) -> Progress | None:
    """The state of a task after the events of its newest run; None if this version cannot read or replay them."""
    storeless = without_store(converter)
    if not has_workflow_task(events):
        return None
    if not await _has_key(storeless, events[0].workflow_execution_started_event_attributes.input.payloads):
        return None
    recorder = _ProgressRecorder()
    replayer = Replayer(
        workflows=[AgentWorkflow],
        data_converter=storeless,
        interceptors=[CallInterceptor(), recorder],
        workflow_runner=_RecordingRunner(recorder),
        runtime=_runtime(),
    )
    _keep_quiet()
    token = _REPLAYS.set(True)  # also for the tasks that the replay begins
    try:
        result = await replayer.replay_workflow(WorkflowHistory(task_id, events), raise_on_replay_failure=False)
    finally:
        _REPLAYS.reset(token)
    return recorder.progress if result.replay_failure is None else None


async def gathered(*work: Coroutine[Any, Any, T]) -> list[T]:
    """The results of coroutines, as of `asyncio.gather`; if one fails, the others are cancelled, and have ended.

    Needed for work that may replay histories.
    """
    # Else asyncio.run cancels them, and with them the tasks of the SDK's Replayer, which then waits for ever.
    tasks = [asyncio.create_task(coroutine) for coroutine in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def has_workflow_task(events: Sequence[HistoryEvent]) -> bool:
    """Whether the server has scheduled a workflow task: the replay of a history without one, e.g. of a delayed start,
    has nothing to do, and does not end."""
    return any(event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_SCHEDULED for event in events)


_REPLAYS = ContextVar("replays", default=False)
"""Whether the running code belongs to a replay."""


async def _has_key(converter: DataConverter, task: Sequence[Payload]) -> bool:
    """False if the input of a task is encrypted and the converter lacks the key, so that no replay can begin."""
    try:
        await converter.decode(task)
    except Exception as error:  # codecs and converters may raise anything; the replay then does what a worker would
        return not isinstance(error, NoKey)
    return True


@cache
def _keep_quiet() -> None:
    """Drop the log records of the SDK's worker in a replay, such as the traceback if payloads cannot be read."""
    for name in ("_workflow", "_workflow_instance"):
        logging.getLogger(f"temporalio.worker.{name}").addFilter(lambda _: not _REPLAYS.get())


@cache
def _runtime() -> Runtime:
    return Runtime(telemetry=TelemetryConfig(logging=None))  # a history that does not replay is no error here


class _ProgressRecorder(Interceptor):
    def __init__(self) -> None:
        self.workflow: AgentWorkflow | None = None
        self.progress: Progress | None = None

    def workflow_interceptor_class(self, input: WorkflowInterceptorClassInput) -> type[WorkflowInboundInterceptor]:
        recorder = self

        class Inbound(WorkflowInboundInterceptor):
            async def execute_workflow(self, input: ExecuteWorkflowInput) -> object:
                recorder.workflow = workflow.instance()
                return await super().execute_workflow(input)

        return Inbound


class _RecordingRunner(UnsandboxedWorkflowRunner):
    def __init__(self, recorder: _ProgressRecorder) -> None:
        self._recorder = recorder

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        instance = super().create_instance(det)
        activate = instance.activate

        def recorded(act: WorkflowActivation) -> WorkflowActivationCompletion:
            # The end of a replay cancels the workflow, which then no longer is as its history has it.
            if self._recorder.workflow and any(job.HasField("remove_from_cache") for job in act.jobs):
                self._recorder.progress = self._recorder.workflow.account.model_copy(deep=True)
            token = _REPLAYS.set(True)  # activations run in threads of their own
            try:
                return activate(act)
            finally:
                _REPLAYS.reset(token)

        instance.activate = recorded  # type: ignore[method-assign]  # the SDK's class of instances is its own
        return instance


def without_store(converter: DataConverter) -> DataConverter:
    """A data converter for replays: it reads each payload in the store as what `prune` leaves of a deleted payload.

    Payloads in an external storage of `converter` itself are read from there.
    """
    drivers = with_drivers_of(converter, [_NoStore(name) for name in STORES])
    return adapted(converter, ExternalStorage(drivers=drivers, driver_selector=lambda *_: None))


class _NoStore(StorageDriver):
    """A store without payloads: returns in place of each payload what `prune` leaves for a deleted payload."""

    def __init__(self, name: str) -> None:
        self._name = name

    def name(self) -> str:
        return self._name

    async def store(self, context: StorageDriverStoreContext, payloads: Sequence[Payload]) -> list[StorageDriverClaim]:
        return [StorageDriverClaim({}) for _ in payloads]  # what a replay sends goes nowhere

    async def retrieve(
        self, context: StorageDriverRetrieveContext, claims: Sequence[StorageDriverClaim]
    ) -> list[Payload]:
        missing = [f"The payload {claim.claim_data.get('digest', '')} is not here." for claim in claims]
        return [Payload(metadata={"encoding": PRUNED_ENCODING}, data=sentence.encode()) for sentence in missing]
