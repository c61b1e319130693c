"""A plan that is only looked at: the proposal that a task would begin with, checked as in the task itself."""

from pydantic import BaseModel, ConfigDict
from temporalio import workflow

from workflows import routing
from workflows.budget import Budget
from workflows.call import Stuck, ask
from workflows.catalogue import Catalogue, ToolSpec
from workflows.grants import Grants
from workflows.outcome import Ending, Ends
from workflows.plan import NewSteps, Proposal
from workflows.progress import Progress
from workflows.proposing import propose
from workflows.task import Task, TaskStatus


class Draft(BaseModel):
    """What a task would do first, or why it could do nothing."""

    model_config = ConfigDict(frozen=True)

    planner: str = ""
    proposal: Proposal | None = None
    """None where there is none that could be run; `ending` says why."""
    ending: Ending | None = None
    """How the task would have ended without a proposal."""
    specs: dict[str, ToolSpec] = {}
    """What the kinds of the proposed steps promise."""


async def draft(task: Task) -> Draft:
    """Ask for the first proposal of `task` and run no step of it."""
    info = workflow.info()
    began, budget = info.workflow_start_time, Budget(limits=task.limits)
    progress = Progress(task=task, task_id=info.workflow_id, started_at=began, budget=budget)
    try:
        catalogue = await _catalogue(task)
        progress.planner = catalogue.planner
        progress.grants = Grants(is_tainted=task.is_tainted(catalogue.is_clean))
        proposal = await propose(progress, catalogue)
    except Ends as early:
        return Draft(planner=progress.planner, ending=early.ending)
    steps = proposal.steps if isinstance(proposal, NewSteps) else ()
    specs = {step.kind: catalogue.specs[step.kind] for step in steps}
    return Draft(planner=progress.planner, proposal=proposal, specs=specs)


async def _catalogue(task: Task) -> Catalogue:
    what = "what this worker can do"
    try:
        catalogue = await ask(routing.CATALOGUE, task.wanted, Catalogue, id="catalogue", summary=what, revision=0)
    except Stuck as stuck:
        raise Ends(TaskStatus.ESCALATED, f"The catalogue: {stuck.fault.reason}", stuck.fault.code) from None
    if catalogue.refused:
        raise Ends(TaskStatus.FAILED, catalogue.refused, "task_refused")
    return catalogue
