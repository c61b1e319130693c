"""`benchmarks.incident` with few tasks: all wait, all are told, and its document has what it promises."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.incident import IncidentReport
from tests.processes import ROOT

pytestmark = pytest.mark.full


def test_few_tasks_wait_and_go_on(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    words = [sys.executable, "-m", "benchmarks.incident", "--tasks", "6", "--workers", "1", "--json", str(file)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    found = IncidentReport.model_validate(json.loads(file.read_text()))
    assert found.tasks == 6 and [one.met for one in found.goals] == [True, True]
    assert found.ended.bytes > found.waiting.bytes > 1000
    assert "from the answer until all are completed" in done.stdout
