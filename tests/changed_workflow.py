"""The agent's workflow, changed on purpose: the proof that a replay notices."""

from datetime import timedelta

from temporalio import workflow

from workflows.agent import AgentWorkflow
from workflows.outcome import Outcome
from workflows.task import Task


@workflow.defn(name="AgentWorkflow")
class ChangedWorkflow:
    """One more command in front."""

    @workflow.init
    def __init__(self, task: Task) -> None:
        """Wrap the real one."""
        self._real = AgentWorkflow(task)

    @workflow.run
    async def run(self, task: Task) -> Outcome:
        """Sleep first, which no history has."""
        await workflow.sleep(timedelta(seconds=1))
        return await self._real.run(task)
