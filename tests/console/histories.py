"""Histories for the tests of `explain`: saved ones, changed ones, and what is said of them."""

from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path

from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import WorkflowHistory
from temporalio.converter import DataConverter

from client.explain import explanation, page
from client.explain.explanation import Explanation
from client.history.reader import read_history
from client.history.records import History
from runtime.payloads import DATA_CONVERTER

FOLDER = Path(__file__).parents[1] / "histories"
NAMES = sorted(file.stem for file in FOLDER.glob("*.json"))


def events(name: str) -> list[HistoryEvent]:
    return list(WorkflowHistory.from_json(name, (FOLDER / f"{name}.json").read_text()).events)


async def history(of: Iterable[HistoryEvent], converter: DataConverter = DATA_CONVERTER) -> History:

    async def one_by_one() -> AsyncIterator[HistoryEvent]:
        for event in of:
            yield event

    return await read_history("the-task", one_by_one(), converter, journal=True)


async def explained(name: str, until: int | None = None) -> Explanation:
    """A saved history explained; with `until` as it was after that event."""
    return explanation.explain_task(await history(events(name)[:until]))


async def text(name: str, until: int | None = None) -> str:
    """What is said of a saved history, a sentence a line."""
    return "\n".join(page.page_lines(await explained(name, until), None))


def event_type(event: HistoryEvent) -> str:
    """`ACTIVITY_TASK_FAILED`."""
    return EventType.Name(event.event_type).removeprefix("EVENT_TYPE_")


def change_payloads(event: HistoryEvent, change: Callable[[Payload], None]) -> None:
    """Change every payload of arguments, results and details that an event carries."""
    scheduled, completed = (
        event.activity_task_scheduled_event_attributes,
        event.activity_task_completed_event_attributes,
    )
    failure = event.activity_task_failed_event_attributes.failure.application_failure_info
    started = event.workflow_execution_started_event_attributes
    ended = event.workflow_execution_completed_event_attributes
    for holder in (scheduled.input, completed.result, failure.details, started.input, ended.result):
        for payload in holder.payloads:
            change(payload)
