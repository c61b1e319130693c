"""What tests of the console share."""

from pathlib import Path

import pytest

from runtime.dev_server import DevServer
from tests.processes import Processes


@pytest.fixture
def commands(server: DevServer, tmp_path: Path) -> Processes:
    """The console of the shared server."""
    return Processes(server.address, tmp_path)
