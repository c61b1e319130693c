"""Tools of a server that each test lets misbehave."""

import pytest

from extras.mcp.loading import McpTools
from extras.mcp.tests.foreign import loaded, table
from tests.crash.conftest import place as place

COUNTS = "[servers.shop.tools.count]\ntimeout = 60\n"


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory) -> McpTools:
    """Tools that wait long for an answer."""
    return loaded(tmp_path_factory.mktemp("shop"), f"{table()}timeout = 20\n{COUNTS}")


@pytest.fixture(scope="session")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> McpTools:
    """Tools that do not, but for `count`."""
    return loaded(tmp_path_factory.mktemp("hasty"), f"{table()}timeout = 0.7\n{COUNTS}")
