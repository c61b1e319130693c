"""Agents in processes of their own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.effects.agents import Agents
from tests.effects.shop import Shop


@pytest.fixture
def agents(tmp_path: Path) -> Agents:
    """Agents with a store in SQLite."""
    return Agents(tmp_path)


@pytest.fixture
def agents_of_both(tmp_path: Path, store_url: str) -> Agents:
    """Agents with a store in each of the two databases."""
    return Agents(tmp_path, store_url)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    """A program with a store in SQLite."""
    made = Shop(tmp_path)
    yield made
    made.effects.close()
