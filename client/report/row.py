"""What a report keeps of one task: counts and values, without texts, arguments and results.

Made when a report has read the history of the task; added up when all tasks are read.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from enum import StrEnum

from pydantic import BaseModel

from client.explain.explanation import status
from client.history.records import History
from client.history.story import requests_about
from workflows.account import metrics
from workflows.account.metrics import Sample
from workflows.account.outcome import Outcome
from workflows.account.records import FaultRecord, StepStatus
from workflows.account.task import TaskStatus
from workflows.faults.fault import Code
from workflows.limits.budget import TaskBudget
from workflows.people.requests import CHOICES, REPEATED

Labels = tuple[str, ...]


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


class OpenRequest(BaseModel, frozen=True):
    """A request to a person that has no answer yet."""

    task_id: str
    kind: str
    """The code of the fault, or `question`, or the limit that is reached."""
    since: datetime


class TaskRow(BaseModel, frozen=True):
    """One task, reduced to what a report adds up."""

    task_id: str
    first_run: str
    status: TaskStatus
    code: str
    ended_at: datetime | None
    counters: tuple[tuple[str, Labels, int], ...]
    """Metric, labels and sum, of the metrics in `metrics.COUNTED`."""
    values: tuple[tuple[str, Labels, float], ...]
    """Metric, labels and value, of the metrics in `metrics.DISTRIBUTIONS`."""
    recoveries: tuple[tuple[str, str, str, int], ...]
    """Quadrant, code, what followed and the number of faults, for the faults of steps and of the planner."""
    waiting: tuple[OpenRequest, ...] = ()
    known: tuple[tuple[str, int], ...] = ()
    """How many answers came from people whom a door knew so (`token`, ...); empty text for names that were claimed."""
    unreadable: tuple[str, ...] = ()
    """Why payloads of the history could not be read; empty if all payloads were read."""


def row_of(history: History) -> TaskRow:
    """The row of a task, from its account; the row of a running task has what has ended so far."""
    account, counts = history.account, history.account.counts or {}
    end = history.end if history.end and history.end.status != "continued" else None
    waiting = [] if end else [request for request in account.requests if request.is_open]
    recoveries = Counter(
        (fault.quadrant, fault.code, what) for fault, what in recoveries_of(account, is_over=bool(end))
    )
    numbers = ((metric.name, metrics.counted(counts, metric)) for metric in metrics.COUNTED)
    return TaskRow(
        task_id=history.task_id,
        first_run=history.first_run,
        status=TaskStatus.WAITING if waiting else status(history),
        code=(end.code or "" if end.outcome else end.status) if end else "",
        ended_at=end.at if end else None,
        counters=tuple((name, labels, number) for name, sums in numbers for labels, number in sums.items()),
        values=tuple((sample.metric.name, sample.labels, sample.value) for sample in values_of(account)),
        recoveries=tuple((*of, number) for of, number in recoveries.items()),
        waiting=tuple(OpenRequest(task_id=history.task_id, kind=one.code, since=one.since) for one in waiting),
        known=tuple(Counter(known_by(account)).items()),
        unreadable=tuple(sorted({payload.why for payload in history.unreadable})),
    )


def known_by(account: Outcome) -> Iterator[str]:
    """For each answer of a person how a door knew that person; empty for a name that was only claimed."""
    for request in account.requests:
        for answer in (*request.endorsed, *([request.answer] if request.answer else [])):
            yield answer.statement.how if answer.statement else ""


def values_of(account: Outcome) -> Iterator[Sample]:
    """The samples for histograms: delays of retries and, of a task that ended, what it used."""
    for fault in (*account.faults, *account.own_faults):
        if fault.waited is not None and fault.source not in metrics.PLANNERS:
            yield Sample(metrics.RETRY_DELAY, (fault.source, fault.code), fault.waited)
    if account.ended_at is None or account.limits is None:
        return
    first = {fault.revision: fault.at for fault in reversed(account.faults) if fault.decision == "replan"}
    for plan in account.revisions:
        if plan.at and plan.number - 1 in first:
            yield Sample(metrics.TIME_TO_REPLAN, (), (plan.at - first[plan.number - 1]).total_seconds())
    retries = Counter[str]()
    for (tool, _), number in metrics.counted(account.counts or {}, metrics.RETRIES).items():
        retries[tool] += number
    budget = TaskBudget(limits=account.limits, spent=account.spent, retries=dict(retries))
    steps = account.omitted + sum(step.started is not None for step in account.steps)
    yield from metrics.distributions(account.status, steps, account.replans, account.spent, budget)


def recoveries_of(account: Outcome, *, is_over: bool) -> Iterator[tuple[FaultRecord, str]]:
    """Each fault of a step, of an undo and of the planner, and what followed: a Recovery, or another decision."""
    # That a read finds nothing is an answer; a catalogue that cannot be read ends the task.
    own = [record for record in account.own_faults if record.source in metrics.PLANNERS]
    for faults in (account.faults, own):
        for index, fault in enumerate(faults):
            if fault.code is not Code.NEEDS_APPROVAL:
                later = [record for record in faults[index + 1 :] if record.step_id == fault.step_id]
                yield fault, _recovery(account, fault, later, Recovery.NONE if is_over else Recovery.OPEN)


def _recovery(account: Outcome, fault: FaultRecord, later: Sequence[FaultRecord], undecided: Recovery) -> str:
    """What followed a fault; `later` are the further faults of its step, `undecided` the result if nothing followed."""
    if fault.reconciled == "applied":
        return Recovery.RECONCILE
    if requests := requests_about(account, fault):
        answer = requests[-1].answer
        if requests[-1].closed == REPEATED:
            return Recovery.RETRY
        return undecided if answer is None else Recovery.NONE if CHOICES[answer.choice].ends_task else Recovery.PERSON
    if fault.decision == "replan":
        has_later_plan = any(revision.number > fault.revision for revision in account.revisions)
        return Recovery.REPLAN if has_later_plan or account.status is TaskStatus.COMPLETED else undecided
    if later:
        return _recovery(account, later[0], later[1:], undecided)
    done = (StepStatus.COMPLETED, StepStatus.UNDONE)
    is_unfinished = any(step.id == fault.step_id and step.status not in done for step in account.steps)
    if is_unfinished or fault.decision in ("escalate", "reconcile", "ask"):
        return undecided
    return {"wait": Recovery.RETRY}.get(fault.decision, fault.decision)
