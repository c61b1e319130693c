"""`FaultsPlugin` on activities that no workflow started: the server of the Temporal CLI has none, a newer one does."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from temporalio import activity
from temporalio.client import ActivityFailureError, Client
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

from replan import FaultsPlugin
from tests.faults.company import POLICY, attempt, fail_it_once, refuse_it
from tests.faults.test_company import attempts
from tests.stack.test_newer_server import newer

QUEUE = "standalone"


@activity.defn
async def hang(file: str) -> str:
    """Be too slow."""
    attempt(file)
    await asyncio.sleep(30)
    return "done"


async def call(client: Client, function: Callable[..., Any], folder: Path) -> tuple[str, int]:
    """The type of the failure of an activity alone, empty if it succeeded, and how many attempts were made."""
    file = folder / function.__name__
    try:
        await client.execute_activity(
            function,
            str(file),
            id=file.name,
            task_queue=QUEUE,
            start_to_close_timeout=timedelta(seconds=1),
            retry_policy=POLICY,
        )
    except ActivityFailureError as error:
        assert isinstance(error.cause, ApplicationError)
        return str(error.cause.type), attempts(file)
    return "", attempts(file)


async def test_an_activity_without_a_workflow_is_looked_after(tmp_path: Path) -> None:
    plugin, functions = FaultsPlugin(effects={"hang": "unkeyed"}), [refuse_it, fail_it_once, hang]
    async with (
        newer(tmp_path / "server") as client,
        Worker(client, task_queue=QUEUE, activities=functions, plugins=[plugin]),
    ):
        ended = [await call(client, function, tmp_path) for function in functions]

    assert ended == [("PermissionError", 1), ("", 2), ("UnknownOutcome", 1)]
