"""What the histories of the tasks tell: looks after unknown effects, and finished steps that ran again."""

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import WorkflowHistory

from evals.chaos.notes import Note
from replan.testing.replay import replayer
from workflows.faults import Quadrant

LOOK = ":reconcile"
"""How the id of an activity ends that finds out about an unknown effect."""


@dataclass
class Steps:
    """The activities of one run."""

    completed: dict[str, datetime] = field(default_factory=dict)
    """When each was finished, by the server's clock."""
    again: set[str] = field(default_factory=set)
    """Those that were scheduled after that."""
    looks: list[str] = field(default_factory=list)
    """What became of each look after an unknown effect."""

    @classmethod
    def of(cls, events: Sequence[HistoryEvent]) -> "Steps":
        """Read them from a history."""
        steps, ids = cls(), dict[int, str]()
        for event in events:
            match event.WhichOneof("attributes"):
                case "activity_task_scheduled_event_attributes":
                    id = event.activity_task_scheduled_event_attributes.activity_id
                    ids[event.event_id] = id
                    if id in steps.completed and not id.endswith(LOOK):
                        steps.again.add(id)
                case "activity_task_completed_event_attributes":
                    id = ids[event.activity_task_completed_event_attributes.scheduled_event_id]
                    steps.completed[id] = event.event_time.ToDatetime(UTC)
                    steps.looks += ["found"] * id.endswith(LOOK)
                case "activity_task_failed_event_attributes":
                    failed = event.activity_task_failed_event_attributes
                    is_look = ids[failed.scheduled_event_id].endswith(LOOK)
                    is_known = failed.failure.application_failure_info.type == Quadrant.PERSISTENT_SEMANTIC
                    steps.looks += ["not found" if is_known else "failed"] * is_look
        return steps


async def replay_failures(histories: AsyncIterator[WorkflowHistory]) -> list[str]:
    """The histories of tasks that do not replay, each with what is wrong."""
    async with replayer().workflow_replay_iterator(histories) as results:
        return [f"{one.history.workflow_id}: {one.replay_failure}" async for one in results if one.replay_failure]


def ran_again(steps: Mapping[str, Steps], notes: Sequence[Note]) -> Iterator[str]:
    """The finished steps that ran again, by task and step: scheduled or called when they were completed already."""
    for task, one in steps.items():
        yield from (f"{task} {id}" for id in sorted(one.again))
    for note in notes:
        completed = steps[note.task].completed.get(note.step) if note.task in steps else None
        if completed is not None and note.scheduled > completed and not note.step.endswith(LOOK):
            yield f"{note.task} {note.step}, attempt {note.attempt}"
