"""`benchmarks.observability` with tiny numbers: it runs, and its document has what it promises."""

import pytest

from benchmarks import observability
from benchmarks.observability import ARMS, KINDS, Added, ObservabilityReport
from runtime.dev_server import DevServer

pytestmark = pytest.mark.full


async def test_every_arm_is_compared(server: DevServer) -> None:
    found = await observability.run(1, 2, server.address)

    assert {arm: {*kinds} for arm, kinds in found.arms.items()} == {arm: {*KINDS} for arm in ARMS if arm != "off"}
    assert len(found.goals) == found.table().row_count
    assert ObservabilityReport.model_validate(found.model_dump(mode="json", by_alias=True)) == found


def test_the_interval_is_that_of_the_sign_test() -> None:
    added = Added.of([(1.0, 1.0 + share / 100) for share in range(1, 13)])

    assert (added.median, added.low, added.high) == (0.065, 0.03, 0.1)
    assert added.share == 0.04  # the fourth of the twelve, with a neighbour's noise in those above
