"""The agent's workflow with a mistake, as a bad deploy brings it: every workflow task of it fails."""

from temporalio import workflow

from workflows.account.outcome import Outcome
from workflows.account.task import Task
from workflows.agent import AgentWorkflow

SAID = "a mistake\x1b[31m\nof " + "many words " * 100
"""What its exception says: text that would draw on a terminal, and fill it."""


@workflow.defn(name="AgentWorkflow")
class BrokenWorkflow:
    """The real one, but for an exception that it does not expect."""

    @workflow.init
    def __init__(self, task: Task) -> None:
        self._real = AgentWorkflow(task)

    @workflow.run
    async def run(self, task: Task) -> Outcome:
        raise LookupError(SAID)
