"""What the kinds of the front desk promise."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from activities.toolbox.registry import Registry
from examples import desk
from examples.desk.bookings import Book
from examples.desk.customers import Changes
from examples.desk.shop import Purchase
from workflows.plans.catalogue import CompanionSpec, Effect

KINDS = Registry(desk.TOOLS)
EFFECTS = [kind.spec for kind in KINDS.values() if kind.spec.effect is not Effect.READ]


def texts(schema: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(schema, dict):
        yield from [schema] if schema.get("type") == "string" else []
        schema = list(schema.values())
    if isinstance(schema, list):
        for part in schema:
            yield from texts(part)


def test_a_worker_takes_all_of_them() -> None:
    """The registry finds no mistake, no effect can happen in part, and no argument can be a book."""
    endless = [
        (name, text)
        for name, kind in KINDS.items()
        for text in texts(kind.args_schema)
        if not {"maxLength", "format", "pattern"} & set(text)  # days, times and amounts have forms of their own
    ]

    assert list(KINDS) == [
        *("list_slots", "book_slot", "list_bookings", "cancel_booking"),
        *("get_price", "purchase", "list_orders", "refund"),
        *("find_customer", "update_customer"),
        *("list_documents", "read_document", "delete_document"),
    ]
    assert {spec.effect for spec in EFFECTS} == {Effect.TRANSACTIONAL}
    assert endless == []


def test_every_effect_says_how_to_look_again_and_what_takes_it_back() -> None:
    """After a refusal the planner sees the world as it is then; an undo names what was made, not what was asked for."""
    assert {spec.kind: spec.observe for spec in EFFECTS} == {
        "book_slot": CompanionSpec(kind="list_slots", args={"day": "args.day"}),
        "cancel_booking": CompanionSpec(kind="list_bookings", args={"booking": "args.booking"}),
        "purchase": CompanionSpec(kind="get_price", args={"sku": "args.sku"}),
        "refund": CompanionSpec(kind="list_orders", args={"order": "args.order"}),
        "update_customer": CompanionSpec(kind="find_customer", args={"query": "args.customer"}),
        "delete_document": CompanionSpec(kind="list_documents"),
    }
    assert {spec.kind: spec.undo for spec in EFFECTS if spec.undo} == {
        "book_slot": CompanionSpec(kind="cancel_booking", args={"booking": "result.id"}),
        "purchase": CompanionSpec(kind="refund", args={"order": "result.id"}),
    }


MEANINGLESS: list[tuple[type[BaseModel], Mapping[str, Any], Sequence[Mapping[str, Any]]]] = [
    # The calendar knows local times, ISO dates and names of ordinary length
    (Book, {"day": "2025-11-21", "at": "14:00", "name": "team"}, [{"at": "14:00Z"}, {"at": "2 pm"}]),
    (
        Book,
        {"day": "2025-11-21", "at": "14:00", "name": "team"},
        [{"day": "tomorrow"}, {"name": ""}, {"name": "x" * 81}],
    ),
    # Money has two places and an end
    (Purchase, {"sku": "A-17", "at_most": "1"}, [{"at_most": "24.505"}, {"at_most": "NaN"}, {"at_most": "Infinity"}]),
    (Purchase, {"sku": "A-17", "at_most": "1"}, [{"at_most": "-1"}, {"at_most": "9" * 11}, {"at_most": "1e40"}]),
    (Purchase, {"sku": "A-17", "at_most": "1"}, [{"at_most": "a lot"}]),
    # A misspelt field is not dropped in silence
    (
        Changes,
        {"phone": "1"},
        [{"name": ""}, {"name": "  "}, {"name": "x" * 81}, {"e_mail": "g@a.example"}, {"version": 9}],
    ),
]


def test_a_call_that_means_nothing_is_refused_by_the_schema() -> None:
    """Each differs from one that means something in one argument."""
    for model, fine, wrong in MEANINGLESS:
        model.model_validate(fine)
        for more in wrong:
            with pytest.raises(ValidationError):
                model.model_validate({**fine, **more})
