"""The server that tests share: a real one, for the session."""

from collections.abc import AsyncIterator, Mapping

import pytest
from temporalio.client import Client

from runtime.client import connect
from runtime.dev_server import DevServer, ServerSpec, find_cli, free_port
from runtime.ending import leave
from workflows import attributes

ENDED = pytest.StashKey[int]()


def pytest_unconfigure(config: pytest.Config) -> None:
    """End without taking the interpreter apart, which Temporal's core does not always survive."""
    session = config.stash.get(ENDED, None)
    if session is not None:
        leave(session)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Keep the exit code for the very end."""
    session.config.stash[ENDED] = int(exitstatus)


@pytest.fixture(scope="session")
def search_attributes() -> Mapping[str, str]:
    """The search attributes that the shared server knows, name to type."""
    return attributes.TYPES


@pytest.fixture(scope="session")
async def server(
    tmp_path_factory: pytest.TempPathFactory, search_attributes: Mapping[str, str]
) -> AsyncIterator[DevServer]:
    """A development server on ports of its own, with an empty database."""
    folder = tmp_path_factory.mktemp("server")
    spec = ServerSpec(folder, port=free_port(), ui_port=free_port(), attributes=search_attributes)
    async with DevServer(spec, await find_cli(lambda _: None)) as running:
        yield running


@pytest.fixture(scope="session")
async def client(server: DevServer) -> Client:
    """A client of the shared server."""
    return await connect(address=server.address, plain=True)
