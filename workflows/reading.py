"""One call of a read that the workflow itself wants: to look again, or to find out what happened."""

import asyncio
from collections.abc import Sequence

from pydantic import JsonValue
from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception

from workflows import routing, spending
from workflows.call import Call, call, raise_if_cancelled
from workflows.catalogue import Catalogue, ToolSpec
from workflows.cost import sized
from workflows.details import summary
from workflows.faults import Code, Fault, earlier_faults, from_activity_error, readable
from workflows.plan import StepReturn
from workflows.progress import Progress


async def read(
    progress: Progress,
    catalogue: Catalogue,
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
    losses = 0
    while True:
        back = await _read_once(progress, catalogue, spec, args, id=id, title=title, revision=revision, store=store)
        losses += 1
        if not isinstance(back, Fault) or not back.uncounted or losses > routing.MAX_LOSSES:
            return back
        await workflow.sleep(routing.loss_wait(losses), summary=summary(f"{id} waits: {back.code}, then again"))


async def _read_once(
    progress: Progress,
    catalogue: Catalogue,
    spec: ToolSpec,
    args: dict[str, JsonValue],
    *,
    id: str,
    title: str,
    revision: int,
    store: str | None,
) -> StepReturn | Fault:
    raise_if_cancelled()
    account = (progress, catalogue, sized(spec, args))
    granted = spending.reserve_step(*account)
    if not granted:
        reason = spending.used_up(progress.budget.limits, spending.step_short_of(*account))
        return Fault.of(Code.QUOTA_EXHAUSTED, reason, source=spec.kind, attempt=0)
    progress.grants.begin(spec)
    came_back: StepReturn | Fault = spending.cut_off(spec)
    earlier: Sequence[Fault] = ()
    try:
        more = {"origin": progress.origin, "documents": progress.task.documents, "store": store}
        header = Call.of(id, spec, revision, was_reset=progress.was_reset, **more)
        title = summary(f"plan {revision}: {title}")
        came_back = await call(routing.route(spec, granted), args, StepReturn, id=id, summary=title, header=header)
        earlier = readable(came_back.earlier)
    except ActivityError as error:
        if is_cancelled_exception(error):
            raise asyncio.CancelledError from None
        came_back, earlier = from_activity_error(error, spec, granted), earlier_faults(error)
    finally:
        spending.settle_step(*account, granted, came_back, earlier)
    return came_back
