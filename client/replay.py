"""Replays histories to find out whether this version of Replan can continue workflows that another version began.

No worker and no store is needed: a sentence takes the place of each payload that is in the store.
"""

import dataclasses
import json
import re
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

from google.protobuf.json_format import ParseError
from pydantic import BaseModel
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowHistory
from temporalio.converter import DataConverter
from temporalio.runtime import Runtime, TelemetryConfig
from temporalio.worker import Replayer
from temporalio.workflow import NondeterminismError

from client.filters import using_filter, within
from client.history.account import without_store
from client.history.reader import is_encrypted
from client.problem import Problem
from client.tasks import existing
from client.text import one_line
from client.workflow_task import Cause
from runtime import serve
from runtime.payloads import DATA_CONVERTER
from workflows.agent import AgentWorkflow
from workflows.calls.interceptor import CallInterceptor
from workflows.faults import retries
from workflows.text import decode_text

TYPES = tuple(workflow.__name__ for workflow in serve.WORKFLOWS)
OURS = " OR ".join(f"WorkflowType = '{name}'" for name in TYPES)
"""The list filter for tasks and for Replan's other workflows, such as rollbacks."""
CLOSING = frozenset(
    EventType.Value(f"EVENT_TYPE_WORKFLOW_EXECUTION_{how}")
    for how in ("COMPLETED", "FAILED", "TIMED_OUT", "CANCELED", "TERMINATED", "CONTINUED_AS_NEW")
)
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
    async with replayer(workflow, converter).workflow_replay_iterator(histories) as results:
        async for result in results:
            history, failure = result.history, result.replay_failure
            closing = history.events[-1].event_type in CLOSING
            size = {"events": len(history.events), "is_open": not closing}
            why = await _cause_and_reason(history, failure, converter) if failure else {}
            yield Replayed.model_validate({"task_id": history.workflow_id, "run_id": history.run_id, **size, **why})


async def saved(files: Iterable[Path]) -> AsyncIterator[WorkflowHistory]:
    """The histories in files that `export` or Temporal's own tools wrote. Raises Problem for any other file."""
    for file in files:
        try:
            document = json.loads(decode_text(file.read_bytes()))
            history = WorkflowHistory.from_json(str(document.get("task_id") or file.stem), document)
            history.run_id  # noqa: B018  # raises for a history without its first event
            started = history.events[0].workflow_execution_started_event_attributes
        except OSError as error:
            raise Problem("no_file", f"The file {str(file)!r} cannot be read ({error.strerror})", "check it") from error
        except (ValueError, AttributeError, RuntimeError, ParseError) as error:
            reason = f"The file {str(file)!r} holds no history ({one_line(str(error))})"
            raise Problem("bad_history", reason, "name files that `export ID FILE` wrote") from error
        yield dataclasses.replace(history, workflow_id=started.workflow_id or history.workflow_id)


async def unfinished(client: Client, queue: str, limit: int) -> AsyncIterator[WorkflowHistory]:
    """The histories of open workflows of a queue that a worker has begun; at most `limit` open workflows are read."""
    both = f"TaskQueue IN ('{queue}', '{retries.control_queue(queue)}')"
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
