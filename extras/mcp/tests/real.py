"""Real MCP servers at fixed versions, installed once into the user's cache from the registries of pip and npm."""

from collections.abc import Callable
from pathlib import Path

import pytest

from evals.gateway import programs

MISSING = programs.MISSING


def new_programs() -> Path:
    """The folder with the programs of the servers git, time and fetch. Skips the test if there is none."""
    return _or_skip(programs.new_programs)


def old_programs() -> Path:
    """The folder with that of the server sqlite. Skips the test if there is none."""
    return _or_skip(programs.old_programs)


def node_programs() -> Path:
    """The folder with those of the servers everything, filesystem and memory. Skips the test if there is none."""
    return _or_skip(programs.node_programs)


def _or_skip(found: Callable[[], Path]) -> Path:
    try:
        return found()
    except programs.MissingServers as missing:
        pytest.skip(str(missing))
