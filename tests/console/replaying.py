"""Replaying histories in a fresh process."""

import subprocess
import sys
from pathlib import Path

from tests.processes import ROOT

HISTORIES = sorted((ROOT / "tests" / "histories").glob("*.json"))


def replay(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Replay files in a fresh process, with the project's own script."""
    command = [sys.executable, "-m", "tests.replay", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=100)
