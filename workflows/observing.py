"""Looking at the world again after a refusal, so that the new plan is made from what is there now."""

from collections.abc import Sequence
from contextlib import suppress

from pydantic import JsonValue
from temporalio import workflow

from workflows import ids
from workflows.catalogue import Catalogue
from workflows.faults import Fault
from workflows.plan import Unresolved
from workflows.progress import Progress
from workflows.record import FaultRecord, Observation, StepRecord
from workflows.scheduling import read


async def observe(progress: Progress, catalogue: Catalogue, faults: Sequence[FaultRecord]) -> list[Observation]:
    """Look again for each refused step, once where two would look at the same.

    Where that cannot be done, the fault's own view is taken, marked stale.

    Raises:
        CancelledError: the task was cancelled.
    """
    seen = list[Observation]()
    for fault in faults:
        record = next(record for record in progress.records if record.step.id == fault.step_id)
        look = _look(progress, catalogue, record)
        known = next((one for one in seen if look and (one.kind, one.args) == look and not one.stale), None)
        fresh = known or (await _observe(progress, catalogue, look[0], record, look[1]) if look else None)
        seen.append(fresh.model_copy(update={"step_id": record.step.id}) if fresh else _stale(fault, record))
        if fresh:
            made = record.args or {}
            progress.guard.observed(record.kind, made, fresh.kind, fresh.args, fresh.value, fault.observed)
    return seen


async def _observe(
    progress: Progress, catalogue: Catalogue, kind: str, record: StepRecord, args: dict[str, JsonValue]
) -> Observation | None:
    """Run the read `kind`; None when it fails or may not be called."""
    id, title = ids.of_observation(record.step.id), f"look again, {record.step.id} was refused"
    back = await read(progress, catalogue, catalogue.specs[kind], args, id=id, title=title, revision=record.revision)
    if isinstance(back, Fault):
        return None
    return Observation(step_id=record.step.id, kind=kind, args=args, value=back.result, at=workflow.now())


def _look(progress: Progress, catalogue: Catalogue, record: StepRecord) -> tuple[str, dict[str, JsonValue]] | None:
    """Which read looks again for a step, and with which arguments."""
    companion = catalogue.specs[record.kind].observe
    usable = catalogue.specs.keys() - set(progress.down)
    if companion is None or companion.kind not in usable:
        return None
    args = dict[str, JsonValue]()
    for name, path in companion.args.items():
        with suppress(Unresolved):  # left out of the call, and so left to the default of the look
            args[name] = record.value_at(path)
    return companion.kind, args


def _stale(fault: FaultRecord, record: StepRecord) -> Observation:
    args = record.args or record.step.args
    return Observation(
        step_id=record.step.id, kind=record.kind, args=args, value=fault.observed, at=fault.at, stale=True
    )
