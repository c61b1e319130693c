"""Agents in processes of their own."""

from pathlib import Path

import pytest

from tests.effects.agents import Agents


@pytest.fixture
def agents(tmp_path: Path) -> Agents:
    """Agents with a store in SQLite."""
    return Agents(tmp_path)


@pytest.fixture
def agents_of_both(tmp_path: Path, store_url: str) -> Agents:
    """Agents with a store in each of the two databases."""
    return Agents(tmp_path, store_url)
