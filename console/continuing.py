"""`start --continue`: a new task that carries on the conversation of one that has ended."""

from temporalio.client import Client, WorkflowExecutionStatus

from console import finding
from console.closing import CLOSED
from console.outcome import ended
from console.problem import Problem
from console.shown import starter
from console.tree import is_undo
from workflows.outcome import Outcome, OutcomeStep
from workflows.plan import Step, canonical
from workflows.record import StepRecord, StepStatus
from workflows.task import Remains, Task, TaskStatus

NEWEST = "newest"
"""What stands for the task that was started last, since an option cannot be left empty."""
MAX_REMAINS = 256 * 1024
"""Bytes; the task is a workflow's input, of which the server takes 2 MB."""
SAID_LAST = ("question", "gave_up", "proposals_rejected")
"""How a task ends, beside completing it, whose planner was told everything before."""


async def continued(client: Client, task: Task, id: str) -> Task:
    """The task with the conversation of another, given by its id or the beginning of it, that it carries on.

    Raises:
        Problem: there is no such task, or it runs.
    """
    earlier = await finding.task(client, None if id == NEWEST else id)
    seen = await earlier.describe()
    if seen.status is WorkflowExecutionStatus.RUNNING:
        reason = f"Task {seen.id!r} is running: its conversation is not over"
        raise Problem("still_running", reason, f"wait for its end with `{starter('show', seen.id, '--follow')}`")
    run = await finding.first_run(earlier)
    return task.model_copy(update={"continues": run, "remains": remains(await ended(earlier))})


def remains(outcome: Outcome) -> Remains | None:
    """What the planner of an ended task does not know of it yet; None where nobody does."""
    if outcome.code == CLOSED:
        return None
    last = outcome.revisions[-1].number if outcome.revisions else 0
    untold = last if not _knows_all(outcome) else None
    steps = [step for step in outcome.steps if _is_untold(step, untold)]
    ids = {step.id for step in steps}
    faults = tuple(fault for fault in outcome.faults if fault.revision == last and fault.step_id in ids)
    whole = Remains(records=tuple(map(_record, steps)), faults=faults, is_tainted=outcome.is_tainted)
    return _fitting(whole)


def _is_untold(step: OutcomeStep, revision: int | None) -> bool:
    """Whether the planner does not know how a step stands: of the plan `revision`, or taken back at the end."""
    return not is_undo(step) and (step.revision == revision or step.status is StepStatus.UNDONE)


def _knows_all(outcome: Outcome) -> bool:
    """Whether the planner spoke last."""
    if outcome.status is TaskStatus.OVER_BUDGET:
        return outcome.result is not None
    return outcome.status is TaskStatus.COMPLETED or outcome.code in SAID_LAST


def _record(step: OutcomeStep) -> StepRecord:
    return StepRecord(
        step=Step(id=step.id, kind=step.kind, args=step.args, needs=step.needs, title=step.title),
        revision=step.revision,
        effect=step.effect,
        status=step.status,
        attempts=step.attempts,
        kind=step.kind,
        result=step.result,
        left_out=step.result_bytes if step.result_omitted else 0,
    )


def _fitting(whole: Remains) -> Remains:
    """The same without its largest results, as far as it would be too large."""
    sizes = {record.step.id: len(canonical(record.result).encode()) for record in whole.records}
    over, dropped = len(whole.model_dump_json().encode()) - MAX_REMAINS, dict[str, int]()
    for id in sorted(sizes, key=sizes.__getitem__, reverse=True):
        if over > 0:
            dropped[id], over = sizes[id], over - sizes[id]
    records = (_without(record, dropped.get(record.step.id, 0)) for record in whole.records)
    return whole.model_copy(update={"records": tuple(records)})


def _without(record: StepRecord, size: int) -> StepRecord:
    return record.model_copy(update={"result": None, "left_out": size}) if size else record
