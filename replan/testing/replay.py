"""Replays saved histories, to find out whether this version of the workflow code still makes the same decisions.

Neither server nor store is needed: a sentence takes the place of each payload that is in the store.
"""

import dataclasses
from collections.abc import Mapping, Sequence
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
from runtime.payloads import DATA_CONVERTER
from workflows.agent import AgentWorkflow
from workflows.interceptor import CallInterceptor
from workflows.plan import PRUNED_ENCODING


async def replay(*files: Path, workflow: type = AgentWorkflow) -> Mapping[Path, Exception]:
    """Replay histories that `starter.py export` wrote; return the error of each history that fails, by file.

    Raises:
        OSError: a file cannot be read.
    """
    failures = dict[Path, Exception]()
    replaying = replayer(workflow)
    for file in files:
        history = WorkflowHistory.from_json(file.stem, file.read_text(encoding="utf-8"))
        result = await replaying.replay_workflow(history, raise_on_replay_failure=False)
        if result.replay_failure is not None:
            failures[file] = result.replay_failure
    return failures


def replayer(workflow: type = AgentWorkflow) -> Replayer:
    """A Replayer with the worker's interceptor, data converter and sandbox, but without a store."""
    return Replayer(
        workflows=[workflow],
        data_converter=dataclasses.replace(DATA_CONVERTER, external_storage=ExternalStorage(drivers=[_NoStore()])),
        interceptors=[CallInterceptor()],
        workflow_runner=serve.sandbox(),
    )


class _NoStore(StorageDriver):
    """A store without payloads: returns in place of each payload what `prune` leaves for a deleted payload."""

    def name(self) -> str:
        return "replan-store"  # the name in the histories' references

    async def store(self, context: StorageDriverStoreContext, payloads: Sequence[Payload]) -> list[StorageDriverClaim]:
        return [StorageDriverClaim({}) for _ in payloads]  # what a replay sends goes nowhere

    async def retrieve(
        self, context: StorageDriverRetrieveContext, claims: Sequence[StorageDriverClaim]
    ) -> list[Payload]:
        missing = [f"The payload {claim.claim_data['digest']} is not here." for claim in claims]
        return [Payload(metadata={"encoding": PRUNED_ENCODING}, data=sentence.encode()) for sentence in missing]
