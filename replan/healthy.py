"""`python -m replan.healthy [QUEUE]`: exit code 0 if a worker on this host has polled the server lately, else 1.

The command has the environment of the worker, so it uses the worker's server and queue (REPLAN_QUEUE).
"""

import asyncio
import os
import socket
import sys
import time

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.service import RPCError

from runtime.client import RPC_TIMEOUT, NotConnected, connect
from runtime.process import leave, read_secrets
from runtime.settings import DEFAULT_QUEUE, QUEUE_VARIABLE

LATELY_SECONDS = 90.0
"""Unhealthy after this many seconds without a poll. A poll lasts 60 s and is recorded at its start."""


async def main(queue: str) -> str | None:
    """Return what is wrong, in one sentence; None if a worker on this host has polled `queue` lately."""
    try:
        client = await connect()
        request = DescribeTaskQueueRequest(
            namespace=client.namespace,
            task_queue=TaskQueue(name=queue),
            task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
        )
        pollers = (await client.workflow_service.describe_task_queue(request, timeout=RPC_TIMEOUT)).pollers
    except NotConnected as problem:
        return str(problem)
    except RPCError as problem:
        return f"The server does not say who serves {queue!r} ({problem}): look into its log."
    ours = [poller for poller in pollers if poller.identity.endswith(f"@{socket.gethostname()}")]  # of SDKs: pid@host
    if all(time.time() - poller.last_access_time.seconds > LATELY_SECONDS for poller in ours):
        return f"The server has not heard from a worker on this host for queue {queue!r}: look into the worker's log."
    return None


if __name__ == "__main__":
    read_secrets()
    wrong = asyncio.run(main(*sys.argv[1:2] or [os.environ.get(QUEUE_VARIABLE) or DEFAULT_QUEUE]))
    if wrong:
        sys.stderr.write(f"{wrong}\n")
    leave(1 if wrong else 0)
