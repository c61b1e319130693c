"""Replaying histories in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

from tests import preloaded
from tests.processes import ROOT

SECONDS = 100
HISTORIES = sorted((ROOT / "tests" / "histories").glob("*.json"))
"""Histories of tasks."""

BESIDE_TASKS = sorted((ROOT / "tests" / "histories" / "beside_tasks").glob("*.json"))
"""Histories of the workflows that work for tasks: a rollback after the end, and the resolution of an incident."""


def replay(*files: str | Path) -> subprocess.CompletedProcess[str]:
    """Replay files in a process of its own, as users do."""
    return preloaded.run(["replay", *map(str, files)], os.environ, SECONDS)


def replay_changed(*files: str | Path) -> subprocess.CompletedProcess[str]:
    """Replay files in a fresh process with a workflow that was changed on purpose, which must fail."""
    command = [sys.executable, "-m", "tests.changed_workflow", *map(str, files)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=SECONDS)
