"""Tells workflows that the turn of a call has come, on behalf of the services' breakers.

Runs beside the calls of a worker: whenever a breaker has changed, and at intervals.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import structlog
from temporalio.client import Client
from temporalio.common import MetricMeter
from temporalio.service import RPCError, RPCStatusCode

from activities.boundary.breakers.rows import BLIND_SECONDS, CHECK_SECONDS, UNUSABLE, Breakers
from activities.boundary.breakers.tickets import Called
from workflows.calls.admission import TURN, Admitted

CHECKS_APART = 0.05
"""The fewest seconds between two checks of a worker for calls whose turn has come."""

log = structlog.get_logger("replan.breaker")


@asynccontextmanager
async def telling(breakers: Breakers, client: Client, meter: MetricMeter = MetricMeter.noop) -> AsyncIterator[None]:
    """Within the block, tell the workflows of the client's namespace when the turns of their calls have come.

    Only within the block do calls of this worker wait for their turn; each worker tells the workflows of all workers.
    `meter` counts how the breakers change state.
    """
    breakers.namespace, breakers.meter = client.namespace, meter
    running = asyncio.create_task(_keep_telling(breakers, client))
    try:
        yield
    finally:
        breakers.namespace = None
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


async def _keep_telling(breakers: Breakers, client: Client) -> None:
    while True:
        breakers.changed.clear()
        try:
            wait = await _tell_all(breakers, client)
        except UNUSABLE:  # the next call that needs the store says so in the log
            wait = BLIND_SECONDS
        # Else it would run after each of the calls that are turned away at the same time.
        await asyncio.sleep(min(wait, CHECKS_APART))
        with suppress(TimeoutError):
            async with asyncio.timeout(wait):
                await breakers.changed.wait()


async def _tell_all(breakers: Breakers, client: Client) -> float:
    """Tell of all turns that have come; return the most seconds until the next check."""
    wait = CHECK_SECONDS
    for service in await breakers.services_awaited():
        turns = await breakers.call_next(service)
        wait = min(wait, turns.next_in)
        outcomes = await asyncio.gather(*(_tell_workflow(client, called) for called in turns.called))
        for called in (called for called, is_there in zip(turns.called, outcomes, strict=True) if not is_there):
            await breakers.forget(service, called.key)
            wait = 0.0
    return wait


async def _tell_workflow(client: Client, called: Called) -> bool:
    """Signal a workflow that the turn of its call has come; return False if the server has no such running workflow."""
    try:
        await client.get_workflow_handle(called.workflow).signal(TURN, Admitted(key=called.key))
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return False
        log.warning("turn_untold", task=called.workflow, error=error.status.name)  # it is told again
    except Exception as error:  # of a codec or an interceptor, which may raise anything
        log.warning("turn_untold", task=called.workflow, error=type(error).__name__)
    return True
