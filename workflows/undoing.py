"""Taking back what a task has done: compensation, as in sagas (Garcia-Molina and Salem, 1987).

What is in doubt is found out first. Then each effect is undone by the kind that its spec names, the newest first, each
by a call with a key of its own, so that a rollback that is done again does nothing twice.
"""

from collections.abc import Callable
from datetime import datetime
from typing import assert_never

from pydantic import BaseModel, JsonValue
from temporalio import workflow
from temporalio.exceptions import ApplicationError

from workflows import ids
from workflows.catalogue import Catalogue, Companion, Effect
from workflows.details import details
from workflows.execution import Execution
from workflows.faults import Applied, Code, Fault
from workflows.outcome import Ends, Outcome
from workflows.plan import Step, Unresolved
from workflows.progress import Progress
from workflows.reconciling import Verdict, is_haunted, left_a_thread, reconcile
from workflows.record import StepRecord, StepStatus, UndoRecord
from workflows.scheduling import read_catalogue
from workflows.task import TaskStatus

UNDO_BY_PLACE = "undo-by-place"
"""Patch: effects are undone in the order that is kept in the records, no longer by the time of their ends."""
CALLS = 10
"""Tool calls that each step may take to be undone, beyond what the task could spend."""
BEGAN = (StepStatus.FAILED, StepStatus.CANCELLED, StepStatus.RUNNING, StepStatus.WAITING)
"""Steps that may have changed the world without being completed."""


class Undo(BaseModel):
    """What to undo."""

    progress: Progress
    """How far the task came, as its query `progress` says; `origin` is its first run."""


@workflow.defn(name="UndoWorkflow")
class UndoWorkflow:
    """One rollback: completed when nothing of the task is left, failed as `escalated` when a person has to look."""

    @workflow.init
    def __init__(self, given: Undo) -> None:
        """Take over the account of the task."""
        self._progress = given.progress

    @workflow.query
    def progress(self) -> Progress:
        """How far it is, without what is too large for an answer."""
        return self._progress.slim()

    @workflow.run
    async def run(self, given: Undo) -> Outcome:
        """Undo what the task did.

        Raises:
            ApplicationError: something of it stays, or nobody knows whether it does.
        """
        try:
            catalogue = await read_catalogue({})
        except Ends as early:
            raise ApplicationError(str(early), type=TaskStatus.ESCALATED, non_retryable=True) from None
        self._show()
        await roll_back(self._progress, catalogue, self._show)
        outcome = self._progress.outcome(workflow.now())
        if left := self._progress.not_undone:
            reason = f"Not undone: {left}"
            raise ApplicationError(reason, outcome, type=TaskStatus.ESCALATED, non_retryable=True)
        return outcome

    def _show(self) -> None:
        workflow.set_current_details(details(self._progress))


async def roll_back(progress: Progress, catalogue: Catalogue, changed: Callable[[], None]) -> None:
    """Undo the effects of a task that does nothing else any more; `progress.undo` says what became of each.

    Raises:
        CancelledError: it was cancelled.
    """
    for record in progress.with_status(StepStatus.PENDING):
        record.status = StepStatus.SKIPPED
    effects = [record for record in progress.records if record.effect is not Effect.READ and not record.undoes]
    progress.budget.allow(CALLS * len(effects))
    for record in effects:
        if record.started is not None and record.status in BEGAN:
            await _settle(progress, catalogue, record, changed)
    for record in effects:
        _name_first_kind(progress, record)
    done = [record for record in effects if record.status is StepStatus.COMPLETED]
    key = _place if workflow.patched(UNDO_BY_PLACE) else _ended
    for record in sorted(done, key=key, reverse=True):
        progress.undo.append(await _undo(progress, catalogue, record, changed))
        changed()
    if progress.folded.effects:
        reason = f"{progress.folded.effects} of a long task are not kept any more: `effects` lists them"
        progress.undo.append(UndoRecord(step_id="earlier steps", reason=reason))


def _name_first_kind(progress: Progress, record: StepRecord) -> None:
    """A fallback took over from a call that may have happened, too: nobody undoes that."""
    first = [one for one in progress.faults if one.step_id == record.step.id and one.source == record.step.kind]
    if record.is_fallback and is_haunted(first):
        reason = f"it may have happened as {record.step.kind} before {record.kind} took over"
        progress.undo.append(UndoRecord(step_id=record.step.id, kind=record.step.kind, reason=reason))


def _place(record: StepRecord) -> tuple[int, datetime]:
    """The order in which steps ended; their times may differ on replay, but not those that a run began with."""
    return record.place, _ended(record)


def _ended(record: StepRecord) -> datetime:
    return record.ended or workflow.now()


async def _settle(progress: Progress, catalogue: Catalogue, record: StepRecord, changed: Callable[[], None]) -> None:
    """Find out whether a step happened that did not complete; where it did, it counts as completed from now on."""
    fault = _last(progress, record)
    if fault.effect is Applied.NONE:
        return
    if fault.effect is Applied.APPLIED:
        record.status, record.result = StepStatus.COMPLETED, fault.observed
        return
    before = StepStatus.FAILED if record.status is StepStatus.FAILED else StepStatus.CANCELLED
    finding = await reconcile(progress, catalogue, record, fault, changed)
    record.status = before
    match finding.verdict:
        case Verdict.APPLIED:
            record.status, record.result = StepStatus.COMPLETED, finding.result
        case Verdict.CANNOT_TELL:
            reason = f"nobody knows whether it happened: {finding.because}"
            progress.undo.append(UndoRecord(step_id=record.step.id, reason=reason))
        case Verdict.NOT_APPLIED:
            pass  # there is nothing to undo
        case unreachable:
            assert_never(unreachable)


def _last(progress: Progress, record: StepRecord) -> Fault:
    """What a step ended with; one that was cut off in the middle may have happened."""
    faults = [fault for fault in progress.faults if fault.step_id == record.step.id]
    if faults and (record.status in (StepStatus.FAILED, StepStatus.WAITING) or record.was_waiting):
        return faults[-1]
    return Fault.of(Code.TIMEOUT, "It was cut off.", effect=Applied.UNKNOWN, source=record.kind)


async def _undo(
    progress: Progress, catalogue: Catalogue, record: StepRecord, changed: Callable[[], None]
) -> UndoRecord:
    companion = catalogue.specs[record.kind].undo if record.kind in catalogue.specs else None
    if companion is None or companion.kind not in catalogue.specs:
        return UndoRecord(step_id=record.step.id, reason=f"{record.kind} has no undo")
    try:
        args = _args(companion, record)
    except Unresolved as missing:
        return UndoRecord(
            step_id=record.step.id, kind=companion.kind, reason=f"its arguments cannot be made: {missing}"
        )
    step = Step(id=ids.of_undo(record.step.id), kind=companion.kind, title=f"undo {record.step.id}")
    effect = catalogue.specs[companion.kind].effect
    undo = StepRecord(
        step=step, revision=progress.revision, effect=effect, kind=companion.kind, undoes=record.step.id, args=args
    )
    progress.records.append(undo)
    await Execution(progress, catalogue, changed).run()
    if undo.status is not StepStatus.COMPLETED:
        reason = _last(progress, undo).reason if undo.started else "it could not be tried"
        return UndoRecord(step_id=record.step.id, kind=companion.kind, reason=reason)
    if record.effect is Effect.IDEMPOTENT and left_a_thread(progress, record):
        reason = f"{companion.kind} was called, but an earlier attempt of {record.kind} was still running when it ended"
        return UndoRecord(step_id=record.step.id, kind=companion.kind, reason=f"{reason}: see whether it did it again")
    record.status = StepStatus.UNDONE
    return UndoRecord(step_id=record.step.id, kind=companion.kind, done=True)


def _args(companion: Companion, record: StepRecord) -> dict[str, JsonValue]:
    """The arguments of the undo; unlike those of a look, none may be left out.

    Raises:
        Unresolved: the call or its result does not have what one of them is made of.
    """
    return {name: record.value_at(path) for name, path in companion.args.items()}
