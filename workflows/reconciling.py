"""Finding out whether a call happened that may have: reconciliation, as payment systems do it.

The kind's `reconcile` read looks for the effect. What it finds is the result of the call. That it finds nothing is
believed only when no attempt can be under way any more: `settle` seconds after the last one was over or, where nobody
saw its end, had to be. Where a thread outlived its attempt, nobody knows when that is, so it is not believed at all.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from enum import StrEnum
from typing import NamedTuple

from pydantic import JsonValue
from temporalio import workflow

from workflows import ids, routing
from workflows.catalogue import Catalogue, Companion, Effect, ToolSpec
from workflows.decision import Decision, Escalate
from workflows.details import summary
from workflows.faults import UNCOUNTED, Applied, Code, Fault
from workflows.plan import Unresolved
from workflows.progress import Progress
from workflows.record import FaultRecord, StepRecord, StepStatus
from workflows.scheduling import read

UNSEEN = (Code.WORKER_LOST, Code.TIMEOUT)
"""What an attempt ends with that may still be under way."""


LEDGER_LOOK = Companion(kind=routing.FIND_EFFECT.kind, args={"key": "key"})
"""Whether a transactional call happened stands in the ledger."""


class Verdict(StrEnum):
    """What was found out about a call of unknown effect."""

    APPLIED = "applied"
    NOT_APPLIED = "not_applied"
    CANNOT_TELL = "cannot_tell"


class Finding(NamedTuple):
    """A verdict and what it rests on."""

    verdict: Verdict
    result: JsonValue = None
    """Of the call, where it happened."""
    because: str = ""
    """Why it cannot be told, in a few words."""


async def reconcile(
    progress: Progress, catalogue: Catalogue, record: StepRecord, fault: Fault, changed: Callable[[], None]
) -> Finding:
    """Find out whether the call of `record` that ended with `fault` happened; `changed` is called while it waits.

    Raises:
        CancelledError: the task was cancelled.
    """
    spec = catalogue.specs.get(record.kind)
    if spec is None:
        return Finding(Verdict.CANNOT_TELL, because=f"no worker knows {record.kind}")
    look = spec.reconcile or (LEDGER_LOOK if spec.effect is Effect.TRANSACTIONAL else None)
    reads = {**catalogue.specs, routing.FIND_EFFECT.kind: routing.FIND_EFFECT}
    outlived = outlives(progress, record, fault)
    still = f"{record.kind} was still running when its attempt ended" if outlived else ""
    if look is None or look.kind not in reads:
        none = "has no read that finds out (reconcile)"
        return Finding(Verdict.CANNOT_TELL, because=f"{still}, and {none}" if still else f"{record.kind} {none}")
    if record.args is None and any(path.startswith("args") and path not in record.named for path in look.args.values()):
        return Finding(Verdict.CANNOT_TELL, because="its arguments are too large to be kept")
    is_exiting = any(one.still_running for one in (fault, *_notes(progress, record)))
    under_way = seconds_under_way(spec, is_unseen(progress, record, fault), is_exiting=is_exiting)
    id, title = ids.of_reconciliation(record.call_id), f"did {record.step.id} happen?"
    args = _args(look, record, ids.idempotency_key(record.call_id, progress.origin))
    slept = 0.0  # not a comparison of clocks: the worker that replays this may see another time than this one
    while True:
        back = await read(
            progress,
            catalogue,
            reads[look.kind],
            args,
            id=id,
            title=title,
            revision=record.revision,
            store=progress.store,
        )
        if not isinstance(back, Fault):
            return Finding(Verdict.APPLIED, back.result)
        if back.code is not Code.NOT_FOUND:
            return Finding(Verdict.CANNOT_TELL, because=f"{look.kind} ended with {back.code}")
        if outlived:
            return Finding(Verdict.CANNOT_TELL, because=f"{still}, so that {look.kind} found nothing proves nothing")
        if slept >= under_way:
            return Finding(Verdict.NOT_APPLIED)
        record.status = StepStatus.WAITING
        changed()
        await workflow.sleep(under_way - slept, summary=summary(ids.reconcile_timer(record.step.id)))
        slept = under_way
        record.status = StepStatus.RUNNING
        changed()


def seconds_under_way(spec: ToolSpec, is_unseen: bool, *, is_exiting: bool = False) -> float:
    """Seconds that an attempt may go on after its fault arrived.

    `is_unseen` is whether nobody saw one end, `is_exiting` whether a thread was left to a worker that shut down.
    """
    longest = routing.longest_attempt(spec) if is_unseen else 0.0
    return max(longest, routing.EXIT.total_seconds() if is_exiting else 0.0) + spec.settle


def is_haunted(faults: Iterable[FaultRecord]) -> bool:
    """Whether one of the calls that ended with these faults may have happened, as far as was found out since."""
    haunted = False
    for one in faults:
        haunted = (haunted and not one.reconciled) or one.effect is not Applied.NONE
    return haunted


def is_unseen(progress: Progress, record: StepRecord, fault: Fault) -> bool:
    """Whether some attempt of the call left without a word, or timed out, and so may still be under way."""
    notes = _notes(progress, record)
    seen = [one for one in notes if one.code not in UNCOUNTED]
    return any(one.code in UNSEEN for one in (fault, *notes)) or len(seen) < record.used


def outlives(progress: Progress, record: StepRecord, *faults: Fault) -> bool:
    """Whether a thread of the call outlived its attempt, so that its effect may be applied at any time."""
    return record.outlived or any(one.may_run_on for one in (*faults, *_notes(progress, record)))


def left_a_thread(progress: Progress, record: StepRecord) -> bool:
    """Whether a thread of the call outlived its attempt, if only until its worker had shut down."""
    return record.outlived or any(one.still_running for one in _notes(progress, record))


def _notes(progress: Progress, record: StepRecord) -> list[FaultRecord]:
    """The faults of the call so far."""
    return [one for one in progress.faults if one.step_id == record.step.id and one.source == record.kind]


def told(fault: Fault, decision: Decision, record: StepRecord, key: str, finding: Finding | None) -> Fault:
    """The fault as a person has to read it: exactly what may have happened, and by which key it can be looked for."""
    if not isinstance(decision, Escalate) or fault.effect is Applied.NONE:
        return fault
    if fault.effect is Applied.APPLIED:
        return fault.model_copy(update={"reason": f"{record.kind} happened (key {key}), but: {fault.reason}"})
    cannot = f" It could not be found out: {finding.because}." if finding and finding.because else ""
    what = f"{record.kind} may have happened (key {key}): {fault.reason}{cannot}"
    return fault.model_copy(update={"reason": f"{what} Find out before it is done again."})


def _args(look: Companion, record: StepRecord, key: str) -> dict[str, JsonValue]:
    args = dict[str, JsonValue]()
    for name, path in look.args.items():
        with suppress(Unresolved):  # left out, and so left to the default of the look
            args[name] = record.value_at(path, key)
    return args
