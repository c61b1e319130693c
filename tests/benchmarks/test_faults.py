"""`benchmarks.faults` with few calls: each kind of activity on each side, and a document with what it promises."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.faults import ENDS, KINDS, FaultsCost
from benchmarks.faults_worker import LINE, PLUGINS, UNKEYED
from tests.processes import ROOT

pytestmark = pytest.mark.full


def test_few_calls_are_measured_on_each_side(tmp_path: Path) -> None:
    """What the line adds is against the worker without it; what it comes to, no test says."""
    file = tmp_path / "figures.json"
    words = [sys.executable, "-m", "benchmarks.faults", "--rounds", "1", "--calls", "3", "--json", str(file)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    found = FaultsCost.model_validate(json.loads(file.read_text()))
    for sides, arms in ((found.cpu_ms, {*PLUGINS}), (found.added_cpu_ms, {LINE, UNKEYED})):
        assert set(sides) == arms and all(set(figures) == set(KINDS) for figures in sides.values())
    assert all(set(found.alone_us[arm]) == set(ENDS) for arm in (LINE, UNKEYED))
