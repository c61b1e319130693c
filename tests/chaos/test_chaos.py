"""A small run of the chaos harness, the same for everybody: every promise is kept while things are killed."""

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from activities.boundary.failpoints import Failpoint
from evals.chaos.outages import restored_store, server_stop
from evals.chaos.placed import AFTER_ANSWER, Cell, Kill, PlacedKills, placed_kills
from evals.chaos.races import HARMFUL, OLDER, OVERDUE, TWICE, frozen, harmful, late, lives, older, overdue, twice
from evals.chaos.stage import Stage, Store, staged
from tests.processes import ROOT

SEED = 3
HITS = {
    ("transfer", Failpoint.BEFORE_COMMIT),
    ("transfer", Failpoint.AFTER_COMMIT),
    ("pay", Failpoint.BEFORE_COMMIT),
    ("pay_once", Failpoint.BEFORE_COMMIT),
    ("pay_blindly", Failpoint.AFTER_CLAIM),
    ("set_limit", AFTER_ANSWER),
}
"""One for each effect; `python -m evals.chaos` has all."""


@pytest.fixture(scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    folder = tmp_path_factory.mktemp("chaos")
    troubles = {name: met for hit in chosen() for name, met in hit.job.troubles.items()}
    async with staged(folder, Store.SQLITE, troubles) as running:
        yield running


def chosen() -> list[Kill]:
    return [hit for hit in placed_kills(SEED, times=1) if (hit.kind, hit.point) in HITS]


@pytest.mark.full
@pytest.mark.parametrize(("tasks", "kills"), [(6, 2), (16, 4)])
@pytest.mark.timeout(240)
def test_nothing_is_done_twice_or_lost_while_things_are_killed(tmp_path: Path, tasks: int, kills: int) -> None:
    command = [sys.executable, "-m", "evals.chaos", "--tasks", str(tasks), "--seed", str(SEED), "--no-placed"]
    report_to = tmp_path / "report.json"
    disruptions = ["--busy", "2", "--kills", str(kills), "--restarts", "1", "--drops", "1", "--json", str(report_to)]
    done = subprocess.run([*command, *disruptions], cwd=ROOT, capture_output=True, text=True, check=False, timeout=220)
    assert report_to.exists(), done.stdout + done.stderr
    report: dict[str, Any] = json.loads(report_to.read_text())

    assert (done.returncode, report["broken"]) == (0, []), done.stdout + done.stderr
    assert sum(report["account"]["tasks"].values()) == tasks and report["workers"]["killed"] >= kills


@pytest.mark.full
@pytest.mark.timeout(240)
async def test_a_worker_may_die_anywhere(stage: Stage) -> None:
    cells = await PlacedKills(stage, lambda: None).run(chosen(), chains=2)

    assert [str(cell) for cell in cells if not cell.is_right] == []
    assert len(cells) == len(HITS)


async def test_a_task_has_effects_once_in_all_its_lives(stage: Stage) -> None:
    cells = await lives(stage, SEED, lambda: None, ["transfer", "pay_strictly"])

    assert [str(cell) for cell in cells if not cell.is_right] == []
    assert len(cells) == 10


RACES: Mapping[str, tuple[Callable[..., Awaitable[Cell]], Sequence[str]]] = {
    **{f"two workers with one activity make one effect of {kind}": (twice, [kind]) for kind in TWICE},
    # Frozen after its claim, until another worker has made the call: it looks at the clock before it sends.
    "a call that wakes up late is not sent": (late, [Failpoint.AFTER_CLAIM]),
    # It ends late, or too late and a person is asked: nothing is sent a second time meanwhile.
    **{f"a thread that outlives its timeout makes one effect of {kind}": (overdue, [kind]) for kind in OVERDUE},
    # It exits, stops its loop or writes twice: the effect is found, or a person is asked, and the worker serves on.
    **{f"a harmful tool makes one effect: {kind}": (harmful, [kind]) for kind in HARMFUL},
    # What the history has as done stays done, and the task is named because no ledger has its row.
    "a store from an older backup repeats nothing": (restored_store, []),
    # It lacks the tool, and leaves the check of the plan and the call to the newer one.
    **{f"a task that an older worker begins makes its effect: {how}": (older, [how]) for how in OLDER},
}


@pytest.mark.full
@pytest.mark.timeout(120)
@pytest.mark.parametrize(("played", "given"), RACES.values(), ids=RACES)
async def test_a_race_makes_one_effect(
    stage: Stage, played: Callable[..., Awaitable[Cell]], given: Sequence[str]
) -> None:
    cell = await played(stage, SEED, *given)

    assert cell.is_right, str(cell)


@pytest.mark.full
@pytest.mark.timeout(120)
async def test_a_call_stopped_between_check_and_send_is_the_limit(stage: Stage) -> None:
    """Nothing can hold what is under way: the task ends as completed, and the effect may be there twice."""
    cell = await frozen(stage, SEED)

    assert cell.is_apart and cell.is_right, str(cell)


@pytest.mark.full
@pytest.mark.timeout(120)
async def test_a_stopped_server_sends_nobody_to_a_person(stage: Stage) -> None:
    """SIGSTOP for longer than heartbeats are waited for: what the ledger knows was applied is applied, once."""
    cell = await server_stop(stage, SEED)

    assert cell.is_right and len(cell.ended) == 5, str(cell)
