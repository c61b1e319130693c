"""The servers that tests share: a real Temporal and a real PostgreSQL, for the session."""

from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

import pytest
from temporalio.client import Client

from activities.storage.store import sqlite_url
from evals.fakes.postgresql import FAST, MISSING, PASSWORD, USER, Cluster, find_postgresql, running
from runtime.client import connect
from runtime.dev_server import DevServer, ServerSpec, find_cli, free_port
from runtime.process import leave
from tests.processes import Processes
from tests.provocations import LINE
from workflows.account import search_attributes

pytest_plugins = ["tests.gate"]
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


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say in one line for each reason why tests were skipped, since a skipped test says nothing; and the provocations.

    Their tests run in other processes, which print nothing.
    """
    reports = terminalreporter.stats.get("skipped", [])
    reasons = Counter(str(report.longrepr[-1]).removeprefix("Skipped: ") for report in reports)
    for reason, number in reasons.items():
        terminalreporter.write_line(f"{number} test{'s were' if number > 1 else ' was'} skipped. {reason}")
    for outcome in ("passed", "failed"):
        for report in terminalreporter.stats.get(outcome, []):
            for line in [line for name, line in report.user_properties if name == LINE]:
                terminalreporter.write_line(line)


class QuickServer(ServerSpec):
    """A server whose database survives any process that ends, but not a loss of power: nothing waits for the disk."""

    def command(self, binary: Path) -> list[str]:
        return [*super().command(binary), "--sqlite-pragma", "synchronous=0"]


@pytest.fixture(scope="session")
def server_attributes() -> Mapping[str, str]:
    """The search attributes that the shared server knows, name to type."""
    return search_attributes.TYPES


@pytest.fixture(scope="session")
async def server(
    tmp_path_factory: pytest.TempPathFactory, server_attributes: Mapping[str, str]
) -> AsyncIterator[DevServer]:
    """A development server on ports of its own, with an empty database."""
    folder = tmp_path_factory.mktemp("server")
    spec = QuickServer(folder, port=free_port(), ui_port=free_port(), attributes=server_attributes)
    async with DevServer(spec, await find_cli(lambda _: None)) as running:
        yield running


@pytest.fixture(scope="session")
async def client(server: DevServer) -> Client:
    return await connect(address=server.address, plain=True)


@pytest.fixture
def commands(server: DevServer, tmp_path: Path) -> Processes:
    """The console of the shared server."""
    return Processes(server.address, tmp_path)


@pytest.fixture(scope="session")
async def postgresql(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    """A PostgreSQL on a port of its own; where none is installed, the test is skipped."""
    binaries = find_postgresql()
    if binaries is None:
        pytest.skip(MISSING)
    log = tmp_path_factory.mktemp("postgresql") / "log"
    async with running(binaries, free_port(), user=USER, password=PASSWORD, options=FAST, log=log) as cluster:
        yield cluster


@pytest.fixture(params=["sqlite", "postgresql"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Where a store of the test's own can be made: the test runs on each of the two databases."""
    if request.param == "sqlite":
        yield sqlite_url(tmp_path)
        return
    cluster: Cluster = request.getfixturevalue("postgresql")
    name = cluster.create()
    yield cluster.url(name)
    cluster.drop(name)
