"""`benchmarks.growth` with a short task: it runs, counts what ran, and its document has what it promises."""

from pathlib import Path

import pytest

from benchmarks import growth
from benchmarks.growth import GrowthReport
from benchmarks.long_task import Line, Tally, script
from runtime.dev_server import DevServer
from workflows.plans.proposal import Answer, NewSteps

pytestmark = pytest.mark.full

STEPS = 100


@pytest.fixture(scope="module")
async def report(server: DevServer) -> GrowthReport:
    return await growth.run(STEPS, 1, server.address)


async def test_every_step_finishes_once_and_none_again(report: GrowthReport) -> None:
    """Both tasks finish each step exactly once, although a worker was killed; no finished step runs again."""
    audits = [report.audit, report.audit_killed]

    assert [(audit.finished, audit.finished_twice, audit.ran_again) for audit in audits if audit] == [(STEPS, 0, 0)] * 2


async def test_time_and_memory_are_measured_by_hundreds(report: GrowthReport) -> None:
    hundreds = [(one.steps, one.seconds > 0, one.worker_mb > 0) for one in report.hundreds]

    assert hundreds == [(100, True, True)]


async def test_the_document_has_the_promised_keys(report: GrowthReport) -> None:
    document = report.model_dump(mode="json", by_alias=True)

    assert {"schema", "machine", "load_before", "load_after", "steps", "hundreds", "audit", "goals"} <= set(document)
    assert GrowthReport.model_validate(document) == report


async def test_the_picture_is_small(report: GrowthReport, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from benchmarks.picture import draw_growth

    draw_growth(report, tmp_path / "growth.png")

    assert 0 < (tmp_path / "growth.png").stat().st_size < 150_000


def test_a_script_has_proposals_of_at_most_fifty_steps(tmp_path: Path) -> None:
    proposals = script(120, tmp_path / "tally", 0.0)

    assert [len(one.steps) for one in proposals if isinstance(one, NewSteps)] == [50, 50, 20]
    assert isinstance(proposals[-1], Answer)


def test_a_tally_is_read_as_it_grows(tmp_path: Path) -> None:
    """What was added since the last look is read; a second run of a step is no new step."""
    file = tmp_path / "tally"
    tally = Tally(file)
    counts = [tally.update()]
    for words in ("s1 1 10.0\n", "s1 2 11.0\ns2 1 12.0\n"):
        with file.open("a") as more:
            more.write(words)
        counts.append(tally.update())

    assert counts == [0, 1, 2]
    assert tally.lines == [Line("s1", 1, 10.0), Line("s1", 2, 11.0), Line("s2", 1, 12.0)]
