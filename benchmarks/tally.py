"""The tally of a long task: which steps ran, in which attempt, and when; and what its histories say of the same."""

from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client


@dataclass(frozen=True)
class Line:
    """One run of one step."""

    step: str
    attempt: int
    at: float
    """Seconds since 1970."""


class Tally:
    """The file that the tool `tally` writes, read as it grows."""

    def __init__(self, file: Path) -> None:
        """Read `file`, which may not be there yet."""
        self._file = file
        self._read = 0
        self.lines: list[Line] = []
        self.first: list[float] = []
        """When each step ran first, in the order in which they did."""
        self._seen: set[str] = set()

    def update(self) -> int:
        """Read what is new; the number of different steps so far."""
        if self._file.exists():
            with self._file.open("rb") as file:
                file.seek(self._read)
                new = file.read()
            self._read += len(new)
            for words in new.decode().splitlines():
                self._add(words)
        return len(self.first)

    def _add(self, words: str) -> None:
        step, attempt, at = words.split()
        self.lines.append(Line(step, int(attempt), float(at)))
        if step not in self._seen:
            self._seen.add(step)
            self.first.append(float(at))


class RunSize(BaseModel):
    """How large the history of one run became."""

    model_config = ConfigDict(frozen=True)

    events: int
    bytes: int


class Audit(BaseModel):
    """What became of every step of a task, over all its runs."""

    model_config = ConfigDict(frozen=True)

    finished: int
    """Steps that finished exactly once."""
    finished_twice: int
    ran_again: int
    """Steps that ran in a later attempt, or were scheduled anew, after they had finished."""
    cut: int
    """Steps that a kill cut off, and that ran a second time before they finished."""
    runs: tuple[RunSize, ...]


async def audited(client: Client, task: str, run: str | None, lines: Sequence[Line]) -> Audit:
    """Hold the tally of a task against the histories of all its runs, from `run` on."""
    again, completed, runs = set[str](), dict[str, list[int]](), list[RunSize]()
    while run:
        handle = client.get_workflow_handle(task, run_id=run)
        events = (await handle.fetch_history()).events
        info = (await handle.describe()).raw_description.workflow_execution_info
        runs.append(RunSize(events=info.history_length, bytes=info.history_size_bytes))
        steps = _steps(events)
        again |= set(_scheduled_again(events, steps, completed))
        for step, attempt in _completed(events, steps):
            completed.setdefault(step, []).append(attempt)
        run = events[-1].workflow_execution_continued_as_new_event_attributes.new_execution_run_id
    latest = {step: max(attempts) for step, attempts in completed.items()}
    again |= {line.step for line in lines if line.attempt > latest.get(line.step, line.attempt)}
    ran = Counter(line.step for line in lines)
    return Audit(
        finished=sum(len(attempts) == 1 for attempts in completed.values()),
        finished_twice=sum(len(attempts) > 1 for attempts in completed.values()),
        ran_again=len(again),
        cut=sum(times > 1 for times in ran.values()),
        runs=tuple(runs),
    )


def _steps(events: Sequence[HistoryEvent]) -> dict[int, str]:
    """The steps that were scheduled, by the event that did it."""
    return {
        event.event_id: event.activity_task_scheduled_event_attributes.activity_id
        for event in events
        if event.activity_task_scheduled_event_attributes.activity_type.name == "tally"
    }


def _scheduled_again(events: Sequence[HistoryEvent], steps: Mapping[int, str], before: Container[str]) -> Iterator[str]:
    """The steps that were scheduled when they had finished, in this run or `before`."""
    finished = set[str]()
    for event in events:
        if event.HasField("activity_task_completed_event_attributes"):
            finished.add(steps.get(event.activity_task_completed_event_attributes.scheduled_event_id, ""))
        step = steps.get(event.event_id)
        if step is not None and (step in finished or step in before):
            yield step


def _completed(events: Sequence[HistoryEvent], steps: dict[int, str]) -> list[tuple[str, int]]:
    """The steps that finished, each with the attempt that did it."""
    started = {
        event.event_id: event.activity_task_started_event_attributes.attempt
        for event in events
        if event.HasField("activity_task_started_event_attributes")
    }
    ends = [
        event.activity_task_completed_event_attributes
        for event in events
        if event.HasField("activity_task_completed_event_attributes")
    ]
    return [
        (steps[end.scheduled_event_id], started[end.started_event_id])
        for end in ends
        if end.scheduled_event_id in steps
    ]
