"""A newer server can pause a workflow: the SDK has no name for this status, and raises ValueError."""

import pytest
from temporalio.api.enums.v1 import WorkflowExecutionStatus as Status
from temporalio.api.workflow.v1 import WorkflowExecutionInfo
from temporalio.client import Client as TemporalClient, WorkflowExecutionStatus
from temporalio.service import WorkflowService

from client.client import Client
from runtime.client import PausedAsRunning, unpause
from runtime.dev_server import DevServer

PAUSED = Status.WORKFLOW_EXECUTION_STATUS_PAUSED


def test_the_sdk_does_not_know_a_paused_workflow() -> None:
    """When it does, `PausedAsRunning` can go; tests/stack/test_newer_server.py pauses one on a real server."""
    with pytest.raises(ValueError, match="8 is not a valid WorkflowExecutionStatus"):
        WorkflowExecutionStatus(PAUSED)


def test_only_a_paused_workflow_is_said_to_run() -> None:
    found = {status: WorkflowExecutionInfo(status=status) for status in Status.values()}
    changed = [status for status, info in found.items() if unpause(info)]

    assert changed == [PAUSED] and WorkflowExecutionStatus(found[PAUSED].status) == WorkflowExecutionStatus.RUNNING
    assert [status for status, info in found.items() if info.status != status] == [PAUSED]


async def test_the_connection_of_a_user_is_not_changed(server: DevServer) -> None:
    theirs = await TemporalClient.connect(server.address)
    ours = Client(theirs).temporal
    await ours.count_workflows()

    assert (type(ours.workflow_service), type(theirs.workflow_service)) == (PausedAsRunning, WorkflowService)
    assert ours.service_client.config is theirs.service_client.config
