"""The names under which agents see tools."""

from typing import Any

from extras.gateway.offers import MAX_NAME, OF_TASKS, listed as listed_own, offers_of


def listed(kind: str, name: str, **more: Any) -> dict[str, Any]:
    """A tool as the side door of a worker lists it."""
    given = {"server": kind.partition(".")[0], "effect": "unkeyed", "authority": ["who"], "approve": "never"}
    return {"kind": kind, "name": name, "tool": {"name": name, "inputSchema": {}}, **given, **more}


def test_a_tool_keeps_its_name_unless_two_have_it() -> None:
    """Long ones stay different, and one of a server is not hidden by one of the gateway."""
    offers = offers_of([listed("a.pay", "pay"), listed("b.pay", "pay"), listed("a.book.slot", "book.slot")])
    long = offers_of([listed(kind, "x" * 80 + end) for kind, end in (("a.x", "1"), ("a.y", "2"), ("a.x", "3"))])
    own = [tool["name"] for tool in listed_own(OF_TASKS, {"replan_undo"})]

    assert [offer.name for offer in offers] == ["a_pay", "b_pay", "book_slot"]
    assert [offer.tool["name"] for offer in offers] == ["a_pay", "b_pay", "book_slot"]
    assert [offer.name_there for offer in offers] == ["pay", "pay", "book.slot"]
    assert len({offer.name for offer in long}) == 3 and max(len(offer.name) for offer in long) <= MAX_NAME
    assert "replan_undo" not in own and "replan_outcome" in own


def test_a_pure_tool_reads_and_one_that_is_approved_asks() -> None:
    pure, asking = offers_of([listed("a.x", "x", effect="pure"), listed("a.y", "y", effect="read", approve="always")])

    assert (pure.effect, pure.asks, asking.effect, asking.asks) == ("read", False, "read", True)
