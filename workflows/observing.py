"""Observing the current state after a rejection, so that the new plan is made from it."""

from collections.abc import Sequence

from pydantic import JsonValue
from temporalio import workflow

from workflows import ids
from workflows.catalogue import Catalogue
from workflows.faults import Fault
from workflows.progress import Progress
from workflows.record import FaultRecord, Observation, StepRecord
from workflows.scheduling import read


async def observe(progress: Progress, catalogue: Catalogue, faults: Sequence[FaultRecord]) -> list[Observation]:
    """Read the current state for each rejected step; steps that need the same read share its result.

    If no read is possible, the observation is the state that the fault contains, and is marked as stale.
    """
    seen = list[Observation]()
    for fault in faults:
        record = next(record for record in progress.records if record.step.id == fault.step_id)
        wanted = _read_of(progress, catalogue, record)
        known = next((one for one in seen if wanted and (one.kind, one.args) == wanted and not one.stale), None)
        fresh = known or (await _observe(progress, catalogue, wanted[0], record, wanted[1]) if wanted else None)
        seen.append(fresh.model_copy(update={"step_id": record.step.id}) if fresh else _stale(fault, record))
        if fresh:
            made = record.args or {}
            progress.guard.observed(record.kind, made, fresh.kind, fresh.args, fresh.value, fault.observed)
    return seen


async def _observe(
    progress: Progress, catalogue: Catalogue, kind: str, record: StepRecord, args: dict[str, JsonValue]
) -> Observation | None:
    """Call the tool `kind`, which reads the current state; return None if that fails or the budget forbids it."""
    id, title = ids.of_observation(record.step.id), f"observe, {record.step.id} was rejected"
    back = await read(progress, catalogue, catalogue.specs[kind], args, id=id, title=title, revision=record.revision)
    if isinstance(back, Fault):
        return None
    return Observation(step_id=record.step.id, kind=kind, args=args, value=back.result, at=workflow.now())


def _read_of(progress: Progress, catalogue: Catalogue, record: StepRecord) -> tuple[str, dict[str, JsonValue]] | None:
    """The kind and arguments of the tool that reads the current state for a step; None if there is no such tool."""
    companion = catalogue.specs[record.kind].observe
    usable = catalogue.specs.keys() - set(progress.down)  # a kind that is down would use up its waits again
    if companion is None or companion.kind not in usable:
        return None
    return companion.kind, record.args_for(companion)


def _stale(fault: FaultRecord, record: StepRecord) -> Observation:
    args = record.args or record.step.args
    return Observation(
        step_id=record.step.id, kind=record.kind, args=args, value=fault.observed, at=fault.at, stale=True
    )
