"""One composition for the session of `make test-containers`."""

import shutil
import signal
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from runtime.temporal_cli import spoken
from tests.containers import engine as engines, images
from tests.containers.composed import Composed
from tests.gate import is_asked_for

HERE = Path(__file__).parent
FIGURES = pytest.StashKey[list[str]]()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Only for who asks for it by name: it needs root or docker, and minutes."""
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
async def composed(request: pytest.FixtureRequest, figures: list[str]) -> AsyncIterator[Composed]:
    """Everything up; at the end it is taken down, and nothing of it may stay. The logs stay where a test failed."""
    reason = engines.missing()
    if reason is not None:
        if not engines.may_be_skipped():
            pytest.exit(f"No test was run. {reason}", returncode=2)
        figures.append(f"containers were skipped. {reason}")
        pytest.skip(reason)
    folder = Path(tempfile.mkdtemp(prefix="replan-composed-"))
    async with engines.running(lambda _: None) as engine:
        await images.make(engine, lambda _: None)
        figures.extend(f"image of {name}: {size / 1e6:.0f} MB" for name, size in (await images.sizes(engine)).items())
        composed = Composed(engine, folder)
        began = time.monotonic()
        try:
            await composed.up()
            await composed.is_healthy()
            figures.append(f"up and healthy after {spoken(time.monotonic() - began)}")
            yield composed
        finally:
            if request.session.testsfailed:
                figures.append(f"the logs are in {await composed.keep_logs()}")
            await composed.compose("down", "--volumes", "--timeout=20")
            left = await composed.left()
    assert left == []
    if not request.session.testsfailed:
        shutil.rmtree(folder)
