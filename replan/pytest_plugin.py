"""The plugin for pytest, with which users test their tools on a real worker; see docs/tools.md.

It does nothing until a test asks for one of its fixtures: no server is started before, and nothing else is imported.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:  # SDK and SQLAlchemy take a second, which only tests that ask for a worker need
    from activities.toolbox.declare.tool import Tool
    from replan.testing.worker import AsyncCallTool, CallTool, RunningWorker


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the setting that names the tools."""
    parser.addini("replan_tools", "Tools for the fixture replan_worker: modules or files.", type="args", default=[])


@pytest.fixture(scope="session")
def replan_address(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a development server, which each process of the tests starts once; override it to use another."""
    from replan.testing.worker import development_server
    from runtime.temporal_cli import ServerUnavailable

    def say(line: str) -> None:
        reporter = pytestconfig.pluginmanager.get_plugin("terminalreporter")
        capture = pytestconfig.pluginmanager.get_plugin("capturemanager")
        if reporter is not None and capture is not None:  # a process of pytest-xdist has no terminal
            with capture.global_and_fixture_disabled():
                reporter.write_line(line)

    try:
        with development_server(tmp_path_factory.mktemp("replan-server"), say) as address:
            yield address
    except ServerUnavailable as error:
        other = (
            "Tests never use the server of TEMPORAL_ADDRESS: to use a running one, override the fixture replan_address."
        )
        raise pytest.fail.Exception(f"{error}\n{other}", pytrace=False) from None


@pytest.fixture(scope="module")
def replan_tools(pytestconfig: pytest.Config) -> "Sequence[str | Tool[..., Any]]":
    """The tools of `replan_worker`, or the names of their modules or files; override it to choose others."""
    named: list[str] = pytestconfig.getini("replan_tools")
    return named


@pytest.fixture(scope="module")
def replan_settings() -> Mapping[str, Any]:
    """Further settings of `replan_worker`, by the names that `Replan(...)` takes; override it to set some."""
    return {}


@pytest.fixture(scope="module")
def replan_worker(
    replan_address: str,
    replan_tools: "Sequence[str | Tool[..., Any]]",
    replan_settings: Mapping[str, Any],
    tmp_path_factory: pytest.TempPathFactory,
) -> "Iterator[RunningWorker]":
    """A worker with the user's tools in this process: one for each module, with a task queue and a store of its own."""
    from replan.testing.worker import BAD_SETTINGS, running_worker

    state = tmp_path_factory.mktemp("replan-worker")
    try:
        with running_worker(replan_address, state, replan_tools, replan_settings) as worker:
            yield worker
    except BAD_SETTINGS as error:
        where = "The tools are those of the setting or the fixture replan_tools."
        raise pytest.fail.Exception(f"{error}\n{where}", pytrace=False) from None


@pytest.fixture
def call_tool(replan_worker: "RunningWorker") -> "CallTool":
    """Run one step on `replan_worker`, and return its typed result."""
    return replan_worker.call_tool


@pytest.fixture
def async_call_tool(replan_worker: "RunningWorker") -> "AsyncCallTool":
    """Run one step as `call_tool` does, for `async def` tests."""
    return replan_worker.async_call_tool
