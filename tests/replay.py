"""Replays saved histories in this process: `python -m tests.replay [--changed] FILE ...`; exit code 1 when one fails.

No store is needed: in the place of a large result stands the sentence that stands for one that `prune` deleted.

`--changed` replays them against a workflow that was changed on purpose, which must fail: the proof that a replay sees a
change at all.
"""

import asyncio
import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

from temporalio.api.common.v1 import Payload
from temporalio.client import WorkflowHistory
from temporalio.converter import (
    ExternalStorage,
    StorageDriver,
    StorageDriverClaim,
    StorageDriverRetrieveContext,
    StorageDriverStoreContext,
)
from temporalio.worker import Replayer

from runtime import serve
from runtime.ending import leave
from runtime.failures import DATA_CONVERTER
from tests.changed_workflow import ChangedWorkflow
from workflows.agent import AgentWorkflow
from workflows.call import CallInterceptor
from workflows.plan import PRUNED_ENCODING


class Absent(StorageDriver):
    """The worker's store where there is none."""

    def name(self) -> str:
        """The same, so that the history's references lead here."""
        return "replan-store"

    async def store(self, context: StorageDriverStoreContext, payloads: Sequence[Payload]) -> list[StorageDriverClaim]:
        """Keep nothing: what a replay sends goes nowhere."""
        return [StorageDriverClaim({}) for _ in payloads]

    async def retrieve(
        self, context: StorageDriverRetrieveContext, claims: Sequence[StorageDriverClaim]
    ) -> list[Payload]:
        """What stands for each payload."""
        gone = [f"The payload {claim.claim_data['digest']} is not here." for claim in claims]
        return [Payload(metadata={"encoding": PRUNED_ENCODING}, data=sentence.encode()) for sentence in gone]


def replayer(workflow: type = AgentWorkflow) -> Replayer:
    """A replayer of tasks that needs neither server nor store."""
    return Replayer(
        workflows=[workflow],
        data_converter=dataclasses.replace(DATA_CONVERTER, external_storage=ExternalStorage(drivers=[Absent()])),
        interceptors=[CallInterceptor()],
        workflow_runner=serve.sandbox(),
    )


async def main(arguments: list[str]) -> int:
    """Replay each file and say how it went."""
    changed = "--changed" in arguments
    files = [Path(name) for name in arguments if name != "--changed"]
    replay = replayer(ChangedWorkflow if changed else AgentWorkflow)
    failed = 0
    for file in files:
        history = WorkflowHistory.from_json(file.stem, file.read_text())
        result = await replay.replay_workflow(history, raise_on_replay_failure=False)
        failed += result.replay_failure is not None
        print(f"{file.name}: {result.replay_failure or 'ok'}")
    return 1 if failed else 0


if __name__ == "__main__":
    leave(asyncio.run(main(sys.argv[1:])))
