"""`python -m evals.retry_waste --published`: the published model, to the last digit and in expectation."""

import subprocess
import sys
from dataclasses import replace

import pytest

from evals.retry_waste.published import PUBLISHED, PUBLISHED_SEED, expected_react, simulate
from evals.retry_waste.published_report import EVERY_CALL_FAILS, MEASURES, SWEEP, Published
from tests.processes import ROOT

SEEDS = 120
"""Enough for the standard errors; the command runs 1,000."""
PRINTED = (ROOT / "docs" / "measured" / "retry-waste-published.txt").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def published() -> Published:
    return Published.run(SEEDS)


def test_the_published_seed_gives_the_published_figures() -> None:
    sides = simulate(PUBLISHED_SEED)
    digits = {"steps per task": 2, "sigma of steps": 2, "wasted share": 3, "dollars": 4}
    found = {
        measure.name: [round(measure.of(side) + 1e-9, digits.get(measure.name, 1)) for side in sides]
        for measure in MEASURES
    }

    assert found == {measure.name: [measure.react, measure.workflow] for measure in MEASURES}
    assert sides.react.failures == {
        "hallucinated_tool_exhausted_retries": 19,
        "tool_error_exhausted_retries:rate_limited": 1,
        "tool_error_exhausted_retries:dependency_down": 1,
    }


def test_the_published_seed_gives_the_published_sweep() -> None:
    found = {rate: simulate(PUBLISHED_SEED, replace(PUBLISHED, hallucination=rate)).react for rate in SWEEP}

    assert {
        rate: (f"{side.waste:.1%}", f"{side.sigma:.2f}", f"{side.successes / 200:.1%}") for rate, side in found.items()
    } == SWEEP


def test_every_figure_is_within_its_standard_errors(published: Published) -> None:
    """Were these too wide, any figure would hold."""
    wrong = [check._replace(expected=check.expected * 1.03) for check in published.checks]

    assert [check.name for check in published.checks if not check.holds] == []
    assert [check.name for check in wrong if check.holds] == [] and len(wrong) == 9


CHAIN = {
    3: (177.87, 515.6, 478.9, 2.829, 1.437),
    2: (192.87, 371.4, 334.7, 2.956, 1.578),
    1: (199.68, 209.1, 172.4, 3.014, 1.688),
    0: (199.84, 40.3, 3.6, 3.015, 1.693),
}
"""By the retries that an invented tool costs: successes, retries, wasted ones, steps and their sigma."""


def test_the_chain_has_the_expectations() -> None:
    found = {burn: expected_react(replace(PUBLISHED, burn=burn)) for burn in CHAIN}

    assert {
        burn: (*map(round, (one.success, one.retries, one.wasted), (2, 1, 1)), round(one.steps, 3), round(one.sigma, 3))
        for burn, one in found.items()
    } == CHAIN


def test_the_workflow_of_the_model_cannot_fail_and_the_report_says_so(published: Published) -> None:
    """Its success is built in: it succeeds although no call does."""
    down = simulate(PUBLISHED_SEED, replace(PUBLISHED, fault_scale=EVERY_CALL_FAILS))
    report = "\n".join(published.pages())

    assert (down.workflow.successes, down.workflow.fallbacks, sum(down.workflow.latencies)) == (200, 200, 0)
    assert simulate(PUBLISHED_SEED).workflow.futile == 24
    assert len(published.conclusions()) == 9
    assert "| retries | 513 | 513 | " in report and "| the workflow always succeeds | built in | " in report


def test_the_page_has_rows_of_what_the_command_prints() -> None:
    page = (ROOT / "docs" / "retry-waste.md").read_text(encoding="utf-8")
    section = page.partition("\n## The published simulation\n")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("|")]

    assert len(rows) > 4
    assert [row for row in rows if row not in PRINTED.splitlines()] == []


@pytest.mark.full
def test_the_command_prints_the_report_and_the_file_has_it() -> None:
    command = [sys.executable, "-m", "evals.retry_waste", "--published", "--seeds", "50"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert (done.returncode, "standard errors away" in done.stdout) == (0, True), done.stderr
    assert "\n\n".join(Published.run(1000).pages()) + "\n" == PRINTED
