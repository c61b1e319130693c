"""What a report keeps of one task: counts and values, without texts, arguments and results."""

from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from enum import StrEnum

from pydantic import BaseModel, ConfigDict

from client.effects import next_call, reconciliation_of
from client.explain.explanation import status
from client.explain.faults import failed_before, replan_after
from client.explain.waste import is_completed
from client.history.records import AttemptFailure, Call, CallEnd, Event, History
from client.history.story import ProposalVerdict, Story
from client.receipt import by_call, counts, samples
from workflows import measures
from workflows.budget import Budget
from workflows.faults import Code
from workflows.measures import Sample
from workflows.outcome import Outcome
from workflows.people import Choice, HumanAnswer
from workflows.plan import GiveUp, Question
from workflows.reconciling import Verdict
from workflows.task import TaskStatus

Labels = tuple[str, ...]


WENT_ON = (ProposalVerdict.ACCEPTED, ProposalVerdict.UNREADABLE)


class Recovery(StrEnum):
    """What followed a fault."""

    RETRY = "retry"
    """The same tool, or the planner, was called again, and then the call was completed."""
    FALLBACK = "fallback"
    RECONCILE = "reconcile"
    """The call was found applied."""
    REPLAN = "replan"
    PERSON = "person"
    NONE = "none"
    """Nothing: the task ended, or the step was given up."""
    OPEN = "open"
    """The task runs, and what follows is not decided yet."""


class OpenRequest(BaseModel):
    """A request to a person that has no answer yet."""

    model_config = ConfigDict(frozen=True)

    task_id: str
    kind: str
    """The code of the fault, or `question`, or the limit that is reached."""
    since: datetime


class TaskRow(BaseModel):
    """One task, reduced to what a report adds up."""

    model_config = ConfigDict(frozen=True)

    task_id: str
    run_id: str
    first_run: str
    status: TaskStatus
    code: str
    started_at: datetime
    ended_at: datetime | None
    counters: tuple[tuple[str, Labels, int], ...]
    """Metric, labels and sum, of the metrics in `measures.COUNTED`."""
    values: tuple[tuple[str, Labels, float], ...]
    """Metric, labels and value, of those in `measures.DISTRIBUTIONS`."""
    helped: tuple[tuple[Labels, int], ...]
    """By tool and code, how many retries helped."""
    recoveries: tuple[tuple[str, str, str, int], ...]
    """By quadrant and code, what followed faults of steps and of the planner."""
    waiting: tuple[OpenRequest, ...] = ()
    unreadable: tuple[str, ...] = ()
    """Why payloads of its history could not be read; empty if all could."""


def row_of(history: History) -> TaskRow:
    """The row of a task, from its history; that of a running task has what has ended."""
    story, end = Story(history), history.end
    is_over = end is not None and end.status != "continued"
    waiting = [] if is_over else [one for one in story.requests if one.timer.ended is None]
    recoveries = Counter((_quadrant(fault), _code(fault), recovery) for fault, recovery in recoveries_of(story))
    helped = Counter(
        one.labels
        for call, of_call in by_call(history)
        for one in of_call
        if one.metric is measures.RETRIES and is_completed(story, call)
    )
    return TaskRow(
        task_id=history.task_id,
        run_id=history.run_ids[-1] if history.run_ids else "",
        first_run=history.first_run,
        status=TaskStatus.WAITING if waiting else status(history),
        code=(history.outcome.code or "" if history.outcome else end.status) if end and is_over else "",
        started_at=history.started_at or history.last_at,
        ended_at=end.at if end and is_over else None,
        counters=tuple((metric.name, labels, number) for (metric, labels), number in counts(history).items()),
        values=tuple((one.metric.name, one.labels, one.value) for one in values_of(story)),
        helped=tuple(helped.items()),
        recoveries=tuple((*of, number) for of, number in recoveries.items()),
        waiting=tuple(OpenRequest(task_id=history.task_id, kind=one.code, since=one.timer.at) for one in waiting),
        unreadable=tuple(sorted({one.why for one in history.unreadable})),
    )


def values_of(story: Story) -> Iterator[Sample]:
    """The samples for histograms: delays of retries and, of a task that ended, what it used."""
    yield from (one for one in samples(story.history) if one.metric in measures.DISTRIBUTIONS)
    outcome, task = story.history.outcome, story.history.task
    if outcome is None:
        return
    for plan in story.plans:
        if plan.turn.is_replan and (accepted := plan.turn.call.ended_at):
            left = [one for one in outcome.faults if one.decision == "replan" and one.revision == plan.number - 1]
            yield from measures.of_new_plan(left, accepted)
    retries = Counter[str]()
    for (metric, labels), number in counts(story.history).items():
        if metric is measures.RETRIES:
            retries[labels[0]] += number
    if task is not None:
        limits = task.limits.model_dump()
        for answer in _extensions(outcome):
            for name, more in answer.extended.items():
                limits[name] = (limits[name] or 0) + more
        limited = task.limits.model_copy(update=limits)
        yield from measures.distributions(outcome, Budget(limits=limited, spent=outcome.spent, retries=dict(retries)))


def _extensions(outcome: Outcome) -> Iterator[HumanAnswer]:
    yield from outcome.extensions
    yield from (request.answer for request in outcome.requests if request.answer)


def recoveries_of(story: Story) -> Iterator[tuple[AttemptFailure, Recovery]]:
    """Each fault of a step's call, of an undo and of the planner, and what followed."""
    for call in story.history.calls:
        # That a read finds nothing is an answer; a catalogue that cannot be read ends the task.
        if call.is_reconcile or call.is_observation or (call.is_own and call.kind not in measures.PLANNERS):
            continue
        failed = call.closed is CallEnd.FAILED and call.failing is not None
        faults = [*failed_before(call), *([call.failing] if failed and call.failing else [])]
        recovery = Recovery.RETRY if call.closed is CallEnd.COMPLETED else _recovery(story, call)
        yield from ((fault, recovery) for fault in faults if fault.code is not Code.NEEDS_APPROVAL)
    for record in story.faults():
        of_step = story.history.of_step(record.step_id)
        if record.attempt == 0 and not any(one.failing and one.failing.code is record.code for one in of_step):
            # No call was made, so that no event tells of the fault.
            is_replanned = any(plan.number > record.revision for plan in story.plans)
            yield AttemptFailure.of(record), Recovery.REPLAN if is_replanned else Recovery.NONE


def _recovery(story: Story, call: Call) -> Recovery:
    """What followed a call that was not completed."""
    undecided = Recovery.OPEN if story.history.end is None else Recovery.NONE
    if call.closed is not CallEnd.FAILED:
        return undecided
    found = reconciliation_of(story, call)
    if found and found.verdict is Verdict.APPLIED:
        return Recovery.RECONCILE
    if asked := story.request_after(call):
        if asked.answer is None:
            return undecided
        return Recovery.NONE if asked.answer.choice is Choice.ABORT else Recovery.PERSON
    if following := next_call(story, call):
        if following.closed is CallEnd.COMPLETED:
            return Recovery.RETRY if following.kind == call.kind else Recovery.FALLBACK
        return _recovery(story, following)
    return Recovery.REPLAN if _is_replanned(story, call.ended or call.scheduled) else undecided


def _is_replanned(story: Story, after: Event) -> bool:
    """Whether the planner was asked because of a fault, and went on with a plan or an answer."""
    asked = replan_after(story, after)
    turns = [turn for turn in story.turns if asked and turn.call.scheduled >= asked.call.scheduled]
    return any(turn.verdict in WENT_ON and not isinstance(turn.proposal, GiveUp | Question) for turn in turns)


def _quadrant(fault: AttemptFailure) -> str:
    return fault.quadrant or "unknown"


def _code(fault: AttemptFailure) -> str:
    return fault.code or "unknown"
