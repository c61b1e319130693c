"""The packages of a fresh clone: what is installed is said, and nothing else."""

import asyncio
import shutil
from pathlib import Path

import pytest

from tests.console.terminal import Terminal
from tests.processes import ROOT

NOT_CLONED = shutil.ignore_patterns(".*", "__pycache__", "dist", "*.egg-info")


@pytest.mark.full
@pytest.mark.timeout(600)
async def test_the_first_minute_shows_progress_and_no_warning(tmp_path: Path) -> None:
    clone, make = tmp_path / "clone", shutil.which("make")
    assert make is not None
    shutil.copytree(ROOT, clone, ignore=NOT_CLONED)
    command = [make, "--silent", ".venv/.packages"]
    with Terminal(command, {}, clone) as window:
        while window.process.poll() is None:  # pytest-timeout ends it
            await asyncio.sleep(0.2)
        first = await window.ended()
    with Terminal(command, {}, clone) as again:
        second = await again.ended()

    assert (first, second, again.shown.text) == (0, 0, [""])
    assert window.shown.text == ["      into .venv: about 140 packages, a minute or two, once"]
    assert " found: lxml\x1b" in window.raw or " found: lxml\r" in window.raw
