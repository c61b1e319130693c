"""`benchmarks.crowd` with few tasks: it runs them over its workers, and its document has what it promises."""

import pytest

from benchmarks import crowd
from benchmarks.crowd import CrowdReport
from runtime.dev_server import DevServer

pytestmark = pytest.mark.full

TASKS = 10


@pytest.fixture(scope="module")
async def report(server: DevServer) -> CrowdReport:
    return await crowd.run(TASKS, (1, 2), server.address, None, steps=1)


async def test_each_number_of_workers_is_measured(report: CrowdReport) -> None:
    assert [one.workers for one in report.crowds] == [1, 2]
    assert report.table().row_count == len(report.goals) == 2
    assert all(one.p99_s >= one.median_s > 0 and one.server_cpu_ms is None for one in report.crowds)


async def test_the_document_has_the_promised_keys(report: CrowdReport) -> None:
    document = report.model_dump(mode="json", by_alias=True)

    assert CrowdReport.model_validate(document) == report
    assert set(document) == {
        *("schema", "machine", "load_before", "load_after", "tasks", "steps", "together", "crowds", "goals")
    }
