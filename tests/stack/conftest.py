"""One stack for the session of `make test-stack`, and in the place of the development server."""

import shutil
import signal
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from temporalio.client import Client

from runtime.client import connect
from runtime.temporal_cli import ServerUnavailable, spoken
from tests.gate import is_asked_for
from tests.stack import stack as stacks
from tests.stack.places import Places
from tests.stack.programs import ProgramMissing, find_programs
from tests.stack.stack import Process, Stack

HERE = Path(__file__).parent
FIGURES = pytest.StashKey[list[str]]()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Only for who asks for it by name: it needs Go, PostgreSQL and minutes."""
    return True if collection_path.is_relative_to(HERE) and not is_asked_for(config, HERE.name) else None


def pytest_configure(config: pytest.Config) -> None:
    """SIGTERM ends the tests as Ctrl-C does, with everything that they started."""
    if is_asked_for(config, HERE.name):
        signal.signal(signal.SIGTERM, signal.default_int_handler)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for line in config.stash.get(FIGURES, []):
        terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def figures(pytestconfig: pytest.Config) -> list[str]:
    return pytestconfig.stash.setdefault(FIGURES, [])


@pytest.fixture(scope="session")
async def stack(request: pytest.FixtureRequest, figures: list[str]) -> AsyncIterator[Stack]:
    """The stack; where a test failed its logs stay, and the summary names them."""
    began = time.monotonic()
    try:
        programs = await find_programs(lambda _: None)
    except (ProgramMissing, ServerUnavailable) as missing:
        pytest.exit(f"No test was run. {missing}", returncode=2)
    root = Path(tempfile.mkdtemp(prefix="replan-stack-"))
    places = Places(root, programs)
    try:
        async with stacks.running(places) as one:
            figures.append(f"up with {len(one.workers)} workers after {spoken(time.monotonic() - began)}")
            yield one
    except BaseException:
        figures.append(f"the logs are in {places.logs}")
        raise
    if request.session.testsfailed:
        figures.append(f"the logs are in {places.logs}")
    else:
        shutil.rmtree(root)


@pytest.fixture(scope="session")
def server(stack: Stack) -> Process:
    """The stack's server, where tests for any server ask for one."""
    return stack.server


@pytest.fixture(scope="session")
async def client(server: Process) -> Client:
    return await connect(address=server.address, plain=True)


@pytest.fixture
def own_server(stack: Stack) -> Process:
    """The stack's server again: its workers, too, must live with its end."""
    return stack.server
