"""What a test reads of a task: its history, and its progress while it runs."""

import asyncio
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from temporalio.api.common.v1 import Payload
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import WorkflowHandle

from client.history.decoder import calls_in
from workflows.account.outcome import Outcome
from workflows.account.progress import Progress
from workflows.agent import AgentWorkflow
from workflows.calls.header import HEADER

ENTRY = re.compile(r" \[\d+\]$")
Handle = WorkflowHandle[AgentWorkflow, Outcome]


@dataclass(frozen=True)
class Scheduled:
    """One activity that was scheduled."""

    event: int
    kind: str
    id: str
    args: Any
    summary: str
    header: dict[str, Any]


@dataclass(frozen=True)
class Timer:
    """One timer that was started."""

    seconds: float
    summary: str
    """Its name, without the number of its entry in the journal."""


async def events(handle: Handle) -> list[HistoryEvent]:
    """The history so far."""
    return list((await handle.fetch_history()).events)


async def calls(handle: Handle) -> list[Scheduled]:
    """Every activity that was scheduled, in order; of a local one, only the kind, the id and the summary are known."""
    return [call for event in await events(handle) if (call := _scheduled(event))]


async def kinds(handle: Handle) -> list[str]:
    """The types of the activities that were scheduled, in order."""
    return [call.kind for call in await calls(handle)]


async def timers(handle: Handle) -> list[Timer]:
    """Every timer that was started, in order."""
    started = [event for event in await events(handle) if event.HasField("timer_started_event_attributes")]
    return [
        Timer(
            seconds=event.timer_started_event_attributes.start_to_fire_timeout.ToTimedelta().total_seconds(),
            summary=ENTRY.sub("", _json(event.user_metadata.summary)),
        )
        for event in started
    ]


async def until(handle: Handle, seen: Callable[[Progress], bool], seconds: float = 30) -> Progress:
    """Ask for the task's progress until it is as wanted."""
    async with asyncio.timeout(seconds):
        while True:
            progress = await handle.query(AgentWorkflow.progress)
            if seen(progress):
                return progress
            await asyncio.sleep(0.05)


def _scheduled(event: HistoryEvent) -> Scheduled | None:
    for call in (found.call for found in calls_in([event]) if found.call.is_local):
        return Scheduled(event.event_id, call.kind, call.id, None, _json(event.user_metadata.summary), {})
    if not event.HasField("activity_task_scheduled_event_attributes"):
        return None
    of = event.activity_task_scheduled_event_attributes
    header = of.header.fields.get(HEADER)
    return Scheduled(
        event=event.event_id,
        kind=of.activity_type.name,
        id=of.activity_id,
        args=_json(of.input.payloads[0]) if of.input.payloads else None,
        summary=_json(event.user_metadata.summary),
        header=_json(header) if header is not None else {},
    )


def _json(payload: Payload) -> Any:
    return json.loads(payload.data) if payload.data else ""


async def backoff(handle: Handle) -> None:
    """Wait until an activity waits for its second attempt."""
    async with asyncio.timeout(20):
        while not any(one.attempt == 2 for one in (await handle.describe()).raw_description.pending_activities):
            await asyncio.sleep(0.02)
