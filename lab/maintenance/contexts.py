"""A plugin of pytest for `maintenance.mutants`: coverage notes with each line the test that reaches it."""

import os
from pathlib import Path

import pytest

VARIABLE = "REPLAN_LINES"
"""The variable of the environment with the folder for what each process of the tests records."""
FAILED = "failed-{}"
"""The file in it with the tests of a process that failed."""
SECONDS = "seconds-{}"
"""The file in it with the seconds that each test of a process, its fixtures and their end took; a line each."""
_KEY = pytest.StashKey[object]()
_ROOT = Path(__file__).parents[2]


def pytest_configure(config: pytest.Config) -> None:
    """Record in the processes that run tests, and not in the one that hands them out."""
    folder = os.environ.get(VARIABLE)
    if folder and (worker := os.environ.get("PYTEST_XDIST_WORKER")):
        from coverage import Coverage  # of the extra `maintenance`

        include = [f"{_ROOT}/workflows/*", f"{_ROOT}/activities/*"]
        config.stash[_KEY] = recording = Coverage(data_file=f"{folder}/{worker}", include=include, config_file=False)
        recording.start()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logstart(nodeid: str) -> None:
    """Called before the fixtures of a test."""
    if VARIABLE in os.environ:
        from coverage import Coverage

        if recording := Coverage.current():
            recording.switch_context(nodeid)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if VARIABLE in os.environ and (worker := os.environ.get("PYTEST_XDIST_WORKER")):
        folder = Path(os.environ[VARIABLE])
        with (folder / SECONDS.format(worker)).open("a", encoding="utf-8") as file:
            print(report.duration, report.nodeid, file=file)
        if report.failed:
            with (folder / FAILED.format(worker)).open("a", encoding="utf-8") as file:
                print(report.nodeid, file=file)


def pytest_unconfigure(config: pytest.Config) -> None:
    if recording := config.stash.get(_KEY, None):
        recording.stop()  # type: ignore[attr-defined]  # Coverage is not imported at the top
        recording.save()  # type: ignore[attr-defined]
