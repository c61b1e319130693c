"""The agent's workflow, changed on purpose, and a replay with it that must fail: the proof that a replay notices.

`python -m tests.changed_workflow FILE ...` prints for each file whether it replays.
"""

import asyncio
import sys
from datetime import timedelta
from pathlib import Path

from temporalio import workflow

from client.replay import replayed, saved
from runtime.process import leave
from workflows.account.outcome import Outcome
from workflows.account.task import Task
from workflows.agent import AgentWorkflow


@workflow.defn(name="AgentWorkflow")
class ChangedWorkflow:
    """One more command in front."""

    @workflow.init
    def __init__(self, task: Task) -> None:
        self._real = AgentWorkflow(task)

    @workflow.run
    async def run(self, task: Task) -> Outcome:
        await workflow.sleep(timedelta(seconds=1))
        return await self._real.run(task)


async def main(files: list[Path]) -> int:
    """Replay each file and print the result; returns the exit code, which is 1 if one fails."""
    done = [one async for one in replayed(saved(files), ChangedWorkflow)]
    for one in done:
        print(f"{one.task_id}: {one.reason or 'ok'}")
    return 1 if any(one.cause for one in done) else 0


if __name__ == "__main__":
    from tests.changed_workflow import main as by_name  # the SDK's sandbox imports the workflow by its module's name

    leave(asyncio.run(by_name([Path(name) for name in sys.argv[1:]])))
