"""One call of an activity, and the header that travels beside its arguments."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, JsonValue
from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception
from temporalio.worker import (
    Interceptor,
    StartActivityInput,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
    WorkflowOutboundInterceptor,
)
from temporalio.workflow import ActivityCancellationType

from workflows import routing
from workflows.catalogue import ToolSpec
from workflows.decision import Left, Wait, decide
from workflows.faults import Fault, from_activity_error
from workflows.routing import Route
from workflows.sparse import Sparse

HEADER = "replan-call"

T = TypeVar("T")


class Undoes(BaseModel):
    """An effect that is taken back."""

    model_config = ConfigDict(frozen=True)

    key: str
    """Its idempotency key."""
    step: str
    kind: str


class Call(Sparse):
    """What the boundary must know beside the arguments, which the web UI shows alone."""

    model_config = ConfigDict(frozen=True)

    key: str
    """The idempotency key: `first_execution_run_id`/step id, the same over retry, crash, replay and reset."""
    revision: int = 0
    digest: str = ""
    """Digest of the spec that the workflow decided by."""
    documents: str | None = None
    """The task's folder of documents, below the worker's root."""
    store: str | None = None
    """The store that the task works with; None where it does not matter."""
    claim: int = 0
    """How often the effect was found not to have happened: an older claim on the key stands for nothing any more."""
    is_reset: bool = False
    """Whether the run was made by a reset, so that the call may have happened in the life before."""
    undoes: Undoes | None = None
    """The effect that this call takes back."""
    task: str | None = None
    """The task whose effect it is; None for that of the workflow itself."""

    @classmethod
    def of(
        cls,
        id: str,
        spec: ToolSpec,
        revision: int,
        *,
        origin: str | None = None,
        was_reset: bool = False,
        **more: Any,
    ) -> "Call":
        """The header of the call `id` of the running task, or of the one whose first run is `origin`.

        `was_reset` is whether an earlier run was made by a reset.
        """
        is_reset = was_reset or made_by_reset()
        return cls(key=key_of(id, origin), revision=revision, digest=spec.digest, is_reset=is_reset, **more)


def key_of(id: str, origin: str | None = None) -> str:
    """The idempotency key of the call `id` of the running task, or of the one whose first run is `origin`."""
    return f"{origin or workflow.info().first_execution_run_id}/{id}"


def made_by_reset() -> bool:
    """Whether this run was made by a reset; what follows from it must be decided by activities, and so be history.

    The workflow itself may not: it replays what happened before the reset as if that had happened in this run.
    """
    info = workflow.info()
    return info.run_id != info.original_execution_run_id


_CALL: ContextVar[Call] = ContextVar("replan_call")


async def call(route: Route, payload: JsonValue, returns: type[T], *, id: str, summary: str, header: Call) -> T:
    """Run one activity as `route` says and return what it returned.

    Raises:
        ActivityError: it failed for good, timed out, or was cancelled.
    """
    with _carried(header):
        result: T = await workflow.execute_activity(
            route.activity,
            payload,
            result_type=returns,
            activity_id=id,
            summary=summary,
            task_queue=route.task_queue,
            start_to_close_timeout=route.start_to_close,
            schedule_to_close_timeout=route.schedule_to_close,
            heartbeat_timeout=route.heartbeat,
            retry_policy=route.retry,
            cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        )
    return result


class Stuck(Exception):
    """One of our own activities failed in a way that waiting does not cure."""

    def __init__(self, fault: Fault) -> None:
        """Carry the fault."""
        super().__init__(fault.reason)
        self.fault = fault


async def ask(
    spec: ToolSpec,
    payload: JsonValue,
    returns: type[T],
    *,
    id: str,
    summary: str,
    revision: int,
    waited: list[Fault] | None = None,
) -> T:
    """Run one of our own activities, again after what time cures, and note in `waited` what that was.

    Raises:
        Stuck: it failed for good.
        CancelledError: the task was cancelled, even if the activity did not notice.
    """
    header = Call.of(id, spec, revision)
    used = 0
    left = Left(
        attempts=routing.attempts(spec, routing.RETRIES_PER_KIND, used),
        patience=routing.MISSING_TOOL_PATIENCE,
        replans=False,
    )
    while True:
        granted = max(1, left.attempts)
        try:
            result = await call(routing.route(spec, granted), payload, returns, id=id, summary=summary, header=header)
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise asyncio.CancelledError from None
            fault = from_activity_error(error, spec, granted)
        else:
            raise_if_cancelled()
            return result
        raise_if_cancelled()
        used += fault.taken
        remains = routing.attempts(spec, routing.RETRIES_PER_KIND, used)
        left = left.model_copy(
            update={
                "attempts": remains,
                "losses": left.losses + fault.uncounted,
                "deadline": routing.seconds_left(left.waited),
            }
        )
        decision = decide(fault, spec, left)
        if not isinstance(decision, Wait):
            raise Stuck(fault)
        if fault.uncounted and isinstance(payload, dict):
            payload = with_one_lost(payload, fault)
        if waited is not None:
            waited.append(fault)
        left = left.model_copy(update={"waits": left.waits + 1, "waited": left.waited + decision.seconds})
        await workflow.sleep(decision.seconds, summary=f"{spec.kind} waits: {fault.code}, then again")


def with_one_lost(payload: dict[str, JsonValue], fault: Fault) -> dict[str, JsonValue]:
    """A request to a model after one whose answer went with its worker, which the provider counts all the same.

    Raises:
        Stuck: what was reserved has no room for one more.
    """
    may_lose = payload.get("may_lose")
    if not isinstance(may_lose, int):  # nothing limits what it may use
        return payload
    if not may_lose:
        raise Stuck(fault.model_copy(update={"lost": 1}))
    return {**payload, "may_lose": may_lose - 1}


def raise_if_cancelled() -> None:
    """Stop a coroutine whose cancel was swallowed by an activity that ended normally.

    Raises:
        CancelledError: the current asyncio task was asked to stop.
    """
    current = asyncio.current_task()
    if current is not None and current.cancelling():
        raise asyncio.CancelledError


@contextmanager
def _carried(header: Call) -> Iterator[None]:
    token = _CALL.set(header)
    try:
        yield
    finally:
        with suppress(ValueError):  # a run that was closed from outside is taken down in another context
            _CALL.reset(token)


class CallInterceptor(Interceptor):
    """Puts the `Call` of each scheduled activity into its header; registered with the worker."""

    def workflow_interceptor_class(
        self, input: WorkflowInterceptorClassInput
    ) -> type[WorkflowInboundInterceptor] | None:
        """Intercept every workflow."""
        return _Inbound


class _Inbound(WorkflowInboundInterceptor):
    def init(self, outbound: WorkflowOutboundInterceptor) -> None:
        super().init(_Outbound(outbound))


class _Outbound(WorkflowOutboundInterceptor):
    def start_activity(self, input: StartActivityInput) -> workflow.ActivityHandle[Any]:
        header = _CALL.get(None)
        if header is not None:
            payload = workflow.payload_converter().to_payload(header)
            input.headers = {**input.headers, HEADER: payload}
        return super().start_activity(input)
