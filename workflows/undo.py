"""Undoes a task that is closed: a workflow of its own, which may be started as often as one likes."""

from pydantic import BaseModel
from temporalio import workflow
from temporalio.exceptions import ApplicationError

from workflows import routing
from workflows.call import Stuck, ask
from workflows.catalogue import Catalogue
from workflows.details import details
from workflows.outcome import Outcome
from workflows.progress import Progress
from workflows.task import TaskStatus
from workflows.undoing import roll_back


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
        what = "what this worker can do"
        try:
            catalogue = await ask(routing.CATALOGUE, {}, Catalogue, id="catalogue", summary=what, revision=0)
        except Stuck as stuck:
            reason = f"The catalogue: {stuck.fault.reason}"
            raise ApplicationError(reason, type=TaskStatus.ESCALATED, non_retryable=True) from None
        self._show()
        await roll_back(self._progress, catalogue, self._show)
        outcome = self._progress.outcome(workflow.now())
        if left := self._progress.not_undone:
            reason = f"Not undone: {left}"
            raise ApplicationError(reason, outcome, type=TaskStatus.ESCALATED, non_retryable=True)
        return outcome

    def _show(self) -> None:
        workflow.set_current_details(details(self._progress))
