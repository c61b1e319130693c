"""One call of a read that the workflow itself wants: to look again, or to find out what happened."""

import asyncio

from pydantic import JsonValue
from temporalio.exceptions import ActivityError, is_cancelled_exception

from workflows import routing
from workflows.call import Call, call, raise_if_cancelled
from workflows.catalogue import ToolSpec
from workflows.details import summary
from workflows.faults import Code, Fault, from_activity_error
from workflows.plan import StepReturn
from workflows.task import Progress


async def read(
    progress: Progress,
    spec: ToolSpec,
    args: dict[str, JsonValue],
    *,
    id: str,
    title: str,
    revision: int,
    store: str | None = None,
) -> StepReturn | Fault:
    """Run the read `spec` as the activity `id`, paid from the task's budget, and return what came of it.

    Where a `store` is named, only a worker that works with it may answer.

    Raises:
        CancelledError: the task was cancelled.
    """
    raise_if_cancelled()
    budget = progress.budget
    granted = budget.reserve(spec)
    if not granted:
        return Fault.of(Code.QUOTA_EXHAUSTED, "The tool calls of the task are used up.", source=spec.kind, attempt=0)
    taken = 1
    try:
        more = {"origin": progress.origin, "documents": progress.task.documents, "store": store}
        header = Call.of(id, spec, revision, was_reset=progress.was_reset, **more)
        title = summary(f"plan {revision}: {title}")
        back = await call(routing.route(spec, granted), args, StepReturn, id=id, summary=title, header=header)
        taken = back.attempt
    except ActivityError as error:
        if is_cancelled_exception(error):
            raise asyncio.CancelledError from None
        fault = from_activity_error(error, spec, granted)
        taken = fault.taken
        return fault
    finally:
        budget.settle(spec, granted, taken)
    return back
