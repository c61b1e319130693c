"""The audit of a trial: reads outcomes, histories, journals and notes, and makes the account of them."""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from pathlib import Path

from temporalio.client import WorkflowHistory

from evals.chaos import effects, notes
from evals.chaos.account import BROKEN, Account, tally, verdicts
from evals.chaos.accounts import OPENING, SIZE
from evals.chaos.book import Book
from evals.chaos.crowd import Crowd, outcome
from evals.chaos.histories import Steps, ran_again, replay_failures
from workflows.outcome import Outcome
from workflows.record import StepStatus
from workflows.task import TaskStatus

LATE_SECONDS = 7.0
"""How long after the last task an effect may still arrive that nobody waits for any more."""


async def audit(crowd: Crowd, book: Book, bank: str, noted: Path, reset: Collection[str]) -> Account:
    """Make the account of all tasks of a crowd; `reset` are the ids of those that were taken back."""
    await asyncio.sleep(LATE_SECONDS)
    outcomes = await _outcomes(crowd)
    histories = {job.id: Steps.of((await crowd.handle(job).fetch_history()).events) for job in crowd.jobs}
    happened = await effects.read(bank, book)
    found = [
        finding
        for id, ended in outcomes.items()
        if ended is not None
        for finding in verdicts(ended, happened, was_reset=id in reset)
    ]
    steps = [step for ended in outcomes.values() if ended is not None for step in ended.steps]
    untouched = {id: one for id, one in histories.items() if id not in reset}
    return Account(
        tasks=_statuses(crowd, outcomes),
        codes=tally([ended.code or "" for ended in outcomes.values() if ended and ended.code]),
        verdicts=tally([finding.verdict for finding in found]),
        findings=[finding for finding in found if finding.verdict in BROKEN],
        applied=dict(happened.all),
        replayed=sum(step.replayed for step in steps),
        undone=sum(step.status is StepStatus.UNDONE for step in steps),
        reconciled=tally([look for one in histories.values() for look in one.looks]),
        attempts={
            number: sum(step.attempts == number for step in steps) for number in sorted({one.attempts for one in steps})
        },
        ran_again=list(ran_again(untouched, notes.read(noted))),
        not_replaying=await replay_failures(_histories(crowd)),
        total_before=OPENING * SIZE,
        total_after=happened.total,
        unbalanced=list(happened.unbalanced),
        troubles=book.met(),
    )


async def _outcomes(crowd: Crowd) -> Mapping[str, Outcome | None]:
    ended = {job.id for job in crowd.finished}
    return {job.id: await outcome(crowd.handle(job)) if job.id in ended else None for job in crowd.jobs}


async def _histories(crowd: Crowd) -> AsyncIterator[WorkflowHistory]:
    """Those of all runs of all tasks, also of those that a reset left behind."""
    ids = {job.id for job in crowd.jobs}
    async for run in crowd.client.list_workflows(f"TaskQueue = '{crowd.queue}' AND WorkflowType = 'AgentWorkflow'"):
        if run.id in ids:
            yield await crowd.client.get_workflow_handle(run.id, run_id=run.run_id).fetch_history()


def _statuses(crowd: Crowd, outcomes: Mapping[str, Outcome | None]) -> dict[str, int]:
    """Tasks by status; one that is not final, or ended in no way of ours, is unfinished."""
    final = set(TaskStatus) - {TaskStatus.RUNNING, TaskStatus.WAITING}
    words = [ended.status if ended and ended.status in final else "unfinished" for ended in outcomes.values()]
    return tally([str(word) for word in words])
