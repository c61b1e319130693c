"""What users rely on, and what crosses a border, does not change unseen: docs/compatibility.md."""

import json
from functools import cache

import pytest

from client import events
from client.events import TaskEvent
from client.follow import Silent
from client.remedy import as_command
from client.snapshot import Attempt
from client.workflow_task import Cause, FailingTask
from tests import golden, promises, surface
from tests.console.outcomes import BEGAN, outcome, step
from tests.manifest import MANIFEST, covered, manifest, written
from tests.processes import ROOT
from tests.promises import Surface
from tests.record import FOLDER
from tests.surface import DOORS
from workflows.account.records import Revision
from workflows.inquiries import Capacity

REMEDY = (
    "Bring it back, or tell of its end first: docs/compatibility.md#deprecation. What no release had:"
    " `python -m tests.golden --breaking`"
)


@cache
def now(door: str) -> Surface:
    return DOORS[door].made()


@pytest.mark.parametrize("door", DOORS)
def test_nothing_public_is_removed_or_narrowed_and_what_is_new_is_written_down(door: str) -> None:
    """A release keeps what an earlier one had; an addition shows in review, and is promised from then on."""
    file = surface.file_of(door)
    saved = promises.read(file)
    broken = [surface.sentence(door, what) for what in promises.broken(saved, now(door))]
    added = ", ".join(promises.added(saved, now(door)))

    assert not broken, "\n".join([*broken, REMEDY])
    assert promises.text(now(door)) == file.read_text(encoding="utf-8"), (
        f"docs/surface/{door}.json is not up to date ({added or 'something changed'}): run `python -m tests.golden`"
    )


def test_every_door_has_a_file_and_nothing_else_is_there() -> None:
    assert {file.stem for file in surface.FOLDER.glob("*.json")} == set(DOORS)


FAILING = FailingTask(
    cause=Cause.LIMIT, message="", attempt=1, since=BEGAN, workflow_id="a", task_id="a", queue="replan"
)
EVENTS: list[TaskEvent] = [
    events.Began(outcome()),
    events.PlanAccepted(Revision(number=1)),
    events.StepChanged(step(), 1),
    events.Thinking("plan:1", 9),
    events.RequestRetried("plan:1", Attempt(2, 5, "timeout")),
    events.ModelSays("plan:1", "1f", 3, "is"),
    events.Working("copy", 3, 10, "copying"),
    events.Silence(Silent.WORKER, answers=False),
    events.Silence(Silent.SERVER, answers=True),
    events.WorkflowTaskFails(FAILING),
    events.WorkerBusy(Capacity(calls=1, slots=1, outlived=0, threads=1)),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_an_event_has_the_keys_that_are_promised(event: TaskEvent) -> None:
    made = events.event_fields(event, "replan", as_command)
    assert made is not None
    name, fields = made

    assert set(now("documents")[f"--jsonl: {name}"]) == {"schema", "event", *fields}


SMALLER = {
    "python": ("replan.Client.start", "key"),
    "workflow": ("Outcome", "status"),
    "documents": ("start, show, call --json: the document", "receipt"),
    "http": ("POST /tasks", "header Idempotency-Key"),
    "metrics": ("replan_retries", "label tool"),
    "commands": ("worker.py", "--metrics"),
    "files": ("settings file: Budget", "usd"),
    "codes": ("faults", "conflict"),
}


@pytest.mark.parametrize("door", DOORS)
def test_a_removal_is_found_at_every_door(door: str) -> None:
    owner, name = SMALLER[door]
    without = {**now(door), owner: {one: what for one, what in now(door)[owner].items() if one != name}}
    [broken] = [surface.sentence(door, what) for what in promises.broken(promises.read(surface.file_of(door)), without)]

    assert broken == f"docs/surface/{door}.json, {DOORS[door].page}: `{name}` of `{owner}` was removed."
    assert all((ROOT / page).is_file() for page in DOORS[door].page.split(", "))


def test_what_users_reach_is_there() -> None:
    """One thing of each kind, of those that the walk over the source could lose."""
    python, http, commands = now("python"), now("http"), now("commands")

    assert python["replan.Client.start"]["id"] == {"takes": ["str", "None"], "default": "None"}
    assert python["FaultRecord"]["code"] == {"gives": ["Code"]} and "conflict" in python["replan.faults.Code"]
    assert python["options of @tool.*"]["retry"]["takes"] == ["'standard'", "'patient'", "'once'"]
    assert "timeout" in python["options of @tool.pure"] and "undo" not in python["options of @tool.pure"]
    assert python["replan.Refused"]["a kind of"] == {"is": "ToolError"}
    assert "remains" not in python["replan.Task"] and "text" in python["replan.Task"]
    assert http["NewTask"]["text"]["limits"] == {"minLength": 1, "maxLength": 16_000}
    assert {"REPLAN_STORE", "REPLAN_STORE_FILE", "TEMPORAL_ADDRESS"} <= set(commands["environment variables"])
    assert commands["starter.py start"]["--tokens"]["limits"] == {"minimum": 1}


@pytest.mark.parametrize(("name", "text"), golden.documents().items())
def test_what_crosses_a_border_is_as_it_was_saved(name: str, text: str) -> None:
    assert text == golden.saved(name), f"{name} has changed: run `python -m tests.golden`, then look at the diff"


def test_nothing_is_saved_that_is_no_model() -> None:
    assert {file.stem for file in golden.FOLDER.glob("*.json")} == set(golden.documents())


async def test_the_manifest_is_that_of_the_saved_histories() -> None:
    assert MANIFEST.read_text() == written(await manifest(FOLDER))


def test_each_history_shows_more_than_that_it_exists() -> None:
    for name, lines in json.loads(MANIFEST.read_text()).items():
        assert any(line.startswith("event: ") for line in lines), name
        assert any(line.startswith("end: ") for line in lines), name


def test_what_is_shown_no_more_is_named() -> None:
    before = {"a": ["x", "y"], "gone": ["x", "z"]}

    assert dict(covered(before, {"a": ["x"], "b": ["y"]})) == {"a: y": True, "gone: z": False}
    assert not dict(covered(before, {"a": ["x", "y", "more"], "b": ["z"]}))
