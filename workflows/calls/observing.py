"""Reads the current state after a fault that requires a new plan, so that the planner knows the state.

Runs after a step was rejected and all running steps have ended, before the planner is asked for a new plan.
"""

from collections.abc import Mapping, Sequence

from pydantic import JsonValue
from temporalio import workflow

from workflows import ids
from workflows.account.entries_of_steps import Observed
from workflows.account.progress import Progress
from workflows.account.records import FaultRecord, Observation, StepRecord
from workflows.calls.scheduling import read
from workflows.faults.fault import Fault
from workflows.planning.trust import unsourced
from workflows.plans.catalogue import Catalogue

OBSERVATION_PATIENCE = 60.0
"""The most seconds that the read of the current state waits for an open circuit breaker before a new plan is made."""


def is_repeat(progress: Progress, kind: str, args: Mapping[str, JsonValue]) -> bool:
    """Whether a call failed persistently before, and nothing has changed since."""
    return progress.guard.refuses(kind, args, progress.effects)


async def observe(progress: Progress, catalogue: Catalogue, faults: Sequence[FaultRecord]) -> None:
    """Read the current state for each rejected step; without a read, the state in its fault stands for it, as stale."""
    for fault in faults:
        record = next(record for record in progress.records if record.step.id == fault.step_id)
        companion = catalogue.specs[record.kind].observe
        kind, args = (companion.kind, record.args_for(companion)) if companion else (None, {})
        fresh = (earlier for earlier in progress.observations if not earlier.stale)
        known = next((earlier for earlier in fresh if (earlier.kind, earlier.args) == (kind, args)), None)
        why = unsourced(progress, catalogue.specs, record, companion, args) if companion else ""
        found = known or await _observe(progress, catalogue, kind, args, record, fault, why)
        progress.write(Observed(step=record.step.id, observation=found.model_copy(update={"step_id": record.step.id})))


async def _observe(
    progress: Progress,
    catalogue: Catalogue,
    kind: str | None,
    args: dict[str, JsonValue],
    record: StepRecord,
    fault: FaultRecord,
    why: str,
) -> Observation:
    """Observe with the read `kind`; if it cannot be called or fails, return what the fault reported, marked `stale`.

    `why` says why the read may not be called with these arguments; empty if it may.
    """
    id, made = record.step.id, record.args or record.step.args
    stale = Observation(step_id=id, kind=record.kind, args=made, value=fault.observed, at=fault.at, stale=True)
    if kind is None:
        return stale
    if kind in progress.down or kind not in catalogue.specs:  # a kind that is down would use up its waits again
        return stale.model_copy(update={"unread": f"{kind} cannot be used any more"})
    back = await read(
        progress,
        catalogue,
        catalogue.specs[kind],
        args,
        id=ids.of_observation(id),
        step=id,
        title=f"observe, {id} was rejected",
        revision=record.revision,
        patience=OBSERVATION_PATIENCE,
        needs_approval=bool(why),
    )
    if isinstance(back, Fault) and why:
        return stale.model_copy(update={"unread": f"{kind} was not called: {why}"})
    if isinstance(back, Fault):
        return stale.model_copy(update={"unread": f"{kind} failed ({back.code}): {back.reason}"})
    return Observation(step_id=id, kind=kind, args=args, value=back.result, at=workflow.now())
