"""Rollback: undo the effects of a task, by compensation as in sagas (Garcia-Molina and Salem, 1987).

Runs at the end of a task that is to be undone and, as a workflow of its own, when a person undoes or resets a task.

Unknown outcomes are reconciled first. Then each effect is undone by the kind that its spec names, the newest effect
first. Each undo is a call with an idempotency key of its own, so a repeated rollback applies nothing twice.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import assert_never

from pydantic import BaseModel, JsonValue
from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

from workflows import ids
from workflows.account.entries_of_steps import Attempted, Reconciled, StepEnded
from workflows.account.journal import Allowed, JournalPage, TaskClosed, UndoBegun, UndoEnded
from workflows.account.outcome import Ending, Outcome, TaskEnded, refusal
from workflows.account.progress import Progress
from workflows.account.records import FaultRecord, StepRecord, StepStatus, UndoRecord
from workflows.account.task import UNREADABLE, TaskStatus
from workflows.arguments import MalformedArgument, read_argument, undecoded
from workflows.calls.asking import read_catalogue
from workflows.calls.execution import Execution
from workflows.calls.reconciling import (
    APPLIED_BY,
    CallOutcome,
    FoundOutcome,
    left_thread_behind,
    reconcile,
    since_reconciled,
    with_earlier_outcome,
)
from workflows.calls.scheduling import TakesAdmissions
from workflows.faults.fault import Applied, Code, Fault
from workflows.json_values import digest
from workflows.people.approval import ApprovedCall, approval_code
from workflows.planning.trust import returns_untrusted, unsourced
from workflows.plans.catalogue import FORM, Catalogue, Effect, OtherForm, ToolSpec
from workflows.plans.proposal import Step
from workflows.plans.references import Unresolved
from workflows.seal import NotSealed, Seal
from workflows.web_ui import details

CALLS_PER_UNDO = 10
"""How many tool calls the undo of one step may make, even if the task has used up its limit of tool calls."""
UNFINISHED = (StepStatus.FAILED, StepStatus.CANCELLED, StepStatus.RUNNING, StepStatus.WAITING)
"""States of steps that may have applied their effect although they are not completed."""
_END_OF_TIME = datetime.max.replace(tzinfo=UTC)


class Undo(BaseModel):
    """The input of UndoWorkflow."""

    progress: Progress
    """The state of the task to undo, as the query `progress` returns it, but with `origin` set to its first run id."""


@workflow.defn(name="UndoWorkflow")
class UndoWorkflow(TakesAdmissions):
    """Undoes a closed task; completes when all its effects are undone, and fails as `escalated` otherwise.

    It may be started again: calls that were made before return their first result.
    """

    @workflow.init
    @undecoded
    def __init__(self, *arguments: Undo | RawValue) -> None:
        self._seal = Seal("rollback", arguments)
        self._progress = Progress.of(UNREADABLE)
        self._refused: Ending | None = None
        if self._seal.refusal:
            self._refused = refusal(self._seal.refusal)
            return
        try:
            self._progress = read_argument(arguments, Undo).progress
            if self._progress.form != FORM:
                raise OtherForm(self._progress.form)
        except (MalformedArgument, OtherForm) as malformed:
            self._progress = Progress.of(UNREADABLE)
            reason = f"What is to be undone cannot be read: {malformed}".rstrip(".")
            self._refused = refusal(f"{reason}.")

    @workflow.query
    def progress(self) -> Progress:
        """The state of the task, without values that are too large for an answer."""
        return self._progress.slim().without_course()

    @workflow.query
    def journal(self, after: str = "") -> JournalPage:
        """The entries of the task's journal that follow the cursor `after`; from the first one if it is empty."""
        return self._progress.entries_after(workflow.info().run_id, after)

    @workflow.run
    @undecoded
    async def run(self, *arguments: Undo | RawValue) -> Outcome:
        """Undo the effects of the task; raise ApplicationError if one is not undone, or its outcome is unknown."""
        if self._refused:
            self._progress.write(TaskClosed(ending=self._refused))
            outcome = self._progress.outcome(workflow.now())
            error = NotSealed if self._seal.refusal else ApplicationError
            raise error(outcome.reason, outcome, type=outcome.status, non_retryable=True)
        try:
            catalogue = await read_catalogue({}, progress=self._progress)  # a rollback needs the kinds, and no planner
        except TaskEnded as early:
            raise ApplicationError(str(early), type=TaskStatus.ESCALATED, non_retryable=True) from None
        self._update_details()
        await roll_back(self._progress, catalogue, self._update_details)
        outcome = self._progress.outcome(workflow.now())
        if left := self._progress.not_undone:
            reason = f"Not undone: {left}"
            raise ApplicationError(reason, outcome, type=TaskStatus.ESCALATED, non_retryable=True)
        return outcome

    def _update_details(self) -> None:
        workflow.set_current_details(details(self._progress))


async def roll_back(progress: Progress, catalogue: Catalogue, changed: Callable[[], None]) -> None:
    """Undo the effects of a task whose steps have ended, as `progress.undo` records; report changes with `changed`."""
    for record in progress.with_status(StepStatus.PENDING):
        progress.write(StepEnded(step=record.step.id, status=StepStatus.SKIPPED))
    effects = [record for record in progress.records if _is_effect(record)]
    # A rollback must not stop because the task has used up its tool calls.
    progress.write(Allowed(calls=CALLS_PER_UNDO * len(effects)))
    for record in effects:
        if record.started is not None and record.status in UNFINISHED:
            await _settle_outcome(progress, catalogue, record, changed)
    for record in effects:
        _report_first_kind(progress, record)
    for record in newest_first(progress):
        if record.status is StepStatus.COMPLETED:
            undo = await _undo(progress, catalogue, record, changed)
            progress.write(UndoEnded(step=record.step.id, undo=undo))
            changed()
    if progress.folded.effects:
        reason = f"{progress.folded.effects} of a long task are not kept any more: `effects` lists them"
        progress.write(UndoEnded(undo=UndoRecord(step_id="earlier steps", reason=reason)))
    undone = sum(undo_record.done for undo_record in progress.undo)
    workflow.logger.info("rollback", extra={"undone": undone, "left": len(progress.undo) - undone})


def _report_first_kind(progress: Progress, record: StepRecord) -> None:
    """If a fallback took over, and the call before it may have been applied, record that call as not undone."""
    first = [fault for fault in progress.faults if fault.step_id == record.step.id and fault.source == record.step.kind]
    if record.is_fallback and any(fault_record.applied is not Applied.NONE for fault_record in since_reconciled(first)):
        reason = f"it may have been applied as {record.step.kind} before {record.kind} took over"
        undo = UndoRecord(step_id=record.step.id, kind=record.step.kind, reason=reason)
        progress.write(UndoEnded(step=record.step.id, undo=undo))


def newest_first(progress: Progress) -> list[StepRecord]:
    """The steps that have an effect, in the order in which a rollback undoes them."""
    return sorted(filter(_is_effect, progress.records), key=_sort_key, reverse=True)


def _is_effect(record: StepRecord) -> bool:
    return record.effect is not Effect.READ and not record.undoes


def _sort_key(record: StepRecord) -> tuple[int, datetime]:
    # Times that this run recorded may differ on replay; those that it began with do not.
    return record.place, record.ended or _END_OF_TIME


async def _settle_outcome(
    progress: Progress, catalogue: Catalogue, record: StepRecord, changed: Callable[[], None]
) -> None:
    """Find out whether a step that did not complete applied its effect; if so, set the step's status to completed."""
    # An attempt before the last one may have applied the effect.
    fault = with_earlier_outcome(record, record.effect, progress.faults, last_fault(progress, record))
    if fault.applied is Applied.NONE:
        return
    if fault.applied is Applied.APPLIED:
        _complete(progress, record, fault.observed)
        return
    before = StepStatus.FAILED if record.status is StepStatus.FAILED else StepStatus.CANCELLED
    finding = await reconcile(progress, catalogue, record, fault, changed)
    _note_finding(progress, record, fault, finding)
    if record.status is not before:  # `reconcile` changes it while it waits
        progress.write(StepEnded(step=record.step.id, status=before))
    match finding.verdict:
        case CallOutcome.APPLIED:
            _complete(progress, record, finding.result)
        case CallOutcome.CANNOT_TELL:
            reason = f"nobody knows whether it was applied: {finding.because}"
            progress.write(UndoEnded(step=record.step.id, undo=UndoRecord(step_id=record.step.id, reason=reason)))
        case CallOutcome.NOT_APPLIED:
            pass  # there is nothing to undo
        case unreachable:
            assert_never(unreachable)


def _note_finding(progress: Progress, record: StepRecord, fault: Fault, finding: FoundOutcome) -> None:
    """Record what was found out about the last call of a step, in place of the record of its fault."""
    found = fault.model_copy(update={"applied": APPLIED_BY[finding.verdict]})
    known = fault if isinstance(fault, FaultRecord) else None
    about = record.step.id, record.revision, known.decision if known else "reconcile"
    note = FaultRecord.of_call(found, *about, at=known.at if known else workflow.now(), reconciled=finding.verdict)
    entry = Reconciled if known else Attempted
    progress.write(entry(step=record.step.id, proof=record.call_id, fault=note, is_over=True))


def _complete(progress: Progress, record: StepRecord, result: JsonValue) -> None:
    progress.write(StepEnded(step=record.step.id, status=StepStatus.COMPLETED, result=result))


def last_fault(progress: Progress, record: StepRecord) -> Fault:
    """The fault with which a step ended; for a step cancelled during a call, a fault with an unknown outcome."""
    faults = [fault for fault in progress.faults if fault.step_id == record.step.id]
    if faults and (record.status in (StepStatus.FAILED, StepStatus.WAITING) or record.was_waiting):
        return faults[-1]
    return Fault.of(Code.TIMEOUT, "It was cut off.", applied=Applied.UNKNOWN, source=record.kind)


class UndoCall(BaseModel, frozen=True):
    """The call that undoes the effect of a step."""

    step: str
    kind: str
    args: dict[str, JsonValue]

    @property
    def digest(self) -> str:
        """The digest of the kind and the arguments, which the worker compares with the digest of its own call."""
        return digest(self.kind, self.args)


class NoUndo(Exception):
    """The effect of a step cannot be undone; the message says why."""

    def __init__(self, reason: str, kind: str = "") -> None:
        """`kind` is the tool that would undo the effect; empty if there is none."""
        super().__init__(reason)
        self.kind = kind


def undo_call(record: StepRecord, specs: Mapping[str, ToolSpec]) -> UndoCall:
    """The call that undoes the effect of a step; NoUndo if no tool does, or its arguments are not known."""
    companion = specs[record.kind].undo if record.kind in specs else None
    if companion is None or companion.kind not in specs:
        raise NoUndo(f"{record.kind} has no undo")
    args = dict[str, JsonValue]()
    for name, path in companion.args.items():
        try:
            args[name] = record.value_at(path)
        except Unresolved as missing:
            # Only what the call itself left out has a default: another value could undo something else.
            if name not in companion.defaults or record.args is None:
                raise NoUndo(f"its arguments cannot be made: {missing}", companion.kind) from None
            if companion.defaults[name] is not None:
                args[name] = companion.defaults[name]
    return UndoCall(step=record.step.id, kind=companion.kind, args=args)


def why_outside(progress: Progress, specs: Mapping[str, ToolSpec], record: StepRecord, call: UndoCall) -> str:
    """Why a person must confirm the call that undoes a step, because of untrusted content; empty if nobody must."""
    companion = specs[record.kind].undo
    return unsourced(progress, specs, record, companion, call.args) if companion else ""


def _approval(progress: Progress, record: StepRecord, id: str, call: UndoCall) -> ApprovedCall | None:
    """The approval of the call `id` that undoes a step; None if no person has confirmed it."""
    if progress.confirmed.get(record.step.id) != call.digest:
        return None
    code = approval_code(workflow.info().run_id, ids.idempotency_key(id, progress.key_prefix), call.digest)
    return ApprovedCall(code=code, shown=call.digest, allowed=call.digest, statements=progress.vouched)


async def _undo(
    progress: Progress, catalogue: Catalogue, record: StepRecord, changed: Callable[[], None]
) -> UndoRecord:
    try:
        call = undo_call(record, catalogue.specs)
    except NoUndo as missing:
        return UndoRecord(step_id=record.step.id, kind=missing.kind, reason=str(missing))
    stays = UndoRecord(step_id=record.step.id, kind=call.kind)
    step = Step(id=ids.of_undo(record.step.id), kind=call.kind, title=f"undo {record.step.id}")
    effect = catalogue.specs[call.kind].effect
    undo = StepRecord(
        step=step,
        revision=progress.revision,
        effect=effect,
        kind=call.kind,
        undoes=record.step.id,
        args=call.args,
        is_tainted=returns_untrusted(catalogue.specs, record),
        approval=_approval(progress, record, step.id, call),
    )
    why = why_outside(progress, catalogue.specs, record, call)  # then the worker makes it only with an approval
    progress.write(UndoBegun(step=step.id, proof=step.id, record=undo, outside=why))
    undo = progress.records[-1]
    await Execution(progress, catalogue, changed).run()
    if undo.status is not StepStatus.COMPLETED:
        fault = last_fault(progress, undo)
        reason = fault.reason if undo.started else "it could not be tried"
        if why and fault.code is Code.NEEDS_APPROVAL:
            reason = f"{call.kind} needs approval: {why}."
        return stays.model_copy(update={"reason": reason})
    # That attempt may have applied the effect after the undo; a ledger or a key would have prevented it.
    if record.effect is Effect.IDEMPOTENT and left_thread_behind(progress, record):
        reason = f"{call.kind} was called, but an earlier attempt of {record.kind} was still running when it ended"
        return stays.model_copy(update={"reason": f"{reason}: find out whether it applied its effect again"})
    return stays.model_copy(update={"done": True})
