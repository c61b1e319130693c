"""The bare twin of a ReAct task: what a good engineer writes with the SDK alone, with the same arguments and results.

Its worker is `python -m benchmarks.twin QUEUE FILE`, where FILE holds the results of all its activities in their order.
"""

import asyncio
import json
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from temporalio import activity, workflow
from temporalio.common import RawValue, RetryPolicy

with workflow.unsafe.imports_passed_through():
    from temporalio.api.common.v1 import Payload

    from benchmarks.bare_worker import serve

TIMEOUT = timedelta(seconds=30)

Turn = list[str]
"""The arguments of the model, then those of each tool that it calls, as JSON."""


@workflow.defn(name="Twin")
class TwinWorkflow:
    """In each turn it asks the model, and runs the calls at the same time."""

    @workflow.run
    async def run(self, turns: list[Turn]) -> int:
        """Do all turns; returns their number."""
        for question, *tool_calls in turns:
            await _call("model", question)
            await asyncio.gather(*(_call("tool", args) for args in tool_calls))
        return len(turns)


async def _call(name: str, args: str) -> None:
    await workflow.execute_activity(
        name,
        RawValue(_json(args)),
        result_type=RawValue,
        start_to_close_timeout=TIMEOUT,
        retry_policy=RetryPolicy(initial_interval=timedelta(seconds=0.25), maximum_attempts=4),
    )


def _json(text: str) -> Payload:
    return Payload(metadata={"encoding": b"json/plain"}, data=text.encode())


class Answers:
    """The activities: the n-th activity of the task returns the n-th result."""

    def __init__(self, results: Sequence[str]) -> None:
        """Keep the results as JSON."""
        self._results = results

    @activity.defn
    async def model(self, args: RawValue) -> RawValue:
        """Return the model's turn."""
        return self._next()

    @activity.defn
    async def tool(self, args: RawValue) -> RawValue:
        """Return the tool's result."""
        return self._next()

    def _next(self) -> RawValue:
        return RawValue(_json(self._results[int(activity.info().activity_id) - 1]))


if __name__ == "__main__":
    answers = Answers(json.loads(Path(sys.argv[2]).read_text()))
    asyncio.run(serve(sys.argv[1], TwinWorkflow, answers.model, answers.tool))
