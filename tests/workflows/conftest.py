"""The client of the workflow tests, whose workers count their metrics."""

from pathlib import Path

import pytest
from temporalio.client import Client

from runtime.client import connect
from runtime.dev_server import DevServer
from tests.counting import CountingRuntime
from tests.workflows.props import Stages


@pytest.fixture(scope="session")
async def client(server: DevServer) -> Client:
    """A client of the shared server; each stage of it compares the metrics of its worker with the histories."""
    return await connect(address=server.address, plain=True, runtime=CountingRuntime())


@pytest.fixture
def stages(client: Client, tmp_path: Path) -> Stages:
    """Workers on the shared server."""
    return Stages(client, tmp_path)
