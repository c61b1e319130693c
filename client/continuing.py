"""Continues the conversation of an ended task in a new task.

Runs before such a task is started: it reads what became of the ended one.
"""

from temporalio.client import Client, WorkflowExecutionStatus

from client import tasks
from client.history.fetch import final_outcome
from client.problem import Problem
from client.remedy import Remedy, Text
from client.tasks import CLOSED
from client.tree import is_undo
from workflows.account.outcome import Outcome, OutcomeStep
from workflows.account.records import StepRecord, StepStatus
from workflows.account.task import Remains, Task, TaskStatus
from workflows.json_values import canonical
from workflows.plans.proposal import Step

NEWEST = "newest"
"""Names the task that was started last."""
MAX_REMAINS = 256 * 1024
"""Bytes: the largest Remains (steps and faults that an ended task leaves to its continuation).

A Remains is part of the workflow's input, of which the server takes at most 2 MB.
"""
PLANNER_WAS_LAST = ("question", "gave_up", "proposals_rejected")
"""Outcome codes of tasks that ended with an answer of the planner, which had seen all results by then."""


async def continued(client: Client, task: Task, id: str) -> Task:
    """A copy of `task` that continues an ended task: `id` is its id, the beginning of that, or NEWEST.

    Raises:
        Problem: there is no such task, or the task still runs.
    """
    earlier = await tasks.find_task(client, None if id == NEWEST else id)
    description = await earlier.describe()
    if description.status is WorkflowExecutionStatus.RUNNING:
        reason = f"Task {description.id!r} is running: its conversation is not over"
        remedy = Text("wait for its end with ", Remedy("show", description.id, {"follow": True}))
        raise Problem("still_running", reason, remedy)
    run = await tasks.first_run(earlier)
    return task.model_copy(update={"continues": run, "remains": remains(await final_outcome(client, earlier))})


def remains(outcome: Outcome) -> Remains | None:
    """The steps and faults of an ended task that its planner has not seen yet; None if no worker wrote an outcome."""
    if outcome.code == CLOSED:
        return None
    last = outcome.revisions[-1].number if outcome.revisions else 0
    unseen = last if not _has_planner_seen_all(outcome) else None
    steps = [step for step in outcome.steps if step.revision == unseen or step.status is StepStatus.UNDONE]
    steps = [step for step in steps if not is_undo(step)]
    ids = {step.id for step in steps}
    faults = tuple(fault for fault in outcome.faults if fault.revision == last and fault.step_id in ids)
    return _fitting(Remains(records=tuple(map(_record, steps)), faults=faults, is_tainted=outcome.is_tainted))


def _has_planner_seen_all(outcome: Outcome) -> bool:
    if outcome.status is TaskStatus.OVER_BUDGET:
        return outcome.result is not None  # the planner was asked for a last answer
    return outcome.status is TaskStatus.COMPLETED or outcome.code in PLANNER_WAS_LAST


def _record(step: OutcomeStep) -> StepRecord:
    return StepRecord(
        step=Step(id=step.id, kind=step.kind, args=step.args, needs=step.needs, title=step.title),
        revision=step.revision,
        effect=step.effect,
        status=step.status,
        attempts=step.attempts,
        kind=step.kind,
        is_tainted=step.is_tainted,
        result=step.result,
        left_out=step.result_bytes if step.result_omitted else 0,
    )


def _fitting(whole: Remains) -> Remains:
    """A copy of `whole` with at most MAX_REMAINS bytes: results of steps are left out, the largest first."""
    sizes = {record.step.id: len(canonical(record.result).encode()) for record in whole.records}
    over, dropped = len(whole.model_dump_json().encode()) - MAX_REMAINS, dict[str, int]()
    for id in sorted(sizes, key=sizes.__getitem__, reverse=True):
        if over > 0:
            dropped[id], over = sizes[id], over - sizes[id]
    changes = {id: {"result": None, "left_out": size} for id, size in dropped.items() if size}
    records = tuple(record.model_copy(update=changes.get(record.step.id)) for record in whole.records)
    return whole.model_copy(update={"records": records})
