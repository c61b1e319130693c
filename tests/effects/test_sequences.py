"""Drawn sequences of calls, kills, cancels and restarts: no promise is broken in any of them."""

import asyncio
import os

import pytest

from tests.effects.sequences import play_all
from tests.effects.tally import Tally

SEED = 1
"""Where the seeds of the gate begin; each of them is the same sequence at each run."""


def broken(count: int, seed: int) -> list[str]:
    """What is wrong with so many sequences; each line has the seed that repeats it."""
    tally = Tally(count)
    asyncio.run(play_all(range(seed, seed + count), min(4, os.cpu_count() or 1), tally.add))
    assert tally.done == count
    return [f"--only {played.seed}: {played.violations}" for played in tally.broken]


@pytest.mark.timeout(240)
def test_no_sequence_breaks_a_promise() -> None:
    """The oracle finds no double, lost, swallowed or wrong effect."""
    assert broken(50, SEED) == []


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_no_long_run_breaks_a_promise() -> None:
    """Ten thousand sequences."""
    assert broken(10_000, 1_000_000) == []
