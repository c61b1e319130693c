"""The account of a trial: what tasks report compared with what happened, step by step."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, computed_field
from temporalio.client import WorkflowHistory

from evals.chaos.payments import Book
from evals.chaos.tasks import Steps, TaskRunner, outcome, ran_again, replay_failures
from evals.chaos.world import OPENING, SIZE, Effects, read_effects, read_notes
from workflows.account.outcome import Outcome, OutcomeStep
from workflows.account.records import StepStatus
from workflows.account.task import TaskStatus
from workflows.faults.fault import Applied


class Verdict(StrEnum):
    """An effect, compared with what its task reports."""

    RIGHT = "right"
    """It is as the task reports."""
    DUPLICATE = "duplicate"
    """It happened more than once."""
    LOST = "lost"
    """The task reports it, and it did not happen."""
    DENIED = "denied"
    """The task reports that it did not happen, and it did."""
    UNKNOWN_DONE = "unknown that happened"
    """The task reports that it does not know."""
    UNKNOWN_NOT = "unknown that did not happen"


BROKEN = (Verdict.DUPLICATE, Verdict.LOST, Verdict.DENIED)
"""The verdicts that break a promise."""

UNDO = {"transfer": "move_back", "pay": "refund"}
"""The kinds that can be undone, and the kinds that undo them."""


class Finding(NamedTuple):
    """One effect and its verdict."""

    verdict: Verdict
    reference: str
    kind: str
    said: str
    times: int


class Account(BaseModel):
    """What became of all tasks and all their effects."""

    tasks: dict[str, int]
    """How many ended with each status; `unfinished` is none of Replan's."""
    codes: dict[str, int]
    """The codes of those that did not complete."""
    verdicts: dict[str, int]
    """How many effects have each verdict."""
    findings: list[Finding]
    """The effects that break a promise."""
    applied: dict[str, int]
    """How many effects happened, by sort."""
    replayed: int
    """Steps with a replayed result."""
    undone: int
    """Steps that were undone."""
    reconciled: dict[str, int]
    """Reconciliations by their results."""
    attempts: dict[int, int]
    """Steps by the number of their attempts."""
    ran_again: list[str]
    """Finished steps that ran again in a task that was not reset."""
    not_replaying: list[str] = []
    """Tasks whose histories do not replay."""
    total_before: int
    total_after: int
    unbalanced: list[int]
    troubles: dict[str, int]
    """How often each trouble was met at the payment service."""

    @computed_field  # type: ignore[prop-decorator]  # as pydantic's own pages have it
    @property
    def duplicates(self) -> int:
        """Effects that happened more than once."""
        return self.verdicts.get(Verdict.DUPLICATE, 0)

    @computed_field  # type: ignore[prop-decorator]  # as pydantic's own pages have it
    @property
    def lost(self) -> int:
        """Effects whose reports are wrong."""
        return self.verdicts.get(Verdict.LOST, 0) + self.verdicts.get(Verdict.DENIED, 0)

    @computed_field  # type: ignore[prop-decorator]  # as pydantic's own pages have it
    @property
    def broken(self) -> list[str]:
        """The promises that were broken, one line each."""
        broken = [
            f"{finding.verdict}: {finding.kind} {finding.reference}, said {finding.said}, {finding.times} times"
            for finding in self.findings
        ]
        broken += [f"unfinished: {self.tasks['unfinished']} tasks"] if self.tasks.get("unfinished") else []
        broken += [f"ran again: {step}" for step in self.ran_again]
        broken += [f"does not replay: {history}" for history in self.not_replaying]
        if self.total_before != self.total_after or self.unbalanced:
            broken.append(f"total {self.total_before} -> {self.total_after}, accounts {self.unbalanced} are off")
        return broken


def verdicts(outcome: Outcome, effects: Effects, *, was_reset: bool) -> Iterator[Finding]:
    """Compare each effect of a task, and of its rollback, with what happened."""
    for step in outcome.steps:
        reference = str(step.args.get("reference"))
        count = effects.count(step.kind, reference)
        if count is None:
            continue
        claim = _claim(step)
        if was_reset and count and _may_be_older(step, effects):
            claim = Applied.APPLIED
        yield Finding(_verdict(claim, count), reference, step.kind, claim, count)
    yield from _unreported_undos(outcome, effects, was_reset=was_reset)


def _may_be_older(step: OutcomeStep, effects: Effects) -> bool:
    """Whether the effect may be of a run before the reset, which the new run does not report.

    The new run did not come to the step, or was refused to repeat an effect that was undone.
    """
    undone = effects.count(UNDO.get(step.kind, ""), str(step.args.get("reference")))
    return step.status is StepStatus.SKIPPED or (step.status is StepStatus.FAILED and undone == 1)


def _unreported_undos(outcome: Outcome, effects: Effects, *, was_reset: bool) -> Iterator[Finding]:
    """Effects that were undone although the task does not report it."""
    ids = {step.id for step in outcome.steps}
    for step in outcome.steps:
        kind, reference = UNDO.get(step.kind, ""), str(step.args.get("reference"))
        count = effects.count(kind, reference) or 0
        if count and f"undo:{step.id}" not in ids:
            is_older = was_reset and count == 1
            yield Finding(Verdict.RIGHT if is_older else Verdict.DENIED, reference, kind, Applied.NONE, count)


def _claim(step: OutcomeStep) -> Applied:
    """What a task reports of an effect."""
    match step.status:
        case StepStatus.COMPLETED | StepStatus.UNDONE:
            return Applied.APPLIED
        case StepStatus.FAILED if step.fault is not None:
            return step.fault.applied
        case StepStatus.SKIPPED:
            return Applied.NONE
    return Applied.UNKNOWN


def _verdict(claim: Applied, count: int) -> Verdict:
    if count > 1:
        return Verdict.DUPLICATE
    match claim:
        case Applied.APPLIED:
            return Verdict.RIGHT if count else Verdict.LOST
        case Applied.NONE:
            return Verdict.DENIED if count else Verdict.RIGHT
        case _:
            return Verdict.UNKNOWN_DONE if count else Verdict.UNKNOWN_NOT


def tally(words: Sequence[str]) -> dict[str, int]:
    """How often each word occurs, the most frequent first."""
    return dict(Counter(words).most_common())


LATE_SECONDS = 7.0
"""How long after the last task an effect may still arrive."""


async def audit(runner: TaskRunner, book: Book, bank: str, notes: Path, reset: Collection[str]) -> Account:
    """Make the account of all tasks of a runner; `reset` has the ids of those that were reset."""
    await asyncio.sleep(LATE_SECONDS)
    outcomes = await _outcomes(runner)
    histories = {job.id: Steps.of((await runner.handle(job).fetch_history()).events) for job in runner.jobs}
    happened = await read_effects(bank, book)
    found = [
        finding
        for id, ended in outcomes.items()
        if ended is not None
        for finding in verdicts(ended, happened, was_reset=id in reset)
    ]
    steps = [step for ended in outcomes.values() if ended is not None for step in ended.steps]
    not_reset = {id: steps for id, steps in histories.items() if id not in reset}
    return Account(
        tasks=_statuses(runner, outcomes),
        codes=tally([ended.code or "" for ended in outcomes.values() if ended and ended.code]),
        verdicts=tally([finding.verdict for finding in found]),
        findings=[finding for finding in found if finding.verdict in BROKEN],
        applied=dict(happened.all),
        replayed=sum(step.replayed for step in steps),
        undone=sum(step.status is StepStatus.UNDONE for step in steps),
        reconciled=tally([result for steps in histories.values() for result in steps.reconciled]),
        attempts=dict(sorted(Counter(step.attempts for step in steps).items())),
        ran_again=list(ran_again(not_reset, read_notes(notes))),
        not_replaying=await replay_failures(_histories(runner)),
        total_before=OPENING * SIZE,
        total_after=happened.total,
        unbalanced=list(happened.unbalanced),
        troubles=book.trouble_counts(),
    )


async def _outcomes(runner: TaskRunner) -> Mapping[str, Outcome | None]:
    ended = {job.id for job in runner.finished}
    return {job.id: await outcome(runner.handle(job)) if job.id in ended else None for job in runner.jobs}


async def _histories(runner: TaskRunner) -> AsyncIterator[WorkflowHistory]:
    """The histories of all runs of all tasks, also of those that were reset."""
    ids = {job.id for job in runner.jobs}
    async for run in runner.client.list_workflows(f"TaskQueue = '{runner.queue}' AND WorkflowType = 'AgentWorkflow'"):
        if run.id in ids:
            yield await runner.client.get_workflow_handle(run.id, run_id=run.run_id).fetch_history()


def _statuses(runner: TaskRunner, outcomes: Mapping[str, Outcome | None]) -> dict[str, int]:
    """Tasks by status; without a final status they are unfinished."""
    final = set(TaskStatus) - {TaskStatus.RUNNING, TaskStatus.WAITING, TaskStatus.PAUSED}
    words = [ended.status if ended and ended.status in final else "unfinished" for ended in outcomes.values()]
    return tally([str(word) for word in words])
