"""The verbs of the offline planner, kinds called by name, what `it` and `them` are, and the page that says so."""

import re
from pathlib import Path

import pytest
from pydantic import JsonValue

from activities.offline.planner import OfflinePlanner
from activities.offline.verbs import VERBS, verbs_of
from activities.planning.checks import find_mistakes
from activities.toolbox import builtin
from activities.toolbox.registry import Registry, load
from runtime.dev_server import DevServer
from tests import documentation
from tests.activities import test_repair
from tests.activities.desk import test_repair_desk
from tests.activities.situations import KINDS, OF_DOCUMENTS, TODAY, asked, gives_up, propose
from tests.processes import ROOT, Processes
from workflows.plans.graph import check_graph
from workflows.plans.proposal import NewSteps, Step

PAGE = (ROOT / "docs" / "offline-planner.md").read_text(encoding="utf-8")
TABLES = documentation.tables(PAGE)
RULES = {
    "An alternative that was offered": test_repair.test_the_nearest_alternative_is_taken,
    "A wider search": test_repair.test_a_wider_query_is_taken,
    "The next that was found": test_repair_desk.test_the_next_that_was_found_is_read,
    "Within the limit again": test_repair_desk.test_what_is_within_the_limit_again_is_bought,
    "A newer version": test_repair_desk.test_a_change_is_made_again_unless_somebody_changed_the_same_field,
    "The declared fallback": test_repair_desk.test_what_was_refused_is_asked_of_the_declared_fallback,
    "None of these": test_repair.test_without_an_alternative_the_planner_gives_up,
}
"""What is done after a rejection, in the order of the page, with the test that shows it."""


async def plan_of(text: str) -> list[Step]:
    """The steps of the first plan, which may be run as they are."""
    proposal = await propose(asked(text))
    assert isinstance(proposal, NewSteps), proposal
    assert (find_mistakes(proposal, KINDS), check_graph(proposal.steps, (), ())) == ([], [])
    return list(proposal.steps)


def ref(step: str, path: str) -> JsonValue:
    return {"$from": step, "path": path}


def test_the_page_has_every_verb_and_every_rule() -> None:
    """How a call is written, and its kind; no sentence or rule that is not there."""
    rows = [
        (spelling, kind.strip("`")) for table in ("Write", "Write to the desk") for spelling, _, kind in TABLES[table]
    ]

    assert sorted(rows) == sorted((verb.spelling, verb.kind) for verb in VERBS)
    assert re.findall(r"^\d\. \*\*(.*)\*\*", PAGE, flags=re.MULTILINE) == list(RULES)
    # without a key nothing is out of reach but what has an object or a list among its arguments
    assert {verb.kind for verb in verbs_of(KINDS)} == set(KINDS)


@pytest.mark.parametrize("row", [*TABLES["Write"], *TABLES["Write to the desk"]], ids=lambda row: row[0])
async def test_each_example_is_understood(row: list[str]) -> None:
    """A person may copy any example, and it calls what the page says."""
    assert row[2].strip("`") in {step.kind for step in await plan_of(row[1])}


@pytest.mark.parametrize(
    ("text", "kind", "args"),
    [
        ("read the document refund-policy.md", "read_document", {"name": "refund-policy.md"}),
        ("read refund-policy.md", "read_document", {"name": "refund-policy.md"}),
        ('open "House Rules"', "read_document", {"name": "House Rules"}),
        ("read document handbook", "read_document", {"name": "handbook"}),
        ("fetch https://a.example/x,y;z?q=1.", "fetch_page", {"url": "https://a.example/x,y;z?q=1"}),
        ("get the page http://a.example", "fetch_page", {"url": "http://a.example"}),
        ('save "one, then two; and 3" to a.txt', "write_file", {"name": "a.txt", "content": "one, then two; and 3"}),
        ("cancel booking 12", "cancel_booking", {"booking": 12}),
        ("cancel my booking #12", "cancel_booking", {"booking": 12}),
        ("list the bookings", "list_bookings", {}),
        ("list my bookings for the auditors", "list_bookings", {"name": "auditors"}),
        ("get the price of A-17", "get_price", {"sku": "A-17"}),
        ("buy 2 of A-17 for at most 25", "purchase", {"sku": "A-17", "quantity": 2, "at_most": "25"}),
        ("purchase A-17 for at most \u20ac24.50", "purchase", {"sku": "A-17", "at_most": "24.50"}),
        ('buy 1 of "Lamp, oak" for at most 9 each', "purchase", {"sku": "Lamp, oak", "quantity": 1, "at_most": "9"}),
        ("refund order 7", "refund", {"order": 7}),
        ("list the latest orders", "list_orders", {}),
        ("list orders of B-03", "list_orders", {"sku": "B-03"}),
        ("find customer Ada Brook", "find_customer", {"query": "Ada Brook"}),
        ("list the documents", "list_documents", {}),
        ("list all documents about returns", "list_documents", {"query": "returns"}),
        ("delete the document returns-checklist", "delete_document", {"document": "returns-checklist"}),
        ('search for "how to open and read files"', "search", {"query": "how to open and read files"}),
        ('find customer "Smith, Brook and Sons"', "find_customer", {"query": "Smith, Brook and Sons"}),
        ('book a slot for "Ada and Ben" at 14:00', "book_slot", {"day": TODAY, "at": "14:00", "name": "Ada and Ben"}),
    ],
)  # fmt: skip
async def test_one_clause_is_one_call(text: str, kind: str, args: dict[str, JsonValue]) -> None:
    """What is asked for is called with what was said, and with nothing else."""
    assert [(step.kind, step.args) for step in await plan_of(text)] == [(kind, args)]


CHAINS: list[tuple[str, list[tuple[str, dict[str, JsonValue]]]]] = [
    ("search for refunds then read it, summarise it in 2 sentences and save it to s.md", [
        ("search", {"query": "refunds"}),
        ("read", {"name": ref("search", "hits.0.path")}),
        ("summarise", {"text": ref("read", "text"), "sentences": 2}),
        ("save", {"name": "s.md", "content": ref("summarise", "summary")}),
    ]),
    ("search for refunds and summarise them", [
        ("search", {"query": "refunds"}), ("summarise", {"text": ref("search", "hits.0.text")}),
    ]),
    ("read a.md and read b.md then summarise them", [
        ("read", {"name": "a.md"}), ("read-2", {"name": "b.md"}),
        ("summarise", {"text": ref("read", "text")}), ("summarise-2", {"text": ref("read-2", "text")}),
    ]),
    ("calculate 2+2, fetch https://a.example and calculate it * 3", [
        ("calculate", {"expression": "2+2"}), ("fetch", {"url": "https://a.example"}),
        ("calculate-2", {"expression": "it * 3", "it": ref("calculate", "value")}),
    ]),
    ("get the price of A-17, calculate 3 * it then save the result to sum.txt", [
        ("get_price", {"sku": "A-17"}),
        ("calculate", {"expression": "3 * it", "it": ref("get_price", "price")}),
        ("save", {"name": "sum.txt", "content": ref("calculate", "value")}),
    ]),
    ("buy 1 of A-17 for at most 25, then refund it", [
        ("buy", {"sku": "A-17", "quantity": 1, "at_most": "25"}), ("refund", {"order": ref("buy", "id")}),
    ]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "steps"), CHAINS, ids=lambda value: str(value)[:40])
async def test_results_travel_as_references(text: str, steps: list[tuple[str, dict[str, JsonValue]]]) -> None:
    """`it` is the nearest result before that fits, `them` are all of them."""
    assert [(step.id, step.args) for step in await plan_of(text)] == steps


HINTS = {
    "cancel them": "`them` means: no earlier clause brings the booking of cancel_booking",
    "refund it": "no earlier clause brings the order of refund. Write it instead",
    "read it": "no earlier clause brings the name of read_document",
    "calculate 1+1 then summarise it": "the text of summarise",
    "list the slots then save it to a.md": "the content of write_file",
    "read the handbook": "the nearest sentence is: read document NAME",
    "buy 2 of A-17": "the nearest sentence is: buy 2 of A-17 for at most 24.50",
    "buy 2 of A-17 for at most $25": "the nearest sentence is: buy 2 of A-17 for at most 24.50",
    "cancel the booking of Ada": "the nearest sentence is: cancel booking 12",
    "delete the document": "the nearest sentence is: delete document DOCUMENT",
    "fetch example.org": "the nearest sentence is: fetch URL",
}


@pytest.mark.parametrize("text", HINTS)
async def test_what_cannot_be_done_honestly_is_not_understood(text: str) -> None:
    """Nothing is guessed: the clause is named, with what to write instead."""
    assert HINTS[text] in await gives_up(asked(text))


SWALLOWED = [
    *("find customer Ada and change her phone to 12", "find customer Ada, send her a parcel"),
    *("find customer Ada. Send her a parcel", "find customer Ada to change her phone", "find customer Ada or Ben"),
    *("search the documents for refunds and mail them to Ada", "list the documents about returns and print them"),
    *("list the bookings for Ada and move them", "list the orders of A-17 and pay them"),
    *("get the price of A-17 and of B-03", "buy 2 of A-17 and one of B-03 for at most 25"),
    "book a slot for Ada and tell her at 14:00",
]


@pytest.mark.parametrize("text", SWALLOWED)
async def test_no_clause_is_swallowed_by_the_words_of_another(text: str) -> None:
    """Words that may be another request are never taken for a name, a value or a part of a search: nothing is done."""
    reason = await gives_up(asked(text))

    assert ("is not understood" in reason, "quotation marks" in reason) == (True, True)


TOOLS_FILE = '''
from datetime import date, time

from pydantic import BaseModel

from replan import tool


class Wanted(BaseModel):
    people: int
    day: date | None = None
    at: time | None = None
    whom: str = "me"
    quiet: bool = False


class Room(BaseModel):
    number: int
    building: str = "north"


@tool.read
async def find_room(args: Wanted) -> Room:
    """Find a room."""
    return Room(number=args.people)


@tool.idempotent
async def clean_room(args: Room) -> Room:
    """Clean a room."""
    return args


@tool.read
async def find(args: Room) -> Room:
    """Find anything."""
    return args
'''


@pytest.fixture
def rooms(tmp_path: Path) -> Registry:
    """The kinds of a worker with a tools file of its own."""
    (file := tmp_path / "rooms.py").write_text(TOOLS_FILE)
    return Registry(load(file), builtin=(*builtin.TOOLS, *OF_DOCUMENTS))


@pytest.mark.parametrize(
    ("text", "kind", "args"),
    [
        ("find room 12", "find_room", {"people": 12}),
        ("find room 2 people", "find_room", {"people": 2}),
        ("Find a room for people: 12", "find_room", {"people": 12}),
        ("find_room people=2, day=Monday at=2 pm whom='A, B'", "find_room",
         {"people": 2, "day": "2025-11-24", "at": "14:00", "whom": "A, B"}),
        ("find room 2 for Ada Brook on Friday at 15 and find 7", "find_room",
         {"people": 2, "whom": "Ada Brook", "day": TODAY, "at": "15:00"}),
        ("find room 2 for Team 7 quiet yes", "find_room", {"people": 2, "whom": "Team 7", "quiet": True}),
        ("find 7 in the south", "find", {"number": 7, "building": "south"}),
    ],
)  # fmt: skip
async def test_any_kind_is_called_by_its_name(
    rooms: Registry, text: str, kind: str, args: dict[str, JsonValue]
) -> None:
    """Values in the order of the arguments, of their types, or after their names; the longest name counts."""
    plan = await OfflinePlanner().propose(asked(text), rooms)

    assert isinstance(plan, NewSteps), plan
    assert (plan.steps[0].id, plan.steps[0].kind, plan.steps[0].args) == (kind, kind, args)
    assert rooms[kind].parse(plan.steps[0].args)


MISFITS = [
    *("find room", "find room many", "find room 2 3", "find room 2.5", "find room 2 day 14:00", "find room 2 day"),
    *("find room 2 on 31 February", "find room 2 quiet maybe", "find room 2 for Ada or Ben"),
]


async def test_what_fits_no_argument_is_not_guessed(rooms: Registry) -> None:
    """The sentence of the kind is named, with its arguments; a verb whose kind the worker lacks is named with it."""
    plans = {text: await OfflinePlanner().propose(asked(text), rooms) for text in MISFITS}
    lacking = await OfflinePlanner().propose(asked("book a slot at 14:00"), rooms)
    said = "the nearest sentence is: find room PEOPLE"

    assert [text for text, plan in plans.items() if said not in plan.model_dump_json()] == []
    assert "needs the kind book_slot, which cannot be used" in lacking.model_dump_json()


async def test_it_stands_for_a_field_of_the_same_name(rooms: Registry) -> None:
    """And for the first number, in a calculation."""
    plan = await OfflinePlanner().propose(asked("find room 3, then clean room it, then calculate 2 * it"), rooms)

    assert isinstance(plan, NewSteps), plan
    assert [one.args for one in plan.steps[1:]] == [
        {"number": ref("find_room", "number")},
        {"expression": "2 * it", "it": ref("clean_room", "number")},
    ]


def test_a_worker_with_tools_of_its_own_serves_these_and_the_built_in_ones(server: DevServer, tmp_path: Path) -> None:
    """The page's file is planned with and answered, and the desk's tools are served with `--desk` only."""
    (file := tmp_path / "feet.py").write_text(re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)[0])
    place, queue = Processes(server.address, tmp_path), ("--queue", tmp_path.name)
    with place.worker("--tools", str(file), *queue):
        done = place.starter("--task", "to feet 100, then calculate 2 * it", *queue)
        refused = place.starter("call", "purchase", '{"sku": "A-17", "at_most": "30"}', *queue)
    checked, desk = place.asked("--check", "--tools", str(file)), place.asked("--check", "--desk", "--tools", str(file))

    assert done.returncode == 0 and "feet 328." in done.stdout and "= 656." in done.stdout, done.stdout
    assert (refused.returncode, "there is no kind 'purchase'" in refused.stderr + refused.stdout) == (2, True)
    assert ("purchase" in checked.stdout, "purchase" in desk.stdout) == (False, True)
    assert "calculate" in checked.stdout
