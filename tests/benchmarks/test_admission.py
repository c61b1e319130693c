"""`benchmarks.admission` with few tasks: its document says what became of them and of their calls."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.admission import AdmissionReport
from tests.processes import ROOT

pytestmark = pytest.mark.full


def test_few_tasks_outlast_a_service_that_is_down(tmp_path: Path) -> None:
    """All complete when it is back, and hardly any call was made before."""
    file = tmp_path / "figures.json"
    options = ["--tasks", "4", "--seconds", "3", "--trouble", "503", "--workers", "1", "--json", str(file)]
    words = [sys.executable, "-m", "benchmarks.admission", *options]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    [row] = AdmissionReport.model_validate(json.loads(file.read_text())).rows
    assert (row.tasks, row.completed) == (4, 4) and 0 < row.calls_in_trouble <= 16
