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


@pytest.mark.parametrize("status", [one for one in Status.values() if one != PAUSED])
def test_any_other_status_stays(status: Status.ValueType) -> None:
    """Only a paused workflow is said to run."""
    info, paused = WorkflowExecutionInfo(status=status), WorkflowExecutionInfo(status=PAUSED)

    assert (unpause(info), info.status) == (False, status)
    assert (unpause(paused), WorkflowExecutionStatus(paused.status)) == (True, WorkflowExecutionStatus.RUNNING)


async def test_the_connection_of_a_user_is_not_changed(server: DevServer) -> None:
    theirs = await TemporalClient.connect(server.address)
    ours = Client(theirs).temporal
    await ours.count_workflows()

    assert (type(ours.workflow_service), type(theirs.workflow_service)) == (PausedAsRunning, WorkflowService)
    assert ours.service_client.config is theirs.service_client.config
