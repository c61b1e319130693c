"""Replay saved histories in this process: `python -m tests.replay [--changed] FILE ...`; exit code 1 if one fails.

`--changed` replays them against a workflow that was changed on purpose, which must fail: the proof that a replay sees a
change at all.
"""

import asyncio
import sys
from pathlib import Path

from replan.testing.replay import replay
from runtime.process import leave
from tests.changed_workflow import ChangedWorkflow
from workflows.agent import AgentWorkflow


async def main(arguments: list[str]) -> int:
    """Replay each file and print the result."""
    files = [Path(name) for name in arguments if name != "--changed"]
    failures = await replay(*files, workflow=ChangedWorkflow if "--changed" in arguments else AgentWorkflow)
    for file in files:
        print(f"{file.name}: {failures.get(file, 'ok')}")
    return 1 if failures else 0


if __name__ == "__main__":
    leave(asyncio.run(main(sys.argv[1:])))
