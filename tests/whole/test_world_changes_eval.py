"""`python -m evals.world_changes`: files are checked, the world plays them, and scenarios hold or fail as they must."""

import subprocess
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from evals.tape.world import World
from evals.world_changes.families import FAMILIES
from evals.world_changes.mutations import MUTATIONS
from evals.world_changes.report import interval
from evals.world_changes.scenario import BadScenario, Scenario, ScenarioPlot, read, scenarios
from evals.world_changes.trial import Planned, batches
from tests.workflows.test_rooms import ROOT

PLAIN = """
[[scenario]]
name = "slot-taken"
title = "14:00 is taken"
text = "book 14:00 for ada"
records = { "14:00" = { holder = "" }, "14:30" = { holder = "" } }
events = [{ tool = "book_slot", change = { "14:00" = { holder = "ben" } } }]
plan = [{ id = "book", kind = "book_slot", args = { at = "14:00", name = "ada" } }]
ending = { status = ["failed"] }
"""
BROKEN = [
    ("front_desk", "scenario = [", "Invalid"),
    ("front_desk", "other = 1", "'other' is no [[scenario]]"),
    ("front_desk", PLAIN.replace("title", "tittle"), "slot-taken: title: Field required"),
    ("front_desk", PLAIN.replace('kind = "book_slot"', 'kind = "book"'), "'book' is no tool of the family"),
    ("front_desk", PLAIN.replace("at = ", "hour = "), "step 'book' has ['hour', 'name'], and book_slot takes"),
    ("front_desk", PLAIN.replace('"failed"', '"done"'), "slot-taken: ending.status.0: Input should be"),
    ("front_desk", PLAIN.replace('change = { "14:00" = { holder = "ben" } }', "number = 2"), "nothing happens"),
    ("back_office", PLAIN, "'back_office' is none of the families front_desk, files"),
    ("front_desk", PLAIN.replace("ending", 'breaks = ["no-luck"]\nending'), "breaks.0: Input should be 'no-guard'"),
]


def plain(folder: Path) -> Scenario:
    file = folder / "front_desk.toml"
    file.write_text(PLAIN)
    return next(read(file))


def test_there_are_thirty_scenarios_and_each_mutation_has_some() -> None:
    found = scenarios()
    of_family = Counter(scenario.family for scenario in found)

    assert len(found) >= 30 and of_family.keys() == FAMILIES.keys() and min(of_family.values()) >= 5
    assert {name for scenario in found for name in scenario.breaks} == MUTATIONS.keys()
    assert {scenario.family for scenario in found if "no-guard" in scenario.breaks} == FAMILIES.keys()


@pytest.mark.parametrize(("family", "words", "message"), BROKEN)
def test_a_file_with_a_mistake_is_refused_with_its_place(tmp_path: Path, family: str, words: str, message: str) -> None:
    file = tmp_path / f"{family}.toml"
    file.write_text(words)

    with pytest.raises(BadScenario) as refused:
        scenarios(tmp_path)
    assert str(refused.value).startswith(str(file)) and message in str(refused.value)


def test_a_change_comes_before_the_call_that_meets_it(tmp_path: Path) -> None:
    """Another actor acts in the transaction of the call, so that the journal says what state the call met."""
    plot = ScenarioPlot([plain(tmp_path)])
    task, args = "slot-taken--by-hand--0", {"at": "14:00", "name": "ada"}
    with closing(World(tmp_path / "world.db", plot)) as world:
        statuses = [
            answer.reply.status
            for tool, sent in (("list_slots", {}), ("book_slot", args), ("book_slot", {**args, "at": "14:30"}))
            if (answer := world.call(task, tool, sent, 0.0, key=str(sent))).reply
        ]

        assert statuses == [200, 409, 200]
        assert [entry.version for entry in world.entries()] == [0, 1, 1]
        assert [made.args["at"] for made in world.state(task).made] == ["14:30"]


def test_a_run_that_replaces_its_worker_is_alone() -> None:
    """Else the deploy would stop the calls of other runs."""
    planned = [Planned(scenario, "by-hand") for scenario in scenarios()]
    sizes = [(len(batch), any(run.scenario.deploys for run in batch)) for batch in batches(planned)]

    assert sum(size for size, _ in sizes) == len(planned)
    assert {size for size, deploys in sizes if deploys} == {1}


def test_the_interval_of_a_share() -> None:
    assert interval(8, 10) == pytest.approx((0.490, 0.943), abs=0.001)
    assert interval(10, 10) == pytest.approx((0.722, 1.0), abs=0.001)


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    words = ["-m", "evals.world_changes", "slot-taken", "--rows", str(folder / "rows.jsonl"), *options]
    return subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.full
@pytest.mark.timeout(600)
def test_a_scenario_holds_and_fails_without_each_part_that_it_needs(tmp_path: Path) -> None:
    held = run(tmp_path, "--planner", "by-hand", "--planner", "stubborn")
    table = run(tmp_path, "--planner", "by-hand", "--planner", "stubborn", "--table")
    mutated = run(tmp_path, "--mutations")

    assert held.returncode == table.returncode == mutated.returncode == 0, held.stderr + mutated.stderr
    assert held.stdout == table.stdout
    assert "| by-hand | 1 of 1 |" in held.stdout and "| slot-taken | 2 of 2 | completed | 4 | 1 | none |" in held.stdout
    assert mutated.stdout.count("| 1 of 1 |") == 3
    assert len((tmp_path / "rows.jsonl").read_text().splitlines()) == 5
