"""Replaying histories in a fresh process."""

import subprocess
import sys
from pathlib import Path

from tests.processes import ROOT

HISTORIES = sorted((ROOT / "tests" / "histories").glob("*.json"))
"""Histories of tasks."""

BESIDE_TASKS = sorted((ROOT / "tests" / "histories" / "beside_tasks").glob("*.json"))
"""Histories of the workflows that work for tasks: a rollback after the end, and the resolution of an incident."""


def replay(*files: str | Path) -> subprocess.CompletedProcess[str]:
    """Replay files in a fresh process, as users do."""
    return run("starter.py", "replay", *map(str, files))


def replay_changed(*files: str | Path) -> subprocess.CompletedProcess[str]:
    """Replay files in a fresh process with a workflow that was changed on purpose, which must fail."""
    return run("-m", "tests.changed_workflow", *map(str, files))


def run(*words: str) -> subprocess.CompletedProcess[str]:
    """Run a command of Python from the checkout."""
    command = [sys.executable, *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=100)
