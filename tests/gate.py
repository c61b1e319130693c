"""How the tests are run: those of the quick tier and of the full one, in how many processes, and in which order."""

import gc
import os
import shutil
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from extras import plugins
from tests import preloaded

HERE = Path(__file__).parent
PROCESSES_PER_CORE = 3
"""More than one, since most tests wait most of the time."""
SLOW_SECONDS = 30
OFFERED = pytest.StashKey[str]()
BOTH_DATABASES = {"test_borders_sql", "test_breakers", "test_ledger", "test_races", "test_store"}
"""Modules whose tests run on PostgreSQL in the quick tier, too."""
ONE_PROVIDER = {
    "test_budgets",
    "test_injection",
    "test_outages",
    "test_questions",
    "test_react",
    "test_react_crash",
    "test_tasks",
    "test_transcript",
    "test_usage",
}
"""Modules on what follows whoever answers: the quick tier has one provider there, and all where their APIs differ."""
APART = ("stack", "containers")
"""Folders that run only where they are named: they fetch packages, and take minutes."""
SLOWEST_FIRST = ("chaos", "crash", "gateway", "providers", "console", "web", "whole", "workflows", "runtime", "mcp")
"""Folders in the order in which processes take their modules, then all others: no long module is left for the end."""

# Examples take their time where two cores are shared, both to be made and to be tried.
UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.register_profile("quick", UNTIMED, max_examples=50)
settings.register_profile("full", UNTIMED, max_examples=400)
settings.load_profile("quick")


def needs_extra(name: str) -> pytest.MarkDecorator:
    """Skips a test of the core in a copy without an extra that the test looks at, too."""
    return pytest.mark.skipif(name not in plugins(), reason=f"extras/{name} is not in this copy")


def sampled(cases: Mapping[str, Sequence[Any]], *quick: str) -> list[Any]:
    """The cases of a table for `parametrize`: those whose names are not in `quick` are of the full tier."""
    return [
        pytest.param(*case, id=name, marks=() if name in quick else pytest.mark.full) for name, case in cases.items()
    ]


on_sqlite = pytest.mark.parametrize(
    "store_url", ["sqlite", pytest.param("postgresql", marks=pytest.mark.full)], indirect=True
)
"""For a test of BOTH_DATABASES whose twin on PostgreSQL is of the full tier."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """What `-n auto` means."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return PROCESSES_PER_CORE * (cores or 1)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as `full` what has a twin, on SQLite or with the other provider; put folders with long modules first."""
    for item in items:
        given = item.callspec.params.values() if isinstance(item, pytest.Function) and hasattr(item, "callspec") else ()
        is_twin = ("postgresql" in given and item.path.stem not in BOTH_DATABASES) or (
            item.path.stem in ONE_PROVIDER and ("openai" in given or "responses" in given)
        )
        if is_twin:
            item.add_marker(pytest.mark.full)
    items.sort(key=lambda item: rank(item.path))


def pytest_collection_finish() -> None:
    """Leave what exists now out of the collector's rounds: all tests, and the modules of Replan and its libraries."""
    gc.enable()
    # A full round takes a second or two of a busy machine, in whatever thread it begins: in that of a workflow, the SDK
    # takes it for a deadlock.
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Leave out what the tests of a module have loaded, too."""
    if nextitem is not None and nextitem.path != item.path:
        gc.collect(1)
        gc.freeze()


def rank(path: Path) -> int:
    parts = path.relative_to(HERE.parent).parts  # tests/FOLDER/..., tests/FILE, or extras/FOLDER/tests/...
    folder = parts[1] if len(parts) > 2 else ""
    return SLOWEST_FIRST.index(folder) if folder in SLOWEST_FIRST else len(SLOWEST_FIRST)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Set what all processes of the tests inherit."""
    gc.disable()  # until all is collected: there is nothing to free, and its rounds take a tenth of that time
    if not any(is_asked_for(config, name) for name in APART):
        # Each HTTP client reads what it trusts: 40 ms for the system's certificates, and here is a folder with none.
        os.environ["SSL_CERT_DIR"] = str(HERE)
        os.environ.pop("SSL_CERT_FILE", None)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # with it, each process would compile all modules again
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # of a background job, whose children ignore it, too
    if preloaded.FOLDER not in os.environ:  # or we are a process of pytest-xdist
        os.environ[preloaded.FOLDER] = config.stash[OFFERED] = preloaded.offered()


@pytest.hookimpl(tryfirst=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """Leave no folder behind."""
    if OFFERED in config.stash:
        shutil.rmtree(config.stash[OFFERED], ignore_errors=True)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Watch the tests where their results are printed."""
    plugins = session.config.pluginmanager
    terminal = plugins.get_plugin("terminalreporter")
    if terminal is not None and not hasattr(session.config, "workerinput"):
        plugins.register(SlowTests(terminal))


def is_asked_for(config: pytest.Config, folder: str) -> bool:
    """Whether the command line names this folder of tests or something in it."""
    named = [config.invocation_params.dir / argument.partition("::")[0] for argument in config.args]
    return any(path.resolve().is_relative_to(HERE / folder) for path in named)


class SlowTests:
    """Prints the name of each test that takes long: while it runs, if others end meanwhile, and at its end."""

    def __init__(self, terminal: pytest.TerminalReporter) -> None:
        self._terminal = terminal
        self._began = dict[str, float]()
        self._named = set[str]()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._began[nodeid] = time.monotonic()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        now, began = time.monotonic(), self._began.pop(nodeid, None)
        if began is not None and now - began > SLOW_SECONDS:
            self._say(f"{nodeid} took {now - began:.0f} s")
        for other, since in self._began.items():
            if now - since > SLOW_SECONDS and other not in self._named:
                self._named.add(other)
                self._say(f"{other} has been running for {now - since:.0f} s")

    def _say(self, line: str) -> None:
        self._terminal.write_line(f"\n{line}")  # below the dots
