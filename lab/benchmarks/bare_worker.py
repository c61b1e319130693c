"""The worker of the bare side, with the SDK's default settings: `python -m benchmarks.bare_worker QUEUE`.

It uses Replan's backoff, drawn so that the benchmark can compute afterwards how long it was.
"""

import asyncio
import random
import sys
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from temporalio import activity
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.envconfig import ClientConfig
from temporalio.exceptions import ApplicationError
from temporalio.worker import Plugin, Worker

from benchmarks.bare import BareWorkflow
from benchmarks.work import FAILURES, Words
from workflows.faults import retries


@activity.defn
async def echo(words: Words) -> Words:
    """Return the argument."""
    return words


@activity.defn
async def stumble(words: Words) -> Words:
    """Fail twice, then return the argument."""
    info = activity.info()
    if info.attempt <= FAILURES:
        delay = timedelta(seconds=_backoff(info.workflow_id or "", info.attempt))
        raise ApplicationError("not yet", next_retry_delay=delay)
    return words


def total_backoff(task: str, failures: int) -> float:
    """Seconds that a task waited after its first attempts failed."""
    return sum(_backoff(task, attempt) for attempt in range(1, failures + 1))


def _backoff(task: str, attempt: int) -> float:
    """Seconds before the attempt after `attempt`: full jitter, always the same for the same task."""
    drawn = random.Random(f"{task}/{attempt}").random()  # noqa: S311 - jitter, no secret
    return retries.backoff("standard", attempt, drawn)


async def serve(queue: str, workflow: type, *activities: Callable[..., Any], plugins: Sequence[Plugin] = ()) -> None:
    """Serve until the process is ended, for the server that the environment names."""
    settings = ClientConfig.load_client_connect_config()
    client = await Client.connect(**settings, data_converter=pydantic_data_converter)
    async with Worker(client, task_queue=queue, workflows=[workflow], activities=activities, plugins=plugins):
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], BareWorkflow, echo, stumble))
