"""The header of an activity: what the worker must know besides the arguments. The web UI shows only the arguments.

Made when an activity is scheduled; read at the start of each of its attempts. The SDK does not encrypt the header, so
it must not contain values of a task.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, Literal

from pydantic import BaseModel, Field, JsonValue
from temporalio import workflow
from temporalio.api.common.v1 import Payload

from workflows.marks import Kept
from workflows.people.approval import ApprovedCall
from workflows.people.statement import Statement
from workflows.plans.catalogue import Effect
from workflows.sparse import Sparse

HEADER = "replan-call"


class Undoes(BaseModel, frozen=True):
    """The effect that a call undoes: the idempotency key, step and kind of tool of the call that applied it."""

    key: str
    step: str
    kind: str


class Provided(BaseModel, frozen=True):
    """The result of a call that a person provides; the tool is not called."""

    result: JsonValue


class CallHeader(Sparse, frozen=True):
    """What `activities.boundary`, the code around each tool, must know of a call besides its arguments."""

    # Read in each attempt
    key: Kept[str]
    """The idempotency key: the task's effect key, else its `first_execution_run_id`, and `/` and the step id. It is the
    same over retry, crash, replay and reset. The key of a call that belongs to no step never begins with the effect
    key."""
    revision: int = 1
    """The number of the plan; 0 for a call before the first plan."""
    digest: Kept[str] = ""
    """The digest of the tool's spec that the workflow has in its catalogue."""
    effect: Effect | None = None
    """The effect of the tool in the workflow's catalogue; None if the workflow is too old to tell."""
    documents: str | None = None
    """The folder of documents that the task's tools may search: a path below the worker's root folder of documents."""
    store: str | None = None
    """The id of the store of the task; a worker with another store refuses the call. None if any worker may make it."""
    fencing_token: int = 0
    """How often the call was found not to be applied; the ledger rejects an older attempt, with a smaller number."""
    is_reset: bool = False
    """Whether a Temporal reset made a run of the task, so that an earlier run may already have made this call."""

    # Read before the tool is called
    undoes: Undoes | None = None
    provided: Provided | None = None
    """It travels as a second argument of the activity, see `with_provided`."""
    approve: Literal["declared", "effects", "all"] = "declared"
    """Which calls need an approval besides those whose tools declare it, as in `Task.approve`."""
    calls: Literal["native", "text"] | None = None
    """How the models that the tool asks make their calls, as in `Task.calls`."""
    approval: ApprovedCall | None = None
    starter: Statement | None = None
    """What a door has signed about who started the task, for a tool whose rule asks for it."""

    # Read when the service is asked for a turn, and in the next attempt
    started: float | None = None
    """When the task began, in seconds since 1970: calls wait for their turn in this order. None if the workflow cannot
    be told of a turn."""
    patience: float | None = None
    """The most seconds that the call waits for its turn at its service; None for as long as the service's breaker
    lets a call wait."""
    attempts: int = 0
    """How many attempts the activity execution may make; 0 for as many as the retry profile in the spec with `digest`
    allows."""
    task: str | None = None
    """In an UndoWorkflow, the id of the task that it undoes; None if the calling workflow is the task itself."""
    has_effect_key: bool = False
    """Whether the task has an effect key, so that another task may have made a call with the same idempotency key."""
    for_any_worker: bool = Field(default=False, exclude=True)
    """Whether all workers of the queue are offered the call alike, and not first the one that runs the workflow task,
    which may be the one that lacks the tool. It is not sent."""


def made_by_reset() -> bool:
    """Whether a Temporal reset made the current run; a workflow passes it to activities, and decides nothing by it."""
    # So that the decision is in history: the workflow replays the time before the reset as a part of this run.
    info = workflow.info()
    return info.run_id != info.original_execution_run_id


_CALL: ContextVar[CallHeader] = ContextVar("replan_call")


@contextmanager
def attached(header: CallHeader) -> Iterator[None]:
    """Send `header` with each activity that is scheduled within the `with` block."""
    token = _CALL.set(header)
    try:
        yield
    finally:
        with suppress(ValueError):  # a run that was closed from outside is torn down in another context
            _CALL.reset(token)


def is_for_any_worker() -> bool:
    """Whether the activity is not for the worker that runs the workflow task more than for any other worker."""
    header = _CALL.get(None)
    return header is not None and header.for_any_worker


def with_call(headers: Mapping[str, Payload]) -> Mapping[str, Payload]:
    """The headers of an activity; within an `attached` block, with the header of the call added."""
    header = _CALL.get(None)
    if header is None:
        return headers
    header = header.model_copy(update={"provided": None})
    return {**headers, HEADER: workflow.payload_converter().to_payload(header)}


def with_provided(arguments: Sequence[Any]) -> Sequence[Any]:
    """The arguments of an activity, with the result that a person provides for the call, if there is one."""
    # The SDK leaves headers out of what a user's codec encrypts.
    header = _CALL.get(None)
    return arguments if header is None or header.provided is None else [*arguments, header.provided]
