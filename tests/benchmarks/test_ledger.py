"""`benchmarks.ledger` with few calls: it runs, measures the real ledger, and its document has what it promises."""

from pathlib import Path

import pytest

from activities.storage.store import open_store, sqlite_url
from benchmarks import ledger
from benchmarks.ledger import ALONE, CALL, GOAL, ONCE, REPLAY, LedgerReport
from benchmarks.report import Figure
from evals.fakes.postgresql import find_postgresql

pytestmark = pytest.mark.full

CALLS = 6


@pytest.fixture(scope="module")
async def report(tmp_path_factory: pytest.TempPathFactory) -> LedgerReport:
    return await ledger.run(CALLS, tmp_path_factory.mktemp("ledger"))


async def test_each_is_measured(report: LedgerReport) -> None:
    assert {arm: bool(figures[CALL]) for arm, figures in report.arms.items()} == {ALONE: True, ONCE: True, REPLAY: True}


async def test_the_database_is_as_durable_as_the_store(report: LedgerReport) -> None:
    """Nothing is gained by what a worker would not do: a write-ahead log, and every commit on the disk."""
    assert report.pragmas == {"journal_mode": "wal", "synchronous": "2"}


async def test_an_effect_happens_as_often_as_it_should(tmp_path: Path) -> None:
    engine = await open_store(sqlite_url(tmp_path))
    async with engine.begin() as tx:
        await tx.run_sync(ledger.TRANSFERS.metadata.create_all)
    samples = await ledger.measure(engine, CALLS, lambda: None)
    async with engine.begin() as tx:
        effects = (await tx.exec_driver_sql("SELECT count(*) FROM transfers")).scalar_one()
        rows = (await tx.exec_driver_sql("SELECT count(*) FROM replan_ledger")).scalar_one()
    await engine.dispose()

    assert {len(one) for one in samples.values()} == {CALLS}
    assert (effects, rows) == (2 * (CALLS + 1) + 1, (CALLS + 1) + 1)


async def test_the_document_has_the_promised_keys(report: LedgerReport) -> None:
    document = report.model_dump(mode="json", by_alias=True)

    assert {"schema", "machine", "load_before", "load_after", "calls", "arms", "added_ms", "claims", "goals"} <= set(
        document
    )
    assert LedgerReport.model_validate(document) == report


async def test_calls_without_a_task_are_measured(report: LedgerReport) -> None:
    stores = [ledger.SQLITE, *(["PostgreSQL"] if find_postgresql() else [])]

    assert [(claim.store, claim.is_async) for claim in report.claims] == [
        (store, is_async) for store in stores for is_async in (False, True)
    ]
    assert all(claim.bare.p50 < claim.claimed.p50 <= claim.claimed.p99 for claim in report.claims)
    assert report.goals[1].limit == ledger.CLAIM_LIMIT


@pytest.mark.parametrize(("values", "p50", "p99"), [([5.0], 5.0, 5.0), ([*map(float, range(1, 201))], 100.5, 198.0)])
def test_percentiles(values: list[float], p50: float, p99: float) -> None:
    assert ledger.Percentiles.of(values) == ledger.Percentiles(p50=p50, p99=p99)


@pytest.mark.parametrize(("once", "met"), [(4.4, True), (4.41, False)])
def test_the_goal_is_two_milliseconds_more(once: float, met: bool) -> None:
    figures = {ALONE: {CALL: Figure.of([2.4])}, ONCE: {CALL: Figure.of([once])}}

    assert GOAL.judged(figures).met is met
