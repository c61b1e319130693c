"""Each benchmark with tiny numbers: it runs, measures what it says, and its document has what it promises."""

import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import BaseModel
from temporalio.client import Client

from activities.storage.store import open_store, sqlite_url
from benchmarks import crowd, gateway, growth, ledger, mcp, observability, steps, turns
from benchmarks.admission import AdmissionReport
from benchmarks.faults import ENDS, KINDS, FaultsCost
from benchmarks.faults_worker import LINE, PLUGINS, UNKEYED
from benchmarks.incident import IncidentReport
from benchmarks.ledger import ALONE, CALL, ONCE, REPLAY
from benchmarks.mcp import ACTIVITY, BARE, CONNECTION, NONE, REPLAN, SDK
from benchmarks.mcp_worker import HTTP, PIPES
from benchmarks.report import Figure
from benchmarks.rounds import Sizes
from benchmarks.turns import COMMON, PARTS, Dialogue
from evals.fakes.postgresql import find_postgresql
from runtime.dev_server import DevServer
from tests.processes import ROOT

pytestmark = pytest.mark.full

LOADED = "schema machine load_before load_after"
CALLS, STEPS, TURNS = 6, 100, 5
DIALOGUE = Dialogue(
    turns=(('{"turn":1}', '{"n":1}', '{"n":2}'), ('{"turn":2}', '{"n":3}'), ('{"turn":3}',)),
    results=('{"said":1}', "11", "12", '{"said":2}', "13", '{"said":3}'),
)
"""A turn with two calls, one with one, and the answer."""
PAYLOADS = ("arguments of the model", "result of the model", "arguments of the tool", "result of the tool")


def keys(report: BaseModel) -> set[str]:
    """The keys of the document of a report, which can be read back."""
    document = report.model_dump(mode="json", by_alias=True)
    assert type(report).model_validate(document) == report
    return {*document}


def run(benchmark: str, folder: Path, *options: str) -> tuple[str, str]:
    """What a benchmark prints as a command, and the document that it writes."""
    file = folder / "figures.json"
    words = [sys.executable, "-m", f"benchmarks.{benchmark}", *options, "--json", str(file)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout, file.read_text()


def check_picture(file: Path) -> None:
    """It fits the documentation."""
    assert 0 < file.stat().st_size < 150_000


async def test_a_crowd_is_measured_with_each_number_of_workers(server: DevServer) -> None:
    """On a server that was there already, into which nobody looks."""
    report = await crowd.run(10, (1, 2), server.address, None, steps=1)

    assert [one.workers for one in report.crowds] == [1, 2]
    assert report.table().row_count == len(report.goals) == 2
    assert all(one.p99_s >= one.median_s > 0 and one.server_cpu_ms is None for one in report.crowds)
    assert keys(report) == {*LOADED.split(), "tasks", "steps", "together", "crowds", "goals"}


async def test_every_step_of_a_long_task_finishes_once_and_none_again(server: DevServer, tmp_path: Path) -> None:
    """Also of the second task, whose worker is killed once. Each hundred steps has its time and memory."""
    report = await growth.run(STEPS, 1, server.address)
    audits = [report.audit, report.audit_killed]

    assert [(audit.finished, audit.finished_twice, audit.ran_again) for audit in audits if audit] == [(STEPS, 0, 0)] * 2
    assert [(one.steps, one.seconds > 0, one.worker_mb > 0) for one in report.hundreds] == [(100, True, True)]
    assert {*LOADED.split(), "steps", "hundreds", "audit", "goals"} <= keys(report)
    pytest.importorskip("matplotlib")
    from benchmarks.picture import draw_growth

    draw_growth(report, tmp_path / "growth.png")
    check_picture(tmp_path / "growth.png")


async def test_the_ledger_is_measured_as_a_worker_has_it(tmp_path: Path) -> None:
    """Nothing is gained by what a worker would not do: a write-ahead log, and every commit on the disk.

    Calls without a task are measured on each database that is installed, beside the bare function.
    """
    report = await ledger.run(CALLS, tmp_path)
    stores = [ledger.SQLITE, *(["PostgreSQL"] if find_postgresql() else [])]

    assert {arm: bool(figures[CALL]) for arm, figures in report.arms.items()} == {ALONE: True, ONCE: True, REPLAY: True}
    assert report.pragmas == {"journal_mode": "wal", "synchronous": "2"}
    assert [(claim.store, claim.is_async) for claim in report.claims] == [
        (store, is_async) for store in stores for is_async in (False, True)
    ]
    assert all(claim.bare.p50 < claim.claimed.p50 <= claim.claimed.p99 for claim in report.claims)
    assert report.goals[1].limit == ledger.CLAIM_LIMIT
    assert {*LOADED.split(), "calls", "arms", "added_ms", "claims", "goals"} <= keys(report)


async def test_a_measured_effect_happens_as_often_as_it_should(tmp_path: Path) -> None:
    """Once for each call but a replay, and once for what is replayed: the ledger that is measured does its work."""
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


async def test_steps_with_and_without_mcp_servers_are_measured(server: DevServer) -> None:
    report = await mcp.run(mcp.Sizes(short=1, long=2, calls=2, tasks=1), rounds=1, address=server.address)
    of_steps = {f"{transport}_{unit}" for transport in (NONE, PIPES, HTTP) for unit in ("ms", "cpu_ms")}
    of_calls = {f"{transport}_ms" for transport in (PIPES, HTTP)}

    assert {name: {*figures} for name, figures in report.arms.items()} == {
        **dict.fromkeys((BARE, REPLAN), of_steps),
        **dict.fromkeys((SDK, CONNECTION, ACTIVITY), of_calls),
        **{way: {"call_ms"} for way in gateway.TITLES},
    }
    assert report.table().row_count == 13 and all(goal.value is not None for goal in report.goals)
    assert keys(report) == {*LOADED.split(), "rounds", "sizes", "arms", "goals"}


async def test_every_arm_of_observability_is_compared_with_the_first(server: DevServer) -> None:
    found = await observability.run(1, 2, server.address)

    assert {arm: {*kinds} for arm, kinds in found.arms.items()} == {
        arm: {*observability.KINDS} for arm in observability.ARMS if arm != "off"
    }
    assert len(found.goals) == found.table().row_count and keys(found)


async def test_steps_are_measured_on_every_side(server: DevServer, tmp_path: Path) -> None:
    """Only ours has pure steps; an additional sequential step is six events on the bare side, and no more on ours."""
    tiny = Sizes(short=1, long=2, tasks=2, task_steps=1, parallel=2, pairs=1)
    report = await steps.run(tiny, rounds=1, address=server.address)
    missing = {(arm, name) for arm, figures in report.arms.items() for name, figure in figures.items() if not figure}

    assert missing == {
        *((arm, name) for arm in ("bare_default", "bare") for name in ("breaker_cpu_ms", "calculate_ms")),
        *((arm, name) for arm in ("bare", "replan") for name in ("server_cpu_ms", "server_peak_mb")),
    }
    events = {arm: figures["events"] for arm, figures in report.arms.items()}
    assert events == dict.fromkeys(("bare_default", "bare", "replan"), Figure(median=6.0, low=6.0, high=6.0))
    assert keys(report) == {*LOADED.split(), "rounds", "sizes", "arms", "ratios", "goals"}
    assert report.table().row_count == len(steps.ROWS)
    pytest.importorskip("matplotlib")
    from benchmarks.picture import draw_steps

    draw_steps(report, tmp_path / "steps.png")
    check_picture(tmp_path / "steps.png")


async def test_a_bare_turn_is_twelve_events_and_has_nothing_of_ours(
    client: Client, server: DevServer, tmp_path: Path
) -> None:
    """Two activities, each with its workflow task: payloads, what every workflow has, and the SDK's empty header."""
    twin = await turns.twin(client, server.address, tmp_path, DIALOGUE)
    turn = turns.turns_of(twin)[1]
    parts = turns.parts_of(turn)

    assert Dialogue.of(twin) == DIALOGUE, "it is told and answers the same, byte for byte"
    assert (len(turn), parts.total()) == (12, turns.size(turn))
    assert +parts == {PARTS["header"]: 4, **{name: parts[name] for name in (COMMON, *PAYLOADS)}}


async def test_a_turn_of_replan_is_twelve_events_too_with_the_same_payloads(server: DevServer) -> None:
    """A mark that keeps a result readable is a few bytes of it.

    Flat is seen over many turns only, since the first one has no results to tell.
    """
    report = await turns.run(TURNS, address=server.address)
    bare, ours = report.bare.parts, report.replan.parts

    assert (report.replan.turns, report.bare.turns) == (TURNS, TURNS)
    assert (report.replan.fewest, report.replan.most) == (12, 12)
    assert all(0 <= ours[name] - bare[name] < 40 for name in PAYLOADS)
    assert [verdict.met for verdict in report.goals][:2] == [True, True]
    assert report.table().row_count == 4 + len(report.replan.parts)
    assert keys(report) == {"schema", "machine", "replan", "bare", "goals"}


def test_few_tasks_outlast_a_service_that_is_down(tmp_path: Path) -> None:
    """All complete when it is back, and hardly any call was made before."""
    options = ("--tasks", "4", "--seconds", "3", "--trouble", "503", "--workers", "1")
    _, document = run("admission", tmp_path, *options)
    [row] = AdmissionReport.model_validate_json(document).rows

    assert (row.tasks, row.completed) == (4, 4) and 0 < row.calls_in_trouble <= 16


def test_few_calls_are_measured_with_and_without_the_line(tmp_path: Path) -> None:
    """What the line adds is against the worker without it; what it comes to, no test says."""
    _, document = run("faults", tmp_path, "--rounds", "1", "--calls", "3")
    found = FaultsCost.model_validate_json(document)

    for sides, arms in ((found.cpu_ms, {*PLUGINS}), (found.added_cpu_ms, {LINE, UNKEYED})):
        assert set(sides) == arms and all(set(figures) == set(KINDS) for figures in sides.values())
    assert all(set(found.alone_us[arm]) == set(ENDS) for arm in (LINE, UNKEYED))


def test_few_tasks_wait_for_an_incident_and_go_on(tmp_path: Path) -> None:
    said, document = run("incident", tmp_path, "--tasks", "6", "--workers", "1")
    found = IncidentReport.model_validate_json(document)

    assert found.tasks == 6 and [one.met for one in found.goals] == [True, True]
    assert found.ended.bytes > found.waiting.bytes > 1000
    assert "from the answer until all are completed" in said
