"""The checks of `doctor`: what is found wrong, and what to do about it."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from console.commands.doctor import lacks, of_attributes, of_stores, of_tools, of_worker
from console.render.checks import Check, Status
from runtime.queue_store import NamedStore, Record
from workflows.account.search_attributes import TYPES
from workflows.inquiries import Place, ToolCard, ToolsFindings, WorkerCard, WorkerFindings
from workflows.plans.catalogue import CompanionSpec, Effect, Price, ToolSpec

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
LOOK = CompanionSpec(kind="look")


LACKING = [
    (ToolSpec(kind="a", effect=Effect.READ), []),
    (ToolSpec(kind="a", effect=Effect.IDEMPOTENT), ["observe", "undo"]),
    (ToolSpec(kind="a", effect=Effect.TRANSACTIONAL, observe=LOOK), ["undo"]),
    (ToolSpec(kind="a", effect=Effect.TRANSACTIONAL, undo=LOOK), ["observe"]),
    (ToolSpec(kind="a", effect=Effect.TRANSACTIONAL, observe=LOOK, undo=LOOK), []),
    (ToolSpec(kind="back", effect=Effect.TRANSACTIONAL, observe=LOOK), []),
    (ToolSpec(kind="back", effect=Effect.TRANSACTIONAL), ["observe"]),
    (ToolSpec(kind="a", effect=Effect.KEYED, observe=LOOK, undo=LOOK), ["reconcile"]),
    (ToolSpec(kind="a", effect=Effect.UNKEYED), ["observe", "undo", "reconcile"]),
    (ToolSpec(kind="a", effect=Effect.UNKEYED, observe=LOOK, undo=LOOK), ["reconcile"]),
    (ToolSpec(kind="a", effect=Effect.KEYED, observe=LOOK, undo=LOOK, reconcile=LOOK), []),
]


@pytest.mark.parametrize(("spec", "missing"), LACKING)
def test_a_tool_that_changes_the_world_needs_what_belongs_to_it(spec: ToolSpec, missing: list[str]) -> None:
    """A read to look again, a way back unless it is one, and where a second call does harm a way to find out."""
    assert lacks(spec, undoing={"back"}) == missing


def card(spec: ToolSpec) -> ToolCard:
    """A tool with this spec."""
    return ToolCard(spec=spec, description="", args_schema={}, result_schema={})


def findings(card_of_worker: WorkerCard | None = None, planner: str = "offline", *specs: ToolSpec) -> WorkerFindings:
    """What a worker with these tools answers."""
    chosen = specs or (ToolSpec(kind="search", effect=Effect.READ),)
    return WorkerFindings(planner=planner, tools=tuple(map(card, chosen)), worker=card_of_worker or worker())


def test_each_tool_that_lacks_something_is_named_with_its_remedy() -> None:
    """One check for all tools, one more for each that lacks something; a tool that is undone by another needs both."""
    book = ToolSpec(kind="book", effect=Effect.TRANSACTIONAL, observe=LOOK, undo=CompanionSpec(kind="cancel"))
    cancel = ToolSpec(kind="cancel", effect=Effect.TRANSACTIONAL)
    counted, lacking = of_tools(findings(None, "offline", book, cancel))

    assert counted == Check("tools", Status.OK, "2, of which 2 change the world")
    assert (lacking.name, lacking.status) == ("tool cancel", Status.WARN) and "observe= names" in lacking.remedy


def test_a_tool_that_comes_with_replan_is_no_warning() -> None:
    """Whoever runs the worker cannot give it an undo."""
    book, write = (ToolSpec(kind=kind, effect=Effect.IDEMPOTENT) for kind in ("book", "write_file"))
    found = findings(None, "offline", book, write)
    ours = found.tools[1].model_copy(update={"is_own": False})
    names = [check.name for check in of_tools(found.model_copy(update={"tools": (found.tools[0], ours)}))]

    assert names == ["tools", "tool book"]


def test_the_tools_that_return_foreign_text_are_counted() -> None:
    """Whoever runs a worker sees how many of its tools may carry orders of others."""
    page = ToolSpec(kind="page", effect=Effect.READ, untrusted=True)
    [counted] = of_tools(findings(None, "offline", page, ToolSpec(kind="add", effect=Effect.READ)))

    assert counted.found == "2, of which 0 change the world, 1 returns untrusted content"


def test_the_tools_that_no_person_has_read_are_named() -> None:
    """With the command that shows what their servers say; tools that changed since are told apart."""
    new = ToolSpec(kind="shop.new", effect=Effect.READ, unread="new")
    changed = ToolSpec(kind="shop.changed", effect=Effect.READ, unread="changed")
    _, first, second = of_tools(findings(None, "offline", new, changed))

    assert (first.name, first.status, second.name) == ("new tools", Status.WARN, "changed tools")
    assert first.found.startswith("shop.new: no person has read") and "--write-tools FILE" in first.remedy
    assert second.found.startswith("shop.changed: what its server says of it has changed since")


def test_a_worker_without_tools_is_a_failure() -> None:
    """No plan can be made with it."""
    [none] = of_tools(ToolsFindings(planner="offline", tools=()))

    assert none.status is Status.FAIL and "--tools" in none.remedy


@pytest.mark.parametrize(
    ("present", "status", "words"),
    [
        (dict(TYPES), Status.OK, "all 7 are registered"),
        ({**TYPES, "Another": "Text"}, Status.OK, "all 7 are registered"),
        ({name: type for name, type in TYPES.items() if name != "ReplanTenant"}, Status.WARN, "missing: ReplanTenant"),
        ({}, Status.WARN, "missing: ReplanStatus, "),
        ({**TYPES, "ReplanTenant": "Int"}, Status.WARN, "unusable: ReplanTenant is Int, not Keyword"),
    ],
)
def test_search_attributes_are_compared_by_name_and_type(
    present: Mapping[str, str], status: Status, words: str
) -> None:
    """Tasks run without them, so that they are found less well: a warning."""
    check = of_attributes(TYPES, present)

    assert check.status is status and check.found.startswith(words)


def test_the_remedy_for_missing_attributes_is_a_command() -> None:
    """With names and types."""
    remedy = of_attributes(TYPES, {name: type for name, type in TYPES.items() if name != "ReplanReplans"}).remedy

    assert "`temporal operator search-attribute create --name ReplanReplans --type Int`" in remedy


def worker(**changed: Any) -> WorkerCard:
    """A worker for which everything is well, but for what changed."""
    well = {"version": "1", "python": "3.11", "sdk": "1.35", "places": (), "keys": {}, "clock": NOW}
    return WorkerCard(**{**well, "server_clock": NOW, **changed})


def check(name: str, card: WorkerCard, planner: str = "offline") -> Check:
    """One check of a worker that is asked now by a console of version 1."""
    found = findings(card, planner)
    checks = of_worker(found, "1", restart="python worker.py", asked_at=NOW, answered_at=NOW + timedelta(seconds=1))
    return next(one for one in checks if one.name == name)


CASES: list[tuple[str, dict[str, Any], str, Status, str]] = [
    ("worker", {}, "offline", Status.OK, "Replan 1, Python 3.11, Temporal SDK 1.35"),
    ("worker", {"version": "0.9"}, "offline", Status.WARN, "this console is 1"),
    ("keys", {"keys": {"OPENAI_API_KEY": False}}, "offline", Status.OK, "OPENAI_API_KEY not set; the offline planner"),
    ("keys", {"keys": {"OPENAI_API_KEY": True}}, "openai:x", Status.OK, "OPENAI_API_KEY set"),
    ("keys", {"keys": {"OPENAI_API_KEY": False}}, "openai:x", Status.FAIL, "planner needs OPENAI_API_KEY"),
    ("keys", {"keys": {"OPENAI_API_KEY": True}}, "anthropic", Status.FAIL, "planner needs ANTHROPIC_API_KEY"),
    ("keys", {"keys": {}}, "offline, anthropic", Status.OK, "; the offline planner needs none"),
    ("store", {"places": [Place(name="store", where="sqlite:///x")]}, "offline", Status.OK, "sqlite:///x"),
    ("state", {"places": [Place(name="state", where="/x", problem="gone")]}, "offline", Status.FAIL, "/x: gone"),
    ("documents", {"places": [Place(name="documents", where=None)]}, "offline", Status.WARN, "none, so no tool can"),
    ("clocks", {}, "offline", Status.OK, "worker, server and this machine agree"),
    ("clocks", {"clock": NOW + timedelta(minutes=1)}, "offline", Status.WARN, "the worker's is +60 s off"),
    (
        "clocks",
        {"clock": NOW - timedelta(hours=1), "server_clock": NOW - timedelta(hours=1)},
        "offline",
        Status.WARN,
        "this machine's is +3600 s off",
    ),
    (
        "clocks",
        {"clock": NOW + timedelta(seconds=31), "server_clock": NOW + timedelta(seconds=31)},
        "offline",
        Status.WARN,
        "this machine's is -30 s off",
    ),
]


@pytest.mark.parametrize(("name", "changed", "planner", "status", "words"), CASES)
def test_what_a_worker_says_is_judged(
    name: str, changed: dict[str, Any], planner: str, status: Status, words: str
) -> None:
    """What works is ok, what works in part is a warning, what cannot work is a failure; both have a remedy."""
    found = check(name, worker(**changed), planner)

    assert (found.status, bool(found.remedy)) == (status, status is not Status.OK)
    assert words in found.found


PRICE = Price(input=3, output=15, cache_read=0.3, cache_write=3.75)
PRICES: list[tuple[str, bool, Price | None, Status, str]] = [
    ("offline", False, None, Status.OK, "offline"),
    ("openai:x", True, PRICE, Status.OK, "openai:x; 3 USD for a million tokens of input, 15 of output"),
    ("openai:x", True, None, Status.WARN, "openai:x; its price is not known, so --usd is refused"),
    (
        "openai:x@localhost:1",
        True,
        None,
        Status.OK,
        "openai:x@localhost:1; its price is not known, so --usd is refused",
    ),
    (
        "anthropic:x, openai:y",
        True,
        None,
        Status.WARN,
        "anthropic:x, openai:y; the price of at least one is not known, so --usd is refused",
    ),
]


@pytest.mark.parametrize(("planner", "converses", "price", "status", "said"), PRICES)
def test_what_a_planner_costs_is_told(
    planner: str, converses: bool, price: Price | None, status: Status, said: str
) -> None:
    """A warning where a provider's price is missing; nobody could know what a server of one's own costs."""
    found = findings(worker(), planner).model_copy(update={"converses": converses, "price": price})
    checks = of_worker(found, "1", restart="x", asked_at=NOW, answered_at=NOW)
    told = next(one for one in checks if one.name == "planner")

    assert (told.found, told.status, bool(told.remedy)) == (said, status, status is Status.WARN)


def test_the_api_of_a_model_is_told() -> None:
    """In the line of the planner, whose name stays what decides about keys."""
    changed = {"converses": True, "price": PRICE, "described": "openai:x (Responses)"}
    found = findings(worker(keys={"OPENAI_API_KEY": True}), "openai:x").model_copy(update=changed)
    told = {one.name: one for one in of_worker(found, "1", restart="x", asked_at=NOW, answered_at=NOW)}

    assert told["planner"].found.startswith("openai:x (Responses); 3 USD")
    assert told["keys"].status is Status.OK


AGES: list[tuple[int | None, Status, str]] = [
    (None, Status.OK, "15 of output"),
    (0, Status.OK, "15 of output, as of 2026-01-02"),
    (90, Status.OK, "15 of output, as of 2025-10-04"),
    (91, Status.WARN, "15 of output, as of 2025-10-03, 91 days ago"),
]


@pytest.mark.parametrize(("age", "status", "said"), AGES)
def test_old_prices_are_a_warning(age: int | None, status: Status, said: str) -> None:
    """Providers change prices; a price of the settings file has no date, since who set it knows it."""
    day = None if age is None else NOW.date() - timedelta(days=age)
    changed = {"converses": True, "price": PRICE, "price_date": day}
    found = findings(worker(), "openai:x").model_copy(update=changed)
    told = next(
        one for one in of_worker(found, "1", restart="x", asked_at=NOW, answered_at=NOW) if one.name == "planner"
    )

    assert (told.found.rpartition("input, ")[2], told.status) == (said, status)
    assert ("genai-prices" in told.remedy and "[models.prices]" in told.remedy) is (status is Status.WARN)


STORES: dict[str, tuple[list[str], str | None, str]] = {
    "one store": (["a", "a"], "a", ""),
    "nothing on record": (["a"], None, ""),
    "an older version does not say it": (["", "a"], "a", ""),
    "two stores": (["a", "b"], "a", "workers use a, b; the queue has the store /a (id a)"),
    "another than the queue": (["b"], "a", "workers use b; the queue has the store /a (id a)"),
    "two, and nothing on record": (["b", "a"], None, "workers use a, b"),
}


@pytest.mark.parametrize(("ids", "recorded", "said"), STORES.values(), ids=STORES)
def test_workers_with_other_stores_are_a_failure(ids: list[str], recorded: str | None, said: str) -> None:
    """With the store that the queue has, and what to do."""
    record = Record(NamedStore(recorded, f"/{recorded}"), "run") if recorded else None
    found = of_stores(record, [ToolsFindings(planner="offline", store=id) for id in ids])

    assert [(check.status, check.found) for check in found] == ([(Status.FAIL, said)] if said else [])
