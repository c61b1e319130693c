"""The steps benchmark on the stack: its figures for production settings stand beside the development server's."""

import asyncio
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import ROOT
from tests.stack.stack import Stack

ROUNDS = 2


@pytest.mark.timeout(600)
async def test_the_steps_benchmark(stack: Stack, figures: list[str], tmp_path: Path) -> None:
    """Its table for this server stands beside the development server's."""
    if importlib.util.find_spec("benchmarks") is None:
        pytest.skip("there is no benchmarks/ in this checkout")
    words = ["--address", stack.places.address, "--rounds", str(ROUNDS), "--json", str(tmp_path / "steps.json")]
    command = [sys.executable, "-m", "benchmarks.steps", *words]
    environment = {**os.environ, "COLUMNS": "120"}
    done = await asyncio.to_thread(
        subprocess.run, command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    figures.extend(done.stdout.splitlines())

    assert done.returncode == 0, done.stderr
