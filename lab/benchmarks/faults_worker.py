"""A worker with `replan.FaultsPlugin` or without: `python -m benchmarks.faults_worker QUEUE ARM`."""

import asyncio
import sys
from collections.abc import Mapping, Sequence
from datetime import timedelta

from temporalio import activity, workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError
from temporalio.worker import Plugin

with workflow.unsafe.imports_passed_through():
    from benchmarks.bare_worker import echo, serve
    from benchmarks.work import Words
    from replan import FaultsPlugin

TIMEOUT = timedelta(seconds=30)
RETRY = timedelta(milliseconds=1)
BARE, LINE, UNKEYED = "bare", "line", "unkeyed"
PLUGINS: Mapping[str, Sequence[Plugin]] = {
    BARE: [],
    LINE: [FaultsPlugin()],
    UNKEYED: [FaultsPlugin(effects={"echo": "unkeyed", "reject": "unkeyed", "stumble_once": "unkeyed"})],
}
"""By arm."""


@activity.defn
async def reject(words: Words) -> Words:
    """Fail in a way that no retry cures."""
    raise PermissionError(13, "no permission")


@activity.defn
async def stumble_once(words: Words) -> Words:
    """Fail at the first attempt, before anything was sent."""
    if activity.info().attempt == 1:
        raise ConnectionRefusedError(111, "refused")
    return words


@workflow.defn(name="Rows")
class RowsWorkflow:
    """Calls an activity so many times, one after another, and goes on after a failure."""

    @workflow.run
    async def run(self, kind: str, number: int, item: Words) -> None:
        """Call `kind`; a rejected call has one attempt on all sides, so that a failure is what is compared."""
        policy = RetryPolicy(initial_interval=RETRY, maximum_attempts=1 if kind == "reject" else 3)
        for _ in range(number):
            try:
                await workflow.execute_activity(kind, item, start_to_close_timeout=TIMEOUT, retry_policy=policy)
            except ActivityError:
                continue


if __name__ == "__main__":
    queue, arm = sys.argv[1:]
    asyncio.run(serve(queue, RowsWorkflow, echo, reject, stumble_once, plugins=PLUGINS[arm]))
