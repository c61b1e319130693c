"""Servers that tests may kill, and places of tools that do harm."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from temporalio.client import Client

from runtime.dev_server import DevServer, ServerSpec, find_cli, free_port
from tests.crash.places import Place
from workflows.account import search_attributes


@pytest.fixture
def place(client: Client, server: DevServer, tmp_path: Path) -> Place:
    """A place on the shared server."""
    return Place(server.address, tmp_path, client)


@pytest.fixture
async def own_server(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[DevServer]:
    """A server that the test may kill; its parameter is the dynamic configuration, if any."""
    spec = ServerSpec(
        tmp_path / "server",
        port=free_port(),
        ui_port=free_port(),
        attributes=search_attributes.TYPES,
        dynamic=getattr(request, "param", {}),
    )
    async with DevServer(spec, await find_cli(lambda _: None)) as running:
        yield running
