"""What a ReAct task told its model and its tools and what they answered, taken out of its history for the twin."""

from collections.abc import Sequence
from typing import Final

from pydantic import BaseModel, ConfigDict
from temporalio.api.common.v1 import Payloads
from temporalio.api.history.v1 import HistoryEvent

from benchmarks import anatomy

SCHEDULED: Final = "activity_task_scheduled_event_attributes"
COMPLETED: Final = "activity_task_completed_event_attributes"


class Dialogue(BaseModel):
    """The activities of a task, in the order in which they were scheduled, with their payloads as JSON."""

    model_config = ConfigDict(frozen=True)

    turns: tuple[tuple[str, ...], ...]
    """The arguments of each turn: the model's, then those of its tools."""
    results: tuple[str, ...]
    """Of all activities."""

    @classmethod
    def of(cls, events: Sequence[HistoryEvent]) -> "Dialogue":
        """That of a history in which every activity completed."""
        results = dict(_result(event) for event in events if event.HasField(COMPLETED))
        scheduled = [[event for event in turn if event.HasField(SCHEDULED)] for turn in anatomy.turns(events)]
        return cls(
            turns=tuple(tuple(map(_arguments, turn)) for turn in scheduled),
            results=tuple(results[event.event_id] for turn in scheduled for event in turn),
        )


def _arguments(event: HistoryEvent) -> str:
    return _text(event.activity_task_scheduled_event_attributes.input)


def _result(event: HistoryEvent) -> tuple[int, str]:
    """The event that scheduled the activity, and what it returned."""
    held = event.activity_task_completed_event_attributes
    return held.scheduled_event_id, _text(held.result)


def _text(payloads: Payloads) -> str:
    return payloads.payloads[0].data.decode()
