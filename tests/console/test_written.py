"""A hand-written plan with its revisions, as a user writes, starts and reads it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from client.problem import Problem
from client.start import build_task
from runtime.dev_server import DevServer
from tests.harness import DONE, plan, step
from tests.processes import Processes
from workflows.account.task import Task
from workflows.plans.proposal import Answer

QUEUE = "written"
MISSING = {"id": "first", "kind": "cancel_booking", "args": {"booking": 999_999}}
SUM = {"id": "then", "kind": "calculate", "args": {"expression": "1 + 1"}}


@pytest.fixture(scope="module")
def desk(server: DevServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    """A worker with the desk."""
    processes = Processes(server.address, tmp_path_factory.mktemp("written"))
    with processes.worker("--desk", "--queue", QUEUE, "--planner", "offline"):
        yield processes


def starter(processes: Processes, *words: str) -> tuple[int, str, str]:
    """Run a command of the console: exit code, stdout, stderr."""
    done = processes.starter(*words, "--queue", QUEUE)
    return done.returncode, done.stdout, done.stderr


def task_of(folder: Path, written: object, **options: Any) -> Task:
    """The task that a plan file asks for."""
    file = folder / "plan.json"
    file.write_text(json.dumps(written))
    return build_task(plan=file, **options)


STEP = {"id": "a", "kind": "x"}
OTHER = {"id": "b", "kind": "x"}


@pytest.mark.parametrize(
    "written",
    [
        {"steps": [STEP], "revisions": [{"steps": [OTHER]}, {"type": "answer", "result": "done"}]},
        [{"type": "steps", "steps": [STEP]}, {"type": "steps", "steps": [OTHER]}, {"type": "answer", "result": "done"}],
    ],
    ids=["plan file", "script"],
)
def test_a_plan_file_carries_what_comes_next(tmp_path: Path, written: object) -> None:
    """Beside its steps, or as the list of proposals that a scripted planner takes."""
    task = task_of(tmp_path, written)

    assert task.plan == (step("a", "x"),)
    assert task.revisions == (plan(step("b", "x")), Answer(result="done"))


@pytest.mark.parametrize(
    ("given", "limits"),
    [({}, (3, None)), ({"replans": 1}, (1, None))],
    ids=["as many as are written", "as many as the user says"],
)
def test_all_that_is_written_may_be_used(tmp_path: Path, given: dict[str, int], limits: tuple[int, None]) -> None:
    """Three plans for rejections are three replans, although nobody gives a number."""
    later = [{"steps": [OTHER]}] * 3 + [DONE.model_dump(mode="json")]
    task = task_of(tmp_path, {"steps": [STEP], "revisions": later}, limits=given)

    assert (task.limits.replans, task.limits.fruitless) == limits


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ({"steps": [STEP], "revisions": [{"result": "done"}]}, "'revisions.0' does not say which of its forms it has"),
        ({"steps": [STEP], "revisions": [{"steps": [{"id": "b"}]}]}, "'revisions.0.steps.steps.0.kind' is missing"),
        ([{"type": "answer", "result": "done"}], "is not usable: the file must be "),
        ([], "is not usable: the file must be "),
    ],
)
def test_what_is_no_revision_is_a_sentence(tmp_path: Path, written: object, says: str) -> None:
    """Where it is, and what to write."""
    with pytest.raises(Problem) as wrong:
        task_of(tmp_path, written)

    assert says in wrong.value.reason
    assert (wrong.value.code, '"revisions"' in wrong.value.remedy) == ("bad_plan", True)


def test_the_next_plan_of_the_file_follows_a_rejection(desk: Processes) -> None:
    """The record, the live view and `explain` say that a person wrote both; no planner was asked for a plan."""
    file = desk.folder / "next.json"
    file.write_text(json.dumps({"steps": [MISSING], "revisions": [{"steps": [SUM]}]}))
    _, followed, _ = starter(desk, "--plan", str(file), "--id", "written", "--again")
    _, said, _ = starter(desk, "show", "written", "--json")
    _, why, _ = starter(desk, "explain", "written")
    outcome = json.loads(said)

    assert (outcome["status"], outcome["planner"], outcome["replans"]) == ("completed", "by hand", 1)
    assert [one["planner"] for one in outcome["revisions"]] == ["by hand", "by hand"]
    assert "written  planned by hand" in followed
    assert "The next plan was written by hand: plan 2 " in " ".join(why.split())
    assert "1 planning call" not in why


@pytest.mark.full
def test_a_person_may_write_the_end(desk: Processes) -> None:
    """`explain` has the reason, though no planner was asked."""
    file = desk.folder / "end.json"
    end = {"type": "give_up", "reason": "Then not."}
    file.write_text(json.dumps([{"steps": [MISSING]}, end]))
    code, _, _ = starter(desk, "--plan", str(file), "--id", "ended", "--again")
    _, why, _ = starter(desk, "explain", "ended")

    assert (code, "The task ended as failed: Then not." in " ".join(why.split())) == (1, True)


def test_a_dry_run_checks_and_keeps_the_revisions(desk: Processes) -> None:
    """Its JSON works for `--plan`, with all of them; a mistake in one of them is told."""
    file, shown = desk.folder / "dry.json", desk.folder / "shown.json"
    file.write_text(json.dumps({"steps": [MISSING], "revisions": [{"steps": [SUM]}]}))
    code, said, _ = starter(desk, "--plan", str(file), "--dry-run")
    _, shown_json, _ = starter(desk, "--plan", str(file), "--dry-run", "--json")
    shown.write_text(shown_json)
    file.write_text(json.dumps([{"steps": [MISSING]}, {"steps": [{"id": "then", "kind": "calcluate"}]}]))
    wrong, refused, _ = starter(desk, "--plan", str(file), "--dry-run")

    assert (code, "1 revision for what comes next" in said) == (0, True)
    assert build_task(plan=shown).revisions[0].type == "steps"
    assert (wrong, "revisions.0: step 'then': there is no kind 'calcluate'" in refused) == (2, True)
