"""Forms that a tools file brings: the offline planner plans with them, on the planner alone and on a real worker."""

import re
from pathlib import Path

import pytest
from pydantic import JsonValue

from activities.offline.planner import OfflinePlanner
from activities.toolbox.builtin import TOOLS
from activities.toolbox.registry import Registry, load
from runtime.dev_server import DevServer
from tests.activities.situations import TODAY, asked, gives_up, record, step
from tests.processes import ROOT, Processes
from workflows.account.records import StepStatus
from workflows.plans.proposal import Answer, GiveUp, NewSteps

PAGE = (ROOT / "docs" / "offline-planner.md").read_text(encoding="utf-8")
EXAMPLE = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)[0]
ROOMS = '''
from datetime import date, time

from pydantic import BaseModel, ConfigDict

from replan import tool
from replan.forms import Form, PlannedCall, Pronoun, Referent

ROOM = Referent("a room that was found before", "Write its number instead, as in clean room 12")


class Wanted(BaseModel):
    model_config = ConfigDict(strict=True)
    people: int
    day: date | None = None
    at: time | None = None
    whom: str = "me"


class Room(BaseModel):
    number: int


def clean(found, today):
    number = Pronoun(ROOM, "number") if found["number"] is None else int(found["number"])
    return (PlannedCall("clean_room", "clean", {"number": number}, "clean"),)


@tool.read(
    forms=[
        Form(
            "find a room for NUMBER people [on DATE] [at TIME] [named NAME]",
            r"search for a room for (?P<people>[\\w-]+) people(?: on (?P<day>[\\w ]+?))?(?: at (?P<at>[\\w: ]+?))?"
            r"(?: named (?P<whom>.+))?",
            things={ROOM: ""},
        )
    ]
)
async def find_room(args: Wanted) -> Room:
    """Find a room."""
    return Room(number=args.people)


@tool.idempotent(forms=[Form("clean room NUMBER", r"clean (?:it|room (?P<number>\\d+))", read=clean)])
async def clean_room(args: Room) -> Room:
    """Clean a room."""
    return args
'''


@pytest.fixture
def rooms(tmp_path: Path) -> Registry:
    """The kinds of a worker with a tools file of its own."""
    (file := tmp_path / "rooms.py").write_text(ROOMS)
    return Registry(load(file), builtin=TOOLS)


@pytest.mark.parametrize(
    ("text", "args"),
    [
        ("Search for a room for 12 people", {"people": 12}),
        ("search for a room for 2 people on Monday at 2 pm named 'A, B'",
         {"people": 2, "day": "2025-11-24", "at": "14:00", "whom": "A, B"}),
        ("search for a room for 2 people on today named Ada", {"people": 2, "day": TODAY, "whom": "Ada"}),
    ],
)  # fmt: skip
async def test_groups_are_arguments_of_their_types(rooms: Registry, text: str, args: dict[str, JsonValue]) -> None:
    """A number, a day, a time and a name; a tool's own form comes before `search for WORDS`."""
    plan = await OfflinePlanner().propose(asked(text), rooms)

    assert isinstance(plan, NewSteps), plan
    assert [(one.id, one.kind, one.args) for one in plan.steps] == [("find_room", "find_room", args)]
    assert rooms["find_room"].parse(plan.steps[0].args)


async def test_a_group_of_another_type_is_not_guessed(rooms: Registry) -> None:
    """The next form is tried, here the search for words."""
    plan = await OfflinePlanner().propose(asked("search for a room for many people"), rooms)

    assert isinstance(plan, NewSteps) and [one.kind for one in plan.steps] == ["search"]


async def test_a_group_with_words_that_may_be_another_request_is_not_guessed(rooms: Registry) -> None:
    """The form is named as the nearest."""
    reason = await OfflinePlanner().propose(asked("search for a room for 2 people named Ada and Ben"), rooms)

    assert isinstance(reason, GiveUp)
    assert "the nearest form is: find a room for NUMBER people" in reason.reason
    assert "need quotation marks" in reason.reason


async def test_it_stands_for_a_thing_of_the_file(rooms: Registry) -> None:
    """A pronoun is a reference to the result that contains the thing."""
    plan = await OfflinePlanner().propose(asked("search for a room for 3 people, then clean it"), rooms)

    assert isinstance(plan, NewSteps)
    assert plan.steps[1].args == {"number": {"$from": "find_room", "path": "number"}}
    alone = await OfflinePlanner().propose(asked("clean it"), rooms)
    assert "it must be a room that was found before. Write its number instead" in alone.model_dump_json()


async def test_a_worker_without_the_tool_has_no_such_form() -> None:
    """Forms come and go with their tools."""
    assert "is not understood" in await gives_up(asked("clean room 12"))


async def test_the_tool_writes_the_sentence_about_its_result(tmp_path: Path) -> None:
    """A result that does not fit the tool, as of an earlier version of it, is listed by its fields."""
    (file := tmp_path / "feet.py").write_text(EXAMPLE)
    kinds = Registry(load(file), builtin=TOOLS)
    results: list[JsonValue] = [{"feet": 3.28}, {"yards": 1}]
    done = [record(step(f"s{n}", "to_feet", {}), StepStatus.COMPLETED, result=one) for n, one in enumerate(results)]
    answer = await OfflinePlanner().propose(asked("convert 1 m to feet", turn=2, records=done), kinds)

    assert isinstance(answer, Answer)
    assert str(answer.result).splitlines() == ["That is 3.3 feet.", "s1: yards 1"]


def test_a_worker_with_tools_of_its_own_serves_these_and_the_built_in_ones(server: DevServer, tmp_path: Path) -> None:
    """The page's file is planned with and answered, and the desk's tools are served with `--desk` only."""
    (file := tmp_path / "feet.py").write_text(EXAMPLE)
    place, queue = Processes(server.address, tmp_path), ("--queue", tmp_path.name)
    with place.worker("--tools", str(file), *queue):
        done = place.starter("--task", "convert 100 m to feet, then calculate 2 * it", *queue)
        refused = place.starter("call", "purchase", '{"sku": "A-17", "at_most": "30"}', *queue)
    checked, desk = place.asked("--check", "--tools", str(file)), place.asked("--check", "--desk", "--tools", str(file))

    assert done.returncode == 0 and "That is 328.1 feet." in done.stdout and "= 656." in done.stdout, done.stdout
    assert (refused.returncode, "there is no kind 'purchase'" in refused.stderr + refused.stdout) == (2, True)
    assert ("purchase" in checked.stdout, "calculate" in checked.stdout, "purchase" in desk.stdout) == (
        False,
        True,
        True,
    )
