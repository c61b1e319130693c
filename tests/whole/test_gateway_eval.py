"""`python -m evals.gateway` and `evals.clients`: what is drawn, and that small runs keep every promise."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from evals.gateway.moments import CUT_SHARE, GATEWAYS_OWN, ROWS, Blow, Moment, Row, drawn
from extras.mcp.tests import real
from tests.processes import ROOT


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_seed_draws_the_same_effects_and_each_process_is_killed_where_the_row_says(row: Row) -> None:
    effects = drawn(row, 200, 7)
    blows = Counter(effect.happens.blow for effect in effects)

    assert effects == drawn(row, 200, 7) != drawn(row, 200, 8)
    assert len({effect.token for effect in effects}) == 200
    assert blows[Blow.KILL] + blows[Blow.HANG_UP] == 200 * CUT_SHARE
    assert all(bool(blows[blow]) == row.is_heavy for blow in GATEWAYS_OWN)


def test_only_cuts_come_after_a_clean_write() -> None:
    effects = [effect for row in ROWS for effect in drawn(row, 300, 7)]
    written = {effect.happens.blow for effect in effects if effect.happens.moment is Moment.WRITTEN}

    assert written == {Blow.HANG_UP}


@pytest.mark.full
@pytest.mark.timeout(600)
def test_a_small_run_does_nothing_twice_and_loses_nothing(tmp_path: Path) -> None:
    real.new_programs()
    real.old_programs()
    real.node_programs()
    file = tmp_path / "report.json"
    options = ["--effects", "48", "--agents", "4", "--row", "2", "--row", "3", "--json", str(file)]
    command = [sys.executable, "-m", "evals.gateway", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    report = json.loads(file.read_text())

    assert done.returncode == 0, done.stdout
    assert [run["twice"] + run["lost"] for run in report["runs"] if run["has_gateway"]] == [0, 0]
    assert "| without keys, break observed |" in done.stdout


@pytest.mark.full
@pytest.mark.timeout(300)
def test_a_client_that_is_killed_or_short_of_time_pays_once() -> None:
    """Through pipes and over HTTP, without keys."""
    command = [sys.executable, "-m", "evals.clients", "python_sdk_2", "--count", "5", "--kills", "2", "--no-bare"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "| Python SDK 2.3.0 | HTTP | 5 | 2 | 0 | 0 |" in done.stdout
