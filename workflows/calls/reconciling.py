"""Reconciliation: find out whether a call with an unknown outcome was applied, as payment systems do.

Runs after the fault that leaves the outcome unknown, before a person is asked or a new plan is made; in a rollback,
before the effect is undone.

The ledger answers first: a call whose result it has was applied, although its answer never reached the server. Then the
read that the kind names as `reconcile` looks for the effect. What it finds is the result of the call. "Not found" is
trusted only when no attempt can still be running: `settle` seconds after the end of the last attempt or, if no
worker reported that end, after the latest moment at which the attempt can have ended. If a thread of the call outlived
its attempt, there is no such moment, so "not found" is never trusted.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from enum import StrEnum
from functools import partial
from typing import NamedTuple

from pydantic import JsonValue
from temporalio import workflow

from workflows import ids
from workflows.account.entries_of_steps import Resumed, Waited
from workflows.account.journal import Allowed
from workflows.account.progress import Progress
from workflows.account.records import FaultRecord, StepRecord
from workflows.calls.scheduling import read
from workflows.faults import retries
from workflows.faults.decision import Ask, Decision, Escalate
from workflows.faults.fault import Applied, Code, Fault, applied_by_call
from workflows.planning.trust import unsourced
from workflows.plans import own_activities
from workflows.plans.catalogue import IN_LEDGER, Catalogue, CompanionSpec, Effect, ToolSpec
from workflows.plans.proposal import StepReturn
from workflows.web_ui import timer_name

UNSEEN = (Code.WORKER_LOST, Code.TIMEOUT)
"""Faults after which the attempt may still be running."""
LEDGER_READ = CompanionSpec(kind=own_activities.FIND_EFFECT.kind, args={"key": "key"})
"""The read of the ledger that finds out whether a call was applied; alone it is enough for a transactional tool."""


class CallOutcome(StrEnum):
    APPLIED = "applied"
    NOT_APPLIED = "not_applied"
    CANNOT_TELL = "cannot_tell"


APPLIED_BY: Mapping[CallOutcome, Applied] = {
    CallOutcome.APPLIED: Applied.APPLIED,
    CallOutcome.NOT_APPLIED: Applied.NONE,
    CallOutcome.CANNOT_TELL: Applied.UNKNOWN,
}
"""By verdict, whether the effect of the call was applied."""


class FoundOutcome(NamedTuple):
    """What reconciliation found out about a call; `result` is that of the call if it was applied."""

    verdict: CallOutcome
    result: JsonValue = None
    because: str = ""
    """Why the outcome cannot be found out, in a few words; empty if it was found out."""


def _cannot_tell(because: str) -> FoundOutcome:
    return FoundOutcome(CallOutcome.CANNOT_TELL, because=because)


async def reconcile(
    progress: Progress, catalogue: Catalogue, record: StepRecord, fault: Fault, changed: Callable[[], None]
) -> FoundOutcome:
    """Find out, perhaps after a wait, whether the call of `record` was applied; report each new status to `changed`."""
    spec = catalogue.specs.get(record.kind)
    if spec is None:
        return _cannot_tell(f"no worker knows {record.kind}")
    companion = spec.reconcile or (LEDGER_READ if spec.effect is Effect.TRANSACTIONAL else None)
    own = (fault, *_faults_of_call(record, progress.faults))
    # A thread of the call that outlived its attempt may apply the effect at any time.
    may_run_on = record.outlived or any(fault.may_run_on for fault in own)
    still = f"{record.kind} was still running when its attempt ended" if may_run_on else ""
    waiting = partial(_waiting, progress, record, changed)
    find = partial(_find, progress, catalogue, record, waiting)
    in_ledger = ""
    if spec.effect in IN_LEDGER and companion is not LEDGER_READ:
        progress.write(Allowed(calls=1))  # no limit may hide a result that is known
        recorded = _recorded(await find(LEDGER_READ))
        if recorded.verdict is not CallOutcome.CANNOT_TELL:
            return recorded
        in_ledger = recorded.because
    # A worker of another version may not have the companion any more.
    if companion is None or companion.kind not in (*catalogue.specs, LEDGER_READ.kind):
        none = f"{record.kind} has no read that finds out (reconcile)"
        return _cannot_tell(", and ".join(filter(None, (still, in_ledger, none))))
    paths = companion.args.values()
    if record.args is None and any(path.startswith("args") and path not in record.named for path in paths):
        return _cannot_tell("its arguments are too large to be kept")
    is_exiting = any(fault.still_running for fault in own)
    running = seconds_until_settled(spec, is_unseen(progress, record, fault), is_exiting=is_exiting)
    # The seconds that were slept, not the time: a worker that replays this may have another clock.
    slept = 0.0
    while True:
        found = await find(companion)
        if not isinstance(found, Fault):
            return FoundOutcome(CallOutcome.APPLIED, found.result)
        if companion is LEDGER_READ and found.code is Code.GONE:
            return FoundOutcome(CallOutcome.NOT_APPLIED)
        if found.code is Code.NEEDS_APPROVAL:
            return _cannot_tell(f"{companion.kind} was not called: {found.reason.rstrip('.')}")
        if found.code is not Code.NOT_FOUND or found.guessed:
            guessed = f", guessed from {found.guessed}" if found.guessed else ""
            return _cannot_tell(f"{companion.kind} ended with {found.code}{guessed}")
        if may_run_on:
            return _cannot_tell(f"{still}, so that {companion.kind} found nothing proves nothing")
        if slept >= running:
            return FoundOutcome(CallOutcome.NOT_APPLIED)
        with waiting():
            name = timer_name(ids.reconcile_timer(record.step.id), progress.number)
            await workflow.sleep(retries.timer(running - slept), summary=name)
        slept = running  # an effect may have become visible meanwhile, so it is read once more


@contextmanager
def _waiting(progress: Progress, record: StepRecord, changed: Callable[[], None]) -> Iterator[None]:
    progress.write(Waited(step=record.step.id))
    changed()
    yield
    progress.write(Resumed(step=record.step.id))
    changed()


async def _find(
    progress: Progress,
    catalogue: Catalogue,
    record: StepRecord,
    waiting: Callable[[], AbstractContextManager[None]],
    companion: CompanionSpec,
) -> StepReturn | Fault:
    """Run the read that looks for the effect of the call of `record`."""
    args = record.args_for(companion, ids.idempotency_key(record.call_id, progress.key_prefix))
    is_own = companion is LEDGER_READ
    why = "" if is_own else unsourced(progress, catalogue.specs, record, companion, args)
    found = await read(
        progress,
        catalogue,
        own_activities.FIND_EFFECT if is_own else catalogue.specs[companion.kind],
        args,
        id=ids.of_reconciliation(record.call_id),
        step=record.step.id,
        title=f"was {record.step.id} applied?",
        revision=record.revision,
        store=progress.store,
        needs_approval=bool(why),
        waiting=waiting,
    )
    return found.model_copy(update={"reason": why}) if why and isinstance(found, Fault) else found


def _recorded(found: StepReturn | Fault) -> FoundOutcome:
    """What the ledger says of an unkeyed call.

    No row is no proof: the claim was committed before the call, but the store may have been restored from a backup.
    """
    if not isinstance(found, Fault):
        return FoundOutcome(CallOutcome.APPLIED, found.result)
    if found.code is Code.GONE:  # it was undone: a call with this key is never made again
        return FoundOutcome(CallOutcome.NOT_APPLIED)
    by_code = {
        Code.NO_RESULTS: "the ledger has the call, but not its result",
        Code.NOT_FOUND: "the ledger does not have the call",
    }
    return _cannot_tell(by_code.get(found.code, f"the ledger cannot be read ({found.code})"))


def seconds_until_settled(spec: ToolSpec, is_unseen: bool, *, is_exiting: bool = False) -> float:
    """Seconds after a fault until no attempt of the call can still be running, and its effect must be visible.

    `is_unseen`: no worker reported the end of an attempt. `is_exiting`: a worker with a thread of the call shut down.
    """
    longest = retries.longest_attempt(spec) if is_unseen else 0.0
    return max(longest, retries.EXIT_WITHIN.total_seconds() if is_exiting else 0.0) + spec.settle


def since_reconciled(faults: Sequence[FaultRecord]) -> Sequence[FaultRecord]:
    """The faults of a call from the last reconciled one on, if any: its reconciliation covers the faults before it."""
    return faults[max((number for number, fault in enumerate(faults) if fault.reconciled), default=0) :]


def with_earlier_outcome(record: StepRecord, effect: Effect, faults: Sequence[FaultRecord], last: Fault) -> Fault:
    """The fault `last` of a step; its outcome is unknown if one of the earlier `faults` may have applied the effect."""
    applied = applied_by_call(effect, last, since_reconciled(_faults_of_call(record, faults)))
    return last if applied is last.applied else last.model_copy(update={"applied": applied})


def is_unseen(progress: Progress, record: StepRecord, fault: Fault) -> bool:
    """Whether an attempt of the call ended without reporting (crash or timeout), and so may still be running."""
    faults = _faults_of_call(record, progress.faults)
    # Fewer faults than attempts: one attempt left no fault.
    counted = [recorded for recorded in faults if recorded.is_counted]
    return any(recorded.code in UNSEEN for recorded in (fault, *faults)) or len(counted) < record.used


def left_thread_behind(progress: Progress, record: StepRecord) -> bool:
    """Whether a thread of the call outlived its attempt, even if the thread ended later with its worker."""
    return record.outlived or any(fault.still_running for fault in _faults_of_call(record, progress.faults))


def _faults_of_call(record: StepRecord, faults: Sequence[FaultRecord]) -> list[FaultRecord]:
    return [fault for fault in faults if fault.step_id == record.step.id and fault.source == record.kind]


def explain_effect(
    fault: Fault, decision: Decision | Ask, record: StepRecord, key: str, finding: FoundOutcome | None
) -> Fault:
    """The fault; if a person has to act, with a reason that also says whether the call was or may have been applied."""
    if not isinstance(decision, Escalate | Ask) or fault.applied is Applied.NONE:
        return fault
    if fault.applied is Applied.APPLIED:
        return fault.model_copy(update={"reason": f"{record.kind} was applied (key {key}), but: {fault.reason}"})
    cannot = f" It could not be found out: {finding.because}." if finding and finding.because else ""
    what = f"{record.kind} may have been applied (key {key}): {fault.reason}{cannot}"
    return fault.model_copy(update={"reason": f"{what} Find out before it is called again."})
