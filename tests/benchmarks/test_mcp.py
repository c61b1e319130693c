"""`benchmarks.mcp` with tiny numbers: both sides call the same server, and its document has what it promises."""

import pytest

from benchmarks import gateway, mcp
from benchmarks.mcp import ACTIVITY, BARE, CONNECTION, NONE, REPLAN, SDK, McpReport, Sizes
from benchmarks.mcp_worker import HTTP, PIPES
from runtime.dev_server import DevServer

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
async def report(server: DevServer) -> McpReport:
    return await mcp.run(Sizes(short=1, long=2, calls=2, tasks=1), rounds=1, address=server.address)


async def test_every_side_and_way_is_measured(report: McpReport) -> None:
    """Steps with and without a server, and calls alone."""
    steps = {f"{transport}_{unit}" for transport in (NONE, PIPES, HTTP) for unit in ("ms", "cpu_ms")}
    calls = {f"{transport}_ms" for transport in (PIPES, HTTP)}

    measured = {name: {*figures} for name, figures in report.arms.items()}
    assert measured == {
        **dict.fromkeys((BARE, REPLAN), steps),
        **dict.fromkeys((SDK, CONNECTION, ACTIVITY), calls),
        **{way: {"call_ms"} for way in gateway.TITLES},
    }


async def test_the_document_has_the_promised_keys(report: McpReport) -> None:
    document = report.model_dump(mode="json", by_alias=True)

    assert set(document) == {"schema", "machine", "load_before", "load_after", "rounds", "sizes", "arms", "goals"}
    assert McpReport.model_validate(document) == report


async def test_the_table_has_a_line_for_each_comparison(report: McpReport) -> None:
    assert report.table().row_count == 13
    assert all(goal.value is not None for goal in report.goals)
