"""Places of agents."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from extras.gateway.tests.agents import Place
from tests import preloaded


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A state folder without a Temporal server; all programs are forked."""
    place = Place(tmp_path, python=preloaded.python())
    yield place
    place.close()


@pytest.fixture
def session() -> str:
    """A name that no other test has."""
    return f"s-{uuid.uuid4().hex[:8]}"
