"""`benchmarks.steps` with tiny numbers: it runs, and its document has what it promises."""

from pathlib import Path

import pytest

from benchmarks import steps
from benchmarks.report import Figure, Verdict
from benchmarks.rounds import Sizes
from benchmarks.steps import GOALS, ROWS, StepsReport
from runtime.dev_server import DevServer

pytestmark = pytest.mark.full

TINY = Sizes(short=1, long=2, tasks=2, task_steps=1, parallel=2, pairs=1)
ONCE = Figure(median=2.0, low=1.0, high=3.0)


@pytest.fixture(scope="module")
async def report(server: DevServer) -> StepsReport:
    return await steps.run(TINY, rounds=1, address=server.address)


async def test_every_side_is_measured_in_every_row_that_it_has(report: StepsReport) -> None:
    """Each arm has each figure; only ours has pure steps, and a server that is not ours is not looked into."""
    missing = {(arm, name) for arm, figures in report.arms.items() for name, figure in figures.items() if not figure}

    assert missing == {
        *((arm, name) for arm in ("bare_default", "bare") for name in ("breaker_cpu_ms", "calculate_ms")),
        *((arm, name) for arm in ("bare", "replan") for name in ("server_cpu_ms", "server_peak_mb")),
    }


async def test_both_sides_write_as_many_events_a_step(report: StepsReport) -> None:
    events = {arm: figures["events"] for arm, figures in report.arms.items()}

    assert events == dict.fromkeys(("bare_default", "bare", "replan"), Figure(median=6.0, low=6.0, high=6.0))


async def test_the_document_has_the_promised_keys(report: StepsReport) -> None:
    document = report.model_dump(mode="json", by_alias=True)

    assert set(document) == {
        *("schema", "machine", "load_before", "load_after", "rounds", "sizes", "arms", "ratios", "goals")
    }
    assert StepsReport.model_validate(document) == report


async def test_the_table_has_a_line_for_every_row(report: StepsReport) -> None:
    table = report.table()

    assert table.row_count == len(ROWS)


async def test_the_picture_is_small(report: StepsReport, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from benchmarks.picture import draw_steps

    draw_steps(report, tmp_path / "steps.png")

    assert 0 < (tmp_path / "steps.png").stat().st_size < 150_000


@pytest.mark.parametrize(
    ("verdict", "line"),
    [
        (Verdict(goal="fast", limit=1.1, value=1.0, met=True), "met: fast: 1"),
        (Verdict(goal="fast", limit=1.1, value=1.32, met=False), "missed by 20%: fast: 1.32"),
        (Verdict(goal="none", limit=0, value=2, met=False), "missed: none: 2"),
        (Verdict(goal="fast", limit=1.1, value=None, met=False), "not measured: fast"),
    ],
)
def test_a_verdict_says_by_how_much_a_goal_was_missed(verdict: Verdict, line: str) -> None:
    assert str(verdict) == line


@pytest.mark.parametrize(
    ("ours", "met"),
    [
        (
            {"step_ms": 2.2, "retry_added_ms": 2.0, "parallel_ms": 2.5, "events": 2.0},
            {"each additional step", "20 parallel steps", "events of a step"},
        ),
        (
            {"step_ms": 0.5, "retry_added_ms": 0.2, "parallel_ms": 2.6, "events": 2.1},
            {"each additional step", "a step", "what a retry adds to its backoff"},
        ),
    ],
)
def test_goals_are_judged_by_the_ratio_of_the_medians(ours: dict[str, float], met: set[str]) -> None:
    bare = dict.fromkeys(ours, ONCE)
    replan = {name: Figure(median=value, low=value, high=value) for name, value in ours.items()}
    figures = {"bare_default": bare, "bare": bare, "replan": replan}

    assert {goal.text.partition(",")[0] for goal in GOALS if goal.judged(figures).met} == met
