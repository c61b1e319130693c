"""What the kinds of the front desk promise."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from activities.toolbox.registry import Registry
from examples import desk
from workflows.plans.catalogue import CompanionSpec, Effect

KINDS = Registry(desk.TOOLS)
EFFECTS = [kind.spec for kind in KINDS.values() if kind.spec.effect is not Effect.READ]


def texts(schema: Any) -> Iterator[Mapping[str, Any]]:
    """All parts of a JSON schema that take text."""
    if isinstance(schema, dict):
        yield from [schema] if schema.get("type") == "string" else []
        schema = list(schema.values())
    if isinstance(schema, list):
        for part in schema:
            yield from texts(part)


def test_a_worker_takes_all_of_them() -> None:
    """The registry finds no mistake in them."""
    assert list(KINDS) == [
        *("list_slots", "book_slot", "list_bookings", "cancel_booking"),
        *("get_price", "purchase", "list_orders", "refund"),
        *("find_customer", "update_customer"),
        *("list_documents", "read_document", "delete_document"),
    ]


def test_every_effect_commits_in_one_transaction() -> None:
    """No effect of the front desk can happen in part."""
    assert {spec.effect for spec in EFFECTS} == {Effect.TRANSACTIONAL}


def test_every_effect_says_how_to_look_again() -> None:
    """After a refusal the planner sees the world as it is then."""
    assert {spec.kind: spec.observe for spec in EFFECTS} == {
        "book_slot": CompanionSpec(kind="list_slots", args={"day": "args.day"}),
        "cancel_booking": CompanionSpec(kind="list_bookings", args={"booking": "args.booking"}),
        "purchase": CompanionSpec(kind="get_price", args={"sku": "args.sku"}),
        "refund": CompanionSpec(kind="list_orders", args={"order": "args.order"}),
        "update_customer": CompanionSpec(kind="find_customer", args={"query": "args.customer"}),
        "delete_document": CompanionSpec(kind="list_documents"),
    }


def test_what_can_be_taken_back_says_how() -> None:
    """An undo names what was made, never what was asked for."""
    assert {spec.kind: spec.undo for spec in EFFECTS if spec.undo} == {
        "book_slot": CompanionSpec(kind="cancel_booking", args={"booking": "result.id"}),
        "purchase": CompanionSpec(kind="refund", args={"order": "result.id"}),
    }


@pytest.mark.parametrize("kind", KINDS)
def test_every_text_has_an_end(kind: str) -> None:
    """No argument can be a book; days, times and amounts have forms of their own."""
    endless = [text for text in texts(KINDS[kind].args_schema) if not {"maxLength", "format", "pattern"} & set(text)]

    assert endless == []
