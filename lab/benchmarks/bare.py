"""The bare side: what a good engineer writes with the Temporal SDK alone, a loop over activities."""

import asyncio
from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy

with workflow.unsafe.imports_passed_through():
    from benchmarks.work import Words, Work

TIMEOUT = timedelta(seconds=30)


@workflow.defn(name="Bare")
class BareWorkflow:
    """Runs one activity per item, one after another or all at once, and returns their results."""

    @workflow.run
    async def run(self, work: Work) -> list[Words]:
        """Do the work."""
        if work.is_parallel:
            return await asyncio.gather(*(_step(work.kind, item) for item in work.items))
        return [await _step(work.kind, item) for item in work.items]


async def _step(kind: str, item: Words) -> Words:
    result: Words = await workflow.execute_activity(
        kind,
        item,
        result_type=Words,
        start_to_close_timeout=TIMEOUT,
        retry_policy=RetryPolicy(initial_interval=timedelta(seconds=0.25), maximum_attempts=4),
    )
    return result
