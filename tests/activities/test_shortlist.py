"""Many kinds: a model is shown some of them, and finds the others."""

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel

from activities.planning.model_planner import kinds_found, shortlist
from activities.toolbox import builtin
from activities.toolbox.declare.tool import ToolOptions, ToolOrigin
from activities.toolbox.find_tools import MAX_FOUND, MAX_SHOWN, NAME, ToolQuery
from activities.toolbox.registry import Registry, ToolMistakes
from examples import desk
from replan import Tool, tool
from workflows.plans.catalogue import Effect


class Nothing(BaseModel):
    """No arguments."""


def made(name: str, doc: str) -> Tool[..., Nothing]:
    """A tool of this name."""

    def run(args: Nothing) -> Nothing:
        return args

    run.__name__, run.__doc__ = name, doc
    return tool.read(run)


def others(number: int) -> list[Tool[..., Nothing]]:
    """Tools that nobody asks for."""
    return [made(f"gauge_{index}", f"Read gauge {index} of the boiler.") for index in range(number)]


WEATHER = made("weather.forecast", "Say what the weather will be.")
MANY = Registry([*others(40), WEATHER], builtin=builtin.tools(has_model=True), demo=desk.TOOLS)
FEW = Registry(others(MAX_SHOWN))


def looked_for(query: str) -> list[str]:
    """The kinds that are found."""
    finder: Callable[[ToolQuery], object] = MANY[NAME].function
    return list(kinds_found([MANY[NAME].result.dump_python(finder(ToolQuery(query=query)), mode="json")]))


def test_a_worker_with_many_kinds_can_find_them() -> None:
    """And only such a worker; the kind that finds is a read like any other."""
    assert (NAME in FEW, NAME in Registry(others(MAX_SHOWN + 1))) == (False, True)
    assert MANY[NAME].spec.effect == "read"


def test_what_it_finds_is_untrusted_if_no_person_has_read_a_description() -> None:
    """A description in its result is as foreign as in the list of tools."""

    async def notes(args: Nothing) -> Nothing:
        """List notes."""
        return args

    unread = Tool(notes, Effect.READ, ToolOptions(), origin=ToolOrigin(unread="new"))

    assert Registry([*others(MAX_SHOWN), unread])[NAME].spec.untrusted and not MANY[NAME].spec.untrusted


def test_the_name_of_the_kind_that_finds_is_taken() -> None:
    """Among few kinds, too: there may be more one day, and planners know the name."""
    with pytest.raises(ToolMistakes, match="find_tools: this is the name of a built-in tool"):
        Registry([made(NAME, "Find hammers.")])


FINDS = {
    "refund an order": "refund",
    "what will the weather be?": "weather.forecast",
    "Buying articles": "purchase",
    'say "weather" OR NEAR(': "weather.forecast",
}


def test_a_kind_is_found_by_what_it_does() -> None:
    """In other forms of the words, too; nothing in a query is an operator, and finding nothing is no fault."""
    assert {query: looked_for(query)[0] for query in FINDS} == FINDS
    assert [looked_for(query) for query in ("", "the", "zzz", "?")] == [[]] * 4


def test_no_more_are_found_than_can_be_looked_at() -> None:
    """The best of them, and never the kind that finds."""
    assert len(looked_for("read the gauge of the boiler")) == MAX_FOUND
    assert NAME not in looked_for("find tools")


def test_of_many_kinds_those_are_shown_that_the_task_speaks_of() -> None:
    """In the order of the catalogue, with the kind that finds the others; with nothing, a model could only guess."""
    shown = shortlist(MANY, "What will the weather be, and what was refunded?")

    assert len(shown) == MAX_SHOWN and shown == [name for name in MANY if name in shown]
    assert {NAME, "weather.forecast", "refund"} <= {*shown}
    assert shortlist(MANY, "") == [*[*MANY][: MAX_SHOWN - 1], NAME]
    assert shortlist(FEW, "anything") == [*FEW]


def test_what_was_used_stays() -> None:
    """The conversation goes on about it, even where it alone is too much."""
    used = {f"gauge_{index}" for index in range(35)}

    assert used < {*shortlist(MANY, "the weather", used)}
    assert "gauge_39" in shortlist(MANY, "the weather", ["gauge_39", "gone_meanwhile"])


def test_a_result_that_names_no_kinds_finds_none() -> None:
    """It may be of another tool."""
    results: list[Any] = [None, "x", {"tools": 3}, {"tools": [{"kind": 3}, "x"]}, []]

    assert [list(kinds_found([result])) for result in results] == [[]] * 5
