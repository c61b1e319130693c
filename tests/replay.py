"""Replays saved histories in this process: `python -m tests.replay [--changed] FILE ...`; exit code 1 when one fails.

`--changed` replays them against a workflow that was changed on purpose, which must fail: the proof that a replay sees a
change at all.
"""

import asyncio
import sys
from pathlib import Path

from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer

from runtime import serve
from runtime.ending import leave
from runtime.failures import DATA_CONVERTER
from tests.changed_workflow import ChangedWorkflow
from workflows.agent import AgentWorkflow
from workflows.call import CallInterceptor


async def main(arguments: list[str]) -> int:
    """Replay each file and say how it went."""
    changed = "--changed" in arguments
    files = [Path(name) for name in arguments if name != "--changed"]
    replayer = Replayer(
        workflows=[ChangedWorkflow if changed else AgentWorkflow],
        data_converter=DATA_CONVERTER,
        interceptors=[CallInterceptor()],
        workflow_runner=serve.sandbox(),
    )
    failed = 0
    for file in files:
        history = WorkflowHistory.from_json(file.stem, file.read_text())
        result = await replayer.replay_workflow(history, raise_on_replay_failure=False)
        failed += result.replay_failure is not None
        print(f"{file.name}: {result.replay_failure or 'ok'}")
    return 1 if failed else 0


if __name__ == "__main__":
    leave(asyncio.run(main(sys.argv[1:])))
