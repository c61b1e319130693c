"""The checks of `doctor`: what is found wrong, and what to do about it."""

from datetime import UTC, date, datetime, timedelta
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


UNKEYED = {"kind": "a", "effect": Effect.UNKEYED}
ROWS: dict[str, Any] = {"kind": "a", "effect": Effect.TRANSACTIONAL}
LACKING: list[tuple[dict[str, Any], list[str]]] = [
    ({"kind": "a", "effect": Effect.READ}, []),
    ({"kind": "a", "effect": Effect.IDEMPOTENT}, ["observe", "undo"]),
    ({**ROWS, "observe": LOOK}, ["undo"]),
    ({**ROWS, "undo": LOOK}, ["observe"]),
    ({**ROWS, "observe": LOOK, "undo": LOOK}, []),
    ({**ROWS, "kind": "back", "observe": LOOK}, []),
    ({**ROWS, "kind": "back"}, ["observe"]),
    ({"kind": "a", "effect": Effect.KEYED, "observe": LOOK, "undo": LOOK}, ["reconcile"]),
    (UNKEYED, ["observe", "undo", "reconcile"]),
    ({**UNKEYED, "observe": LOOK, "undo": LOOK}, ["reconcile"]),
    ({"kind": "a", "effect": Effect.KEYED, "observe": LOOK, "undo": LOOK, "reconcile": LOOK}, []),
]


@pytest.mark.parametrize(("spec", "missing"), LACKING)
def test_a_tool_that_changes_the_world_needs_what_belongs_to_it(spec: dict[str, Any], missing: list[str]) -> None:
    """A read to look again, a way back unless it is one, and where a second call does harm a way to find out."""
    assert lacks(ToolSpec(**spec), undoing={"back"}) == missing


def findings(planner: str, *specs: ToolSpec, worker: WorkerCard | None = None) -> WorkerFindings:
    """What a worker with these tools answers."""
    tools = [ToolCard(spec=spec, description="", args_schema={}, result_schema={}) for spec in specs]
    return WorkerFindings(planner=planner, tools=tuple(tools), worker=worker or card())


def test_tools_are_counted_and_those_that_lack_something_are_named() -> None:
    """With a remedy; a tool that is undone by another needs both, and to one of Replan's nobody can give an undo.

    A worker without tools can make no plan.
    """
    book = ToolSpec(kind="book", effect=Effect.TRANSACTIONAL, observe=LOOK, undo=CompanionSpec(kind="cancel"))
    cancel = ToolSpec(kind="cancel", effect=Effect.TRANSACTIONAL)
    counted, lacking = of_tools(findings("offline", book, cancel))
    found = findings("offline", *(ToolSpec(kind=kind, effect=Effect.IDEMPOTENT) for kind in ("book", "write_file")))
    ours = found.tools[1].model_copy(update={"is_own": False})
    names = [check.name for check in of_tools(found.model_copy(update={"tools": (found.tools[0], ours)}))]
    page = ToolSpec(kind="page", effect=Effect.READ, untrusted=True)
    [foreign] = of_tools(findings("offline", page, ToolSpec(kind="add", effect=Effect.READ)))
    [none] = of_tools(ToolsFindings(planner="offline", tools=()))

    assert counted == Check("tools", Status.OK, "2, of which 2 change the world")
    assert (lacking.name, lacking.status) == ("tool cancel", Status.WARN) and "observe= names" in lacking.remedy
    assert names == ["tools", "tool book"]
    assert foreign.found == "2, of which 0 change the world, 1 returns untrusted content"
    assert none.status is Status.FAIL and "--tools" in none.remedy


def test_the_tools_that_no_person_has_read_are_named() -> None:
    """With the command that shows what their servers say; tools that changed since are told apart."""
    new = ToolSpec(kind="shop.new", effect=Effect.READ, unread="new")
    changed = ToolSpec(kind="shop.changed", effect=Effect.READ, unread="changed")
    _, first, second = of_tools(findings("offline", new, changed))

    assert (first.name, first.status, second.name) == ("new tools", Status.WARN, "changed tools")
    assert first.found.startswith("shop.new: no person has read") and "--write-tools FILE" in first.remedy
    assert second.found.startswith("shop.changed: what its server says of it has changed since")


ATTRIBUTES: list[tuple[dict[str, str], Status, str]] = [
    (dict(TYPES), Status.OK, "all 7 are registered"),
    ({**TYPES, "Another": "Text"}, Status.OK, "all 7 are registered"),
    ({name: type for name, type in TYPES.items() if name != "ReplanReplans"}, Status.WARN, "missing: ReplanReplans"),
    ({}, Status.WARN, "missing: ReplanStatus, "),
    ({**TYPES, "ReplanTenant": "Int"}, Status.WARN, "unusable: ReplanTenant is Int, not Keyword"),
]


@pytest.mark.parametrize(("present", "status", "words"), ATTRIBUTES)
def test_search_attributes_are_compared_by_name_and_type(present: dict[str, str], status: Status, words: str) -> None:
    """Tasks run without them, so that they are found less well: a warning, with the command that adds them."""
    check = of_attributes(TYPES, present)
    adds = "`temporal operator search-attribute create --name ReplanReplans --type Int`"

    assert check.status is status and check.found.startswith(words)
    assert (adds in check.remedy) is (words == "missing: ReplanReplans")


def card(**changed: Any) -> WorkerCard:
    """A worker for which everything is well, but for what changed."""
    well = {"version": "1", "python": "3.11", "sdk": "1.35", "places": (), "keys": {}, "clock": NOW}
    return WorkerCard(**{**well, "server_clock": NOW, **changed})


def checks(found: WorkerFindings) -> dict[str, Check]:
    """The checks of a worker that is asked now by a console of version 1."""
    made = of_worker(found, "1", restart="python worker.py", asked_at=NOW, answered_at=NOW + timedelta(seconds=1))
    return {one.name: one for one in made}


def off(**clocks: timedelta) -> dict[str, datetime]:
    """Clocks that are off by so much."""
    return {name: NOW + by for name, by in clocks.items()}


HOUR, MORE = timedelta(hours=1), timedelta(seconds=31)
OPENAI = "OPENAI_API_KEY"
CASES: list[tuple[str, dict[str, Any], str, Status, str]] = [
    ("worker", {}, "offline", Status.OK, "Replan 1, Python 3.11, Temporal SDK 1.35"),
    ("worker", {"version": "0.9"}, "offline", Status.WARN, "this console is 1"),
    ("keys", {"keys": {OPENAI: False}}, "offline", Status.OK, "OPENAI_API_KEY not set; the offline planner"),
    ("keys", {"keys": {OPENAI: True}}, "openai:x", Status.OK, "OPENAI_API_KEY set"),
    ("keys", {"keys": {OPENAI: False}}, "openai:x", Status.FAIL, "planner needs OPENAI_API_KEY"),
    ("keys", {"keys": {OPENAI: True}}, "anthropic", Status.FAIL, "planner needs ANTHROPIC_API_KEY"),
    ("keys", {"keys": {}}, "offline, anthropic", Status.OK, "; the offline planner needs none"),
    ("store", {"places": [Place(name="store", where="sqlite:///x")]}, "offline", Status.OK, "sqlite:///x"),
    ("state", {"places": [Place(name="state", where="/x", problem="gone")]}, "offline", Status.FAIL, "/x: gone"),
    ("documents", {"places": [Place(name="documents", where=None)]}, "offline", Status.WARN, "none, so no tool can"),
    ("clocks", {}, "offline", Status.OK, "worker, server and this machine agree"),
    ("clocks", off(clock=timedelta(minutes=1)), "offline", Status.WARN, "the worker's is +60 s off"),
    ("clocks", off(clock=-HOUR, server_clock=-HOUR), "offline", Status.WARN, "this machine's is +3600 s off"),
    ("clocks", off(clock=MORE, server_clock=MORE), "offline", Status.WARN, "this machine's is -30 s off"),
]


@pytest.mark.parametrize(("name", "changed", "planner", "status", "words"), CASES)
def test_what_a_worker_says_is_judged(
    name: str, changed: dict[str, Any], planner: str, status: Status, words: str
) -> None:
    """What works is ok, what works in part is a warning, what cannot work is a failure; both have a remedy."""
    found = checks(findings(planner, worker=card(**changed)))[name]

    assert (found.status, bool(found.remedy)) == (status, status is not Status.OK)
    assert words in found.found


PRICE = Price(input=3, output=15, cache_read=0.3, cache_write=3.75)
COSTS = "3 USD for a million tokens of input, 15 of output"
NO_PRICE = "its price is not known, so --usd is refused"
OF_ONE = "the price of at least one is not known, so --usd is refused"
UPDATE = ("genai-prices", "[models.prices]")
PRICES: list[tuple[str, dict[str, Any], Status, str, tuple[str, ...]]] = [
    ("offline", {"converses": False, "price": None}, Status.OK, "offline", ()),
    ("openai:x", {}, Status.OK, f"openai:x; {COSTS}", ()),
    ("openai:x", {"price": None}, Status.WARN, f"openai:x; {NO_PRICE}", ("",)),
    ("openai:x@localhost:1", {"price": None}, Status.OK, f"openai:x@localhost:1; {NO_PRICE}", ()),
    ("anthropic:x, openai:y", {"price": None}, Status.WARN, f"anthropic:x, openai:y; {OF_ONE}", ("",)),
    ("openai:x", {"described": "openai:x (Responses)"}, Status.OK, f"openai:x (Responses); {COSTS}", ()),
    ("openai:x", {"price_date": NOW.date()}, Status.OK, f"openai:x; {COSTS}, as of 2026-01-02", ()),
    ("openai:x", {"price_date": date(2025, 10, 4)}, Status.OK, f"openai:x; {COSTS}, as of 2025-10-04", ()),
    (
        "openai:x",
        {"price_date": date(2025, 10, 3)},
        Status.WARN,
        f"openai:x; {COSTS}, as of 2025-10-03, 91 days ago",
        UPDATE,
    ),
]


@pytest.mark.parametrize(("planner", "changed", "status", "said", "remedy"), PRICES)
def test_what_a_planner_costs_is_told(
    planner: str, changed: dict[str, Any], status: Status, said: str, remedy: tuple[str, ...]
) -> None:
    """A warning where a provider's price is missing or old, as providers change them.

    Nobody could know what a server of one's own costs; a price of the settings file has no date, since who set it
    knows it. Beside the planner's name stands its API, and the name is what decides about keys.
    """
    given = {"converses": True, "price": PRICE, **changed}
    found = findings(planner, worker=card(keys={OPENAI: True})).model_copy(update=given)
    told = checks(found)

    assert (told["planner"].found, told["planner"].status) == (said, status)
    assert bool(told["planner"].remedy) is bool(remedy) and all(word in told["planner"].remedy for word in remedy)
    assert told["keys"].status is (Status.FAIL if planner.startswith("anthropic") else Status.OK)


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
