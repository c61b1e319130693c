"""A plugin of pytest for `maintenance.mutants`: coverage notes with each line the test that reaches it."""

import pytest
from coverage import Coverage


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logstart(nodeid: str) -> None:
    """Called before the fixtures of a test."""
    if coverage := Coverage.current():
        coverage.switch_context(nodeid)
