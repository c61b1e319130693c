"""The names under which agents see tools."""

from typing import Any

from server.gateway.offers import MAX_NAME, OF_TASKS, listed as listed_own, offers_of


def listed(kind: str, name: str, **more: Any) -> dict[str, Any]:
    """A tool as the side door of a worker lists it."""
    given = {"server": kind.partition(".")[0], "effect": "unkeyed", "authority": ["who"], "approve": "never"}
    return {"kind": kind, "name": name, "tool": {"name": name, "inputSchema": {}}, **given, **more}


def test_a_tool_keeps_its_name_unless_two_have_it() -> None:
    offers = offers_of([listed("a.pay", "pay"), listed("b.pay", "pay"), listed("a.book.slot", "book.slot")])

    assert [offer.name for offer in offers] == ["a_pay", "b_pay", "book_slot"]
    assert [offer.tool["name"] for offer in offers] == ["a_pay", "b_pay", "book_slot"]
    assert [offer.name_there for offer in offers] == ["pay", "pay", "book.slot"]


def test_long_names_stay_different() -> None:
    offers = offers_of([listed("a.x", "x" * 80 + "1"), listed("a.y", "x" * 80 + "2"), listed("a.x", "x" * 80 + "3")])
    names = [offer.name for offer in offers]

    assert len(set(names)) == 3
    assert max(map(len, names)) <= MAX_NAME


def test_a_pure_tool_reads_and_one_that_is_approved_asks() -> None:
    pure, asking = offers_of([listed("a.x", "x", effect="pure"), listed("a.y", "y", effect="read", approve="always")])

    assert (pure.effect, pure.asks) == ("read", False)
    assert (asking.effect, asking.asks) == ("read", True)


def test_a_tool_of_a_server_is_not_hidden_by_one_of_the_gateway() -> None:
    names = [tool["name"] for tool in listed_own(OF_TASKS, {"replan_undo"})]

    assert "replan_undo" not in names
    assert "replan_outcome" in names
