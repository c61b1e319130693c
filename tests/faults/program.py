"""A worker of somebody else: activities that fail in ways of their own, and a workflow that says how each call ended.

`python -m tests.faults.program ADDRESS QUEUE` runs the activities in a process that can be killed; `hang` is unkeyed.
"""

import asyncio
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
from pydantic import BaseModel
from temporalio import activity, workflow
from temporalio.api.enums.v1 import EventType
from temporalio.api.failure.v1 import Failure
from temporalio.client import Client, WorkflowFailureError, WorkflowHistory
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from replan import FaultsPlugin


class Call(BaseModel):
    """What one activity is to do."""

    url: str = ""
    file: str = ""
    """Each attempt appends a line here."""
    raises: str = ""
    """Which of `ODD` it raises."""
    times: int = 1_000
    """How many attempts fail."""
    posts: int = 1
    """How many requests `charge` sends."""

    def attempt(self) -> int:
        """Note the attempt; returns its number."""
        with Path(self.file).open("a") as lines:
            lines.write("attempt\n")
        return len(Path(self.file).read_text().splitlines())

    def fail(self) -> None:
        """Note the attempt, and fail as it is told."""
        if self.attempt() <= self.times:
            ODD[self.raises]()


class ShopError(Exception):
    """An error of the program's own."""


class ShopDown(ApplicationError):
    """A failure of the program's own."""


def _raise_from() -> None:
    try:
        raise KeyError("inner")
    except KeyError as inner:
        raise PermissionError("no entry") from inner


def _raise_in_except() -> None:
    try:
        raise KeyError("inner")
    except KeyError:
        raise PermissionError("no entry")  # noqa: B904  # as programs do


def _raise(make: Callable[[], BaseException]) -> Callable[[], None]:
    def raising() -> None:
        raise make()

    return raising


ODD = {
    "refused": _raise(lambda: ConnectionRefusedError("refused")),
    "reset": _raise(lambda: ConnectionResetError("reset")),
    "permission": _raise(lambda: PermissionError("no entry")),
    "from": _raise_from,
    "in_except": _raise_in_except,
    "empty": _raise(lambda: PermissionError()),
    "group": _raise(lambda: ExceptionGroup("several", [PermissionError("one")])),
    "key": _raise(lambda: KeyError("mine")),
    "shop": _raise(lambda: ShopError("mine")),
    "own": _raise(lambda: ShopDown("mine", {"a": 1}, type="Down", next_retry_delay=timedelta(milliseconds=20))),
    "own_final": _raise(lambda: ApplicationError("mine", type="Gone", non_retryable=True)),
    "cancelled": _raise(lambda: asyncio.CancelledError()),
}


@activity.defn
async def fail(call: Call) -> str:
    call.fail()
    return "done"


@activity.defn
def fail_in_thread(call: Call) -> str:
    call.fail()
    return "done"


MANY = [[[number] for number in range(100)] for _ in range(100)]
"""More than a search for libraries visits."""


@activity.defn
async def fail_in_a_large_program(call: Call) -> str:
    """Fail as it is told, with so much around it that nobody can say which libraries it uses."""
    call.fail()
    return f"done {len(MANY)}"


@activity.defn
def charge(call: Call) -> str:
    """Send requests that change something."""
    call.attempt()
    for _ in range(call.posts):
        httpx2.post(call.url, json={}, timeout=0.5).raise_for_status()
    return "charged"


@activity.defn
async def hang(call: Call) -> str:
    """Be too slow at the first attempt."""
    if call.attempt() <= call.times:
        await asyncio.sleep(30)
    return "done"


@activity.defn
async def later(call: Call) -> str:
    """Leave the result to somebody else."""
    call.attempt()
    activity.raise_complete_async()


class Ended(BaseModel):
    """How a call ended for its workflow."""

    result: str = ""
    type: str | None = None
    message: str = ""
    is_final: bool = False
    cause: str = ""
    details: list[Any] = []


@workflow.defn
class Program:
    """Makes one call, and says how it ended."""

    @workflow.run
    async def run(self, name: str, call: Call, never: list[str], options: dict[str, float]) -> Ended:
        """Options: `attempts`, `local`, `seconds` of an attempt, `deadline` in seconds."""
        run = workflow.execute_local_activity if options.get("local") else workflow.execute_activity
        more: dict[str, Any] = {}
        if deadline := options.get("deadline"):
            more["schedule_to_close_timeout"] = timedelta(seconds=deadline)
        if beat := options.get("heartbeat"):
            more["heartbeat_timeout"] = timedelta(seconds=beat)
        try:
            result = await run(
                name,
                call,
                activity_id="call",
                result_type=str,
                start_to_close_timeout=timedelta(seconds=options.get("seconds", 10)),
                retry_policy=RetryPolicy(
                    maximum_attempts=int(options.get("attempts", 3)),
                    initial_interval=timedelta(milliseconds=10),
                    non_retryable_error_types=never,
                ),
                **more,
            )
        except (ActivityError, ApplicationError) as error:  # the SDK gives the failure of a local activity bare
            cause = error.cause if isinstance(error, ActivityError) else error
            if not isinstance(cause, ApplicationError):
                return Ended(type=type(cause).__name__, message=str(cause))
            return Ended(
                type=cause.type,
                message=cause.message,
                is_final=cause.non_retryable,
                cause=repr(cause.cause) if cause.cause else "",
                details=list(cause.details),
            )
        return Ended(result=result)


ACTIVITIES = (fail, fail_in_thread, fail_in_a_large_program, charge, hang, later)


class Place:
    """A server, a folder, and the calls that were made there."""

    def __init__(self, client: Client, folder: Path) -> None:
        self.client, self.folder, self.queue = client, folder, f"faults-{uuid4().hex[:8]}"

    def worker(self, *plugins: Any, **options: Any) -> AbstractAsyncContextManager[Worker]:
        """A worker of the program, with these plugins."""
        ours: dict[str, Any] = {
            "workflows": [Program],
            "activities": ACTIVITIES,
            "activity_executor": ThreadPoolExecutor(4),
            "workflow_runner": UnsandboxedWorkflowRunner(),
            "disable_eager_activity_execution": True,  # else a first attempt does not know its policy
        }
        return Worker(self.client, task_queue=self.queue, plugins=plugins, **ours | options)

    async def call(self, name: str, never: tuple[str, ...] = (), **values: Any) -> "Done":
        """Make one call; `values` are those of Call, and options of Program."""
        known = {key: value for key, value in values.items() if key in Call.model_fields}
        options = {key: float(value) for key, value in values.items() if key not in known}
        id = f"{self.queue}-{uuid4().hex[:8]}"
        call = Call(**{"file": str(self.folder / id), **known})
        handle = await self.client.start_workflow(
            Program.run, args=[name, call, list(never), options], id=id, task_queue=self.queue
        )
        try:
            ended = await asyncio.wait_for(handle.result(), 30)
        except WorkflowFailureError as error:
            raise AssertionError(f"the workflow failed: {error.cause!r}") from error
        file = Path(call.file)
        attempts = len(file.read_text().splitlines()) if file.exists() else 0
        return Done(ended, attempts, await handle.fetch_history())


class Done:
    """A finished call: how it ended, how many attempts were made, and the history of its workflow."""

    def __init__(self, ended: Ended, attempts: int, history: WorkflowHistory) -> None:
        self.ended, self.attempts, self.history = ended, attempts, history

    @property
    def fault(self) -> dict[str, Any]:
        """The Fault in the detail of the failure; empty if there is none."""
        return self.ended.details[0] if self.ended.details and isinstance(self.ended.details[0], dict) else {}

    @property
    def failure(self) -> Failure:
        """The failure with which the call ended, as the server has it."""
        for event in self.history.events:
            if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_FAILED:
                return event.activity_task_failed_event_attributes.failure
        return Failure()


async def _main(address: str, queue: str) -> None:
    from temporalio.contrib.pydantic import pydantic_data_converter

    client = await Client.connect(address, data_converter=pydantic_data_converter)
    place = Place(client, Path())
    place.queue = queue
    async with place.worker(FaultsPlugin(effects={"hang": "unkeyed"}), workflows=[]):
        print("ready", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
