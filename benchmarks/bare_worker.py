"""The worker of the bare side, with the SDK's default settings: `python -m benchmarks.bare_worker QUEUE`."""

import asyncio
import sys
from datetime import timedelta

from temporalio import activity
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.envconfig import ClientConfig
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

from benchmarks import backoff
from benchmarks.bare import BareWorkflow
from benchmarks.work import FAILURES, Words


@activity.defn
async def echo(words: Words) -> Words:
    """Say the same again."""
    return words


@activity.defn
async def stumble(words: Words) -> Words:
    """Fail twice, then say the same again."""
    info = activity.info()
    if info.attempt <= FAILURES:
        delay = timedelta(seconds=backoff.seconds(info.workflow_id or "", info.attempt))
        raise ApplicationError("not yet", next_retry_delay=delay)
    return words


async def serve(queue: str) -> None:
    """Work until the process is ended; the server is the one that the environment names."""
    settings = ClientConfig.load_client_connect_config()
    client = await Client.connect(**settings, data_converter=pydantic_data_converter)
    async with Worker(client, task_queue=queue, workflows=[BareWorkflow], activities=[echo, stumble]):
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
