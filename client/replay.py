"""Replays histories to find out whether this version of Replan can continue workflows that another version began.

Runs for the command `replay`, and before a worker of a new version serves a queue for the first time. No worker and no
store is needed: a sentence takes the place of each payload that is in the store.
"""

import dataclasses
import errno
import json
import os
import re
import select
import stat
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from io import BufferedReader
from itertools import pairwise
from pathlib import Path
from typing import Any

from google.protobuf.json_format import ParseError
from pydantic import BaseModel
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client, WorkflowHistory
from temporalio.converter import DataConverter
from temporalio.runtime import Runtime, TelemetryConfig
from temporalio.worker import Replayer
from temporalio.workflow import NondeterminismError

from client.filters import using_filter, within
from client.history.account import has_workflow_task, without_store
from client.history.decoder import is_encrypted
from client.problem import Problem
from client.tasks import existing
from client.text import cut, one_line
from client.workflow_task import Cause
from runtime import serve
from runtime.payloads import DATA_CONVERTER
from workflows.agent import AgentWorkflow
from workflows.calls.interceptor import CallInterceptor
from workflows.task_queues import control_queue
from workflows.text import decode_text

TYPES = tuple(workflow.__name__ for workflow in serve.WORKFLOWS)
OURS = " OR ".join(f"WorkflowType = '{name}'" for name in TYPES)
"""The list filter for tasks and for Replan's other workflows, such as rollbacks."""
CLOSING = frozenset(
    EventType.Value(f"EVENT_TYPE_WORKFLOW_EXECUTION_{how}")
    for how in ("COMPLETED", "FAILED", "TIMED_OUT", "CANCELED", "TERMINATED", "CONTINUED_AS_NEW")
)
MAX_REASON = 300
"""The most terminal cells of what the readers of JSON say of a file."""
FILES = "name files that `export ID FILE` wrote"
PIPE_SECONDS = 5.0
MESSAGE = re.compile(r'message: "((?:[^"\\]|\\.)*)"')
"""Matches the message of a failure in the text with which the SDK's core describes the failure."""


class Replayed(BaseModel, frozen=True):
    """A history, and whether it replays."""

    task_id: str
    """The id of the workflow."""
    run_id: str
    events: int
    is_open: bool
    """Whether the workflow still ran when the history was read."""
    cause: Cause | None = None
    """Why the history does not replay; None if it does."""
    reason: str = ""
    """The SDK's message, or that the values are encrypted; empty if the history replays."""

    @property
    def is_stuck(self) -> bool:
        """Whether this version cannot continue the workflow; also False if the values cannot be read here."""
        return self.cause not in (None, Cause.PAYLOAD)


async def replayed(
    histories: AsyncIterator[WorkflowHistory], workflow: type = AgentWorkflow, converter: DataConverter = DATA_CONVERTER
) -> AsyncIterator[Replayed]:
    """Replay histories one after the other, without keeping them in memory; `workflow` replays those of tasks."""
    not_begun = list[WorkflowHistory]()
    async with replayer(workflow, converter).workflow_replay_iterator(_begun(histories, not_begun)) as results:
        async for result in results:
            while not_begun:
                yield _replayed(not_begun.pop(0), {})
            history, failure = result.history, result.replay_failure
            yield _replayed(history, await _cause_and_reason(history, failure, converter) if failure else {})
    for history in not_begun:
        yield _replayed(history, {})


async def _begun(
    histories: AsyncIterator[WorkflowHistory], not_begun: list[WorkflowHistory]
) -> AsyncIterator[WorkflowHistory]:
    """The histories that a replay can begin; the others, e.g. of a delayed start, are appended to `not_begun`."""
    async for history in histories:
        if has_workflow_task(history.events):
            yield history
        else:
            not_begun.append(history)


def _replayed(history: WorkflowHistory, why: Mapping[str, object]) -> Replayed:
    is_open = history.events[-1].event_type not in CLOSING
    size = {"events": len(history.events), "is_open": is_open}
    return Replayed.model_validate({"task_id": history.workflow_id, "run_id": history.run_id, **size, **why})


async def saved(files: Iterable[Path]) -> AsyncIterator[WorkflowHistory]:
    """The histories in files that `export` or Temporal's own tools wrote. Raises Problem for any other file."""
    for file in files:
        yield history_in(file)


def history_in(file: Path) -> WorkflowHistory:
    """The history in a file that `export` or Temporal's own tools wrote. Raises Problem for any other file."""
    try:
        with open_file(file) as opened:
            document = json.loads(decode_text(opened.read()))
        history = parse_history(str(document.get("task_id") or file.stem), document)
        _check_order(history.events)
        history.run_id  # noqa: B018  # raises for a history without its first event
        started = history.events[0].workflow_execution_started_event_attributes
    except OSError as error:
        raise Problem("no_file", f"The file {str(file)!r} cannot be read ({error.strerror})", FILES) from error
    except (ValueError, AttributeError, RuntimeError) as error:  # a RecursionError is a RuntimeError
        reason = f"The file {str(file)!r} holds no history ({cut(one_line(str(error)), MAX_REASON)})"
        raise Problem("bad_history", reason, FILES) from error
    return dataclasses.replace(history, workflow_id=started.workflow_id or history.workflow_id)


def open_file(file: Path) -> BufferedReader:
    """Open a file for reading; OSError if it cannot be opened, or is a pipe that nobody writes for PIPE_SECONDS."""
    handle = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # opening a pipe waits for its writer
    mode = os.fstat(handle).st_mode
    if stat.S_ISFIFO(mode) and not select.select([handle], [], [], PIPE_SECONDS)[0]:
        os.close(handle)
        raise OSError(errno.EAGAIN, "nobody writes into this pipe")
    os.set_blocking(handle, True)
    try:
        return os.fdopen(handle, "rb")
    except OSError:  # it is a folder
        os.close(handle)
        raise


def parse_history(task_id: str, document: str | dict[str, Any]) -> WorkflowHistory:
    """A history from its JSON. Raises ValueError for whatever is no history, with what the readers of JSON say."""
    try:
        return WorkflowHistory.from_json(task_id, document)
    # The SDK's reader raises several for values of other types than it expects, and protobuf a SystemError for a name
    # with a lone surrogate.
    except (ValueError, TypeError, AttributeError, LookupError, ParseError, RuntimeError, SystemError) as error:
        raise ValueError(str(error.__cause__ or error)) from error


def _check_order(events: Sequence[HistoryEvent]) -> None:
    """Raise ValueError unless the ids of events increase from 1, without which the SDK's core does not end."""
    if not events:
        raise ValueError("No events")
    if events[0].event_id != 1 or any(one.event_id >= next.event_id for one, next in pairwise(events)):
        raise ValueError("its events are not in the order of their ids")


async def unfinished(client: Client, queue: str, limit: int) -> AsyncIterator[WorkflowHistory]:
    """The histories of open workflows of a queue that a worker has begun; at most `limit` open workflows are read."""
    both = f"TaskQueue IN ('{queue}', '{control_queue(queue)}')"
    async for history in found(client, f"{both} AND ExecutionStatus = 'Running'", limit):
        if any(event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED for event in history.events):
            yield history


async def count(client: Client, query: str) -> int:
    """The number of Replan's workflow runs that a list filter finds. Raises Problem if the filter cannot be used."""
    with using_filter():
        return (await client.count_workflows(within(OURS, query))).count


async def found(client: Client, query: str, limit: int | None = None) -> AsyncIterator[WorkflowHistory]:
    """The histories of Replan's workflows that a list filter finds, of at most `limit` workflows; None for no limit."""
    async for row in client.list_workflows(within(OURS, query), limit=limit):
        if row.workflow_type not in TYPES:
            continue
        history = await existing(client.get_workflow_handle(row.id, run_id=row.run_id).fetch_history())
        if history is not None:  # else it was deleted since the list was made
            yield history


def replayer(workflow: type = AgentWorkflow, converter: DataConverter = DATA_CONVERTER) -> Replayer:
    """A Replayer with the worker's interceptor, data converter and sandbox, but without a store."""
    return Replayer(
        workflows=[workflow, *(other for other in serve.WORKFLOWS if other is not AgentWorkflow)],
        data_converter=without_store(converter),
        interceptors=[CallInterceptor()],
        workflow_runner=serve.sandbox(),
        runtime=Runtime(telemetry=TelemetryConfig(logging=None)),  # what the core would log is in the result
    )


async def _cause_and_reason(history: WorkflowHistory, failure: Exception, converter: DataConverter) -> dict[str, str]:
    sent = history.events[0].workflow_execution_started_event_attributes.input.payloads
    codec = converter.payload_codec
    try:
        read = await codec.decode(sent) if codec and any(map(is_encrypted, sent)) else sent
    except Exception:  # codecs may raise anything
        read = sent
    if any(map(is_encrypted, read)):  # the workflow then refuses its task, which looks like another decision
        return {"cause": Cause.PAYLOAD, "reason": "its values are encrypted by a codec that is not here"}
    match = MESSAGE.search(str(failure))
    message = re.sub(r"\\(.)", r"\1", re.sub(r"\\[nrt]", " ", match[1])) if match else str(failure)
    cause = Cause.NONDETERMINISM if isinstance(failure, NondeterminismError) else Cause.UNHANDLED
    return {"cause": cause, "reason": one_line(message)}
