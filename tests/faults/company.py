"""A worker whose workflows import `replan`, and whose activities have each form that the SDK knows.

`python -m tests.faults.company ADDRESS QUEUE [line]` serves `Patient` in a process that can be killed.
"""

import asyncio
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.common import RawValue, RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError
from temporalio.worker import Worker

from replan import FaultsPlugin
from replan.faults import Code

POLICY = RetryPolicy(maximum_attempts=3, initial_interval=timedelta(milliseconds=10))
SLOW = RetryPolicy(maximum_attempts=9, initial_interval=timedelta(seconds=1), backoff_coefficient=1)
"""A worker that ends takes an attempt or two before it has ended."""


def attempt(file: str) -> int:
    """Note an attempt; returns its number."""
    with Path(file).open("a") as lines:
        lines.write("attempt\n")
    return len(Path(file).read_text().splitlines())


def refuse(file: str) -> NoReturn:
    """Note an attempt, and fail for good."""
    attempt(file)
    raise PermissionError("no entry")


def fail_once(file: str) -> str:
    """Note an attempt; the first one fails for a while."""
    if attempt(file) == 1:
        raise ConnectionResetError("reset")
    return "done"


class Desk:
    """Activities that are methods."""

    @activity.defn
    async def method(self, file: str) -> str:
        refuse(file)

    @activity.defn
    def method_in_thread(self, file: str) -> str:
        refuse(file)

    @activity.defn
    async def method_again(self, file: str) -> str:
        return fail_once(file)


@activity.defn(name="object")
class Clerk:
    """An activity that is an object."""

    async def __call__(self, file: str) -> str:
        refuse(file)


@activity.defn(dynamic=True)
async def dynamic(args: Sequence[RawValue]) -> str:
    """Fail for good, or for a while, by name."""
    file = activity.payload_converter().from_payload(args[0].payload, str)
    if activity.info().activity_type == "any_name":
        refuse(file)
    return fail_once(file)


@activity.defn
def in_process(file: str) -> str:
    refuse(file)


@activity.defn
def in_process_again(file: str) -> str:
    return fail_once(file)


@activity.defn
def end_the_pool(file: str) -> str:
    if attempt(file) == 1:
        os._exit(1)
    return "done"


@activity.defn
async def refuse_it(file: str) -> str:
    refuse(file)


@activity.defn
async def fail_it_once(file: str) -> str:
    return fail_once(file)


@workflow.defn
class Caller:
    """Makes one call; gives its result, or the type, message, and finality of its failure, and its code."""

    @workflow.run
    async def run(self, name: str, file: str) -> list[Any]:
        try:
            result = await workflow.execute_activity(
                name,
                file,
                result_type=str,
                start_to_close_timeout=timedelta(seconds=20),
                retry_policy=SLOW if name == "end_the_pool" else POLICY,
            )
        except ActivityError as error:
            cause = error.cause
            assert isinstance(cause, ApplicationError)
            code = Code(cause.details[0]["code"]).value if cause.details else ""
            return [cause.type, cause.message, cause.non_retryable, code]
        return [result]


@workflow.defn
class Patient:
    """Makes a call that fails for good, waits for a Signal, and makes another one: an open workflow for two workers."""

    def __init__(self) -> None:
        self._may_go_on = False

    @workflow.signal
    def go_on(self) -> None:
        self._may_go_on = True

    @workflow.run
    async def run(self, file: str) -> list[bool]:
        """Say of each of the two calls whether its failure was final."""
        first = await self._call(file)
        await workflow.wait_condition(lambda: self._may_go_on)
        return [first, await self._call(f"{file}-2")]

    async def _call(self, file: str) -> bool:
        try:
            await workflow.execute_activity(
                refuse_it, file, start_to_close_timeout=timedelta(seconds=20), retry_policy=POLICY
            )
        except ActivityError as error:
            assert isinstance(error.cause, ApplicationError)
            return error.cause.non_retryable
        return False


DESK = Desk()
ACTIVITIES = (DESK.method, DESK.method_in_thread, DESK.method_again, Clerk(), dynamic, refuse_it, fail_it_once)
IN_PROCESS = (in_process, in_process_again, end_the_pool)


async def _main(address: str, queue: str, *line: str) -> None:
    client = await Client.connect(address)
    plugins = [FaultsPlugin()] if line else []
    async with Worker(
        client,
        task_queue=queue,
        workflows=[Caller, Patient],
        activities=ACTIVITIES,
        activity_executor=ThreadPoolExecutor(2),
        plugins=plugins,
        sticky_queue_schedule_to_start_timeout=timedelta(seconds=1),  # it may be killed with a workflow in its cache
    ):
        print("ready", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
