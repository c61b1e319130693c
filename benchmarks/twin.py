"""The bare twin of a ReAct task: what a good engineer writes with the SDK alone, told and answering the very same.

Its worker is `python -m benchmarks.twin QUEUE FILE`, where FILE holds the results of all its activities in their order.
"""

import asyncio
import json
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.common import RawValue, RetryPolicy
from temporalio.envconfig import ClientConfig
from temporalio.worker import Worker

with workflow.unsafe.imports_passed_through():
    from temporalio.api.common.v1 import Payload

TIMEOUT = timedelta(seconds=30)

Turn = list[str]
"""The arguments of the model, then those of each tool that it calls, as JSON."""


@workflow.defn(name="Twin")
class TwinWorkflow:
    """Asks the model, runs what it calls at the same time, and so on."""

    @workflow.run
    async def run(self, turns: list[Turn]) -> int:
        """Do all turns; how many there were."""
        for asked, *called in turns:
            await _call("model", asked)
            await asyncio.gather(*(_call("tool", args) for args in called))
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
    """What the activities return, whatever they are asked: the n-th result for the n-th activity of the task."""

    def __init__(self, results: Sequence[str]) -> None:
        """Return these, as JSON."""
        self._results = results

    @activity.defn
    async def model(self, args: RawValue) -> RawValue:
        """What the model said."""
        return self._next()

    @activity.defn
    async def tool(self, args: RawValue) -> RawValue:
        """What the tool returned."""
        return self._next()

    def _next(self) -> RawValue:
        return RawValue(_json(self._results[int(activity.info().activity_id) - 1]))


async def serve(queue: str, answers: Answers) -> None:
    """Work until the process is ended; the server is the one that the environment names."""
    client = await Client.connect(**ClientConfig.load_client_connect_config())
    activities = [answers.model, answers.tool]
    async with Worker(client, task_queue=queue, workflows=[TwinWorkflow], activities=activities):
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], Answers(json.loads(Path(sys.argv[2]).read_text()))))
