"""Refusals of the front desk: typed, and with what was seen."""

from datetime import time
from decimal import Decimal
from typing import Any, NamedTuple

import pytest
from pydantic import BaseModel, JsonValue

from activities.offline.alternatives import find_alternatives
from activities.toolbox.registry import Registry
from examples.desk import TOOLS
from examples.desk.bookings import Book, Cancel, book_slot, cancel_booking
from examples.desk.customers import Changes, Query, Update, find_customer, update_customer
from examples.desk.papers import Delete, delete_document
from examples.desk.shop import PriceOf, Purchase, Refund, get_price, purchase, refund
from replan import Refused, Tool
from tests.activities.desk.front import TODAY, Desk
from workflows.plans.references import pick

LAMP: dict[str, JsonValue] = {
    "sku": "A-17",
    "name": "Desk lamp Alder, oak",
    "price": "24.50",
    "stock": 12,
    "version": 1,
}
GRACE: dict[str, JsonValue] = {
    "id": "C-0002",
    "name": "Grace Marsh",
    "email": "grace.marsh@mail.example",
    "phone": "+49 30 5550001",
    "version": 2,
}
MAIL = "an address such as ada@mail.example"
PHONE = "digits, with + before the country, e.g. +49 30 1234567"


class Case(NamedTuple):
    """A call that the demo world refuses, and how."""

    tool: Tool[..., Any]
    args: BaseModel
    code: str
    part: str = ""
    """A path into what was observed; empty for the whole."""
    observed: JsonValue = None
    """What stands there."""


def change(customer: str = "C-0002", version: int = 2, **changes: str) -> Update:
    """A change of a customer."""
    return Update(customer=customer, version=version, changes=Changes(**changes))


CASES = {
    "a taken slot": Case(
        *(book_slot, Book(day=TODAY, at=time(14), name="team"), "conflict"),
        part="free",
        observed=["09:30", "10:00", "11:00", "11:30", "12:30", "13:00", "14:30", "15:00", "15:30", "16:00"],
    ),
    "no such booking": Case(cancel_booking, Cancel(booking=9999), "not_found", "bookings.0.id", 75),
    "a cancelled booking": Case(
        cancel_booking, Cancel(booking=84), "gone", "bookings.0.cancelled", "2025-11-20T08:00:00Z"
    ),
    "no such article, to look up": Case(
        *(get_price, PriceOf(sku="A-71"), "not_found"),
        part="near.A-17",
        observed="Desk lamp Alder, oak",
    ),
    "no such article, to buy": Case(
        *(purchase, Purchase(sku="Desk lamp alder", at_most=Decimal(99)), "not_found"),
        part="near.A-17",
        observed="Desk lamp Alder, oak",
    ),
    "no such customer, to buy": Case(
        *(purchase, Purchase(sku="A-17", at_most=Decimal(99), customer="C-9001"), "not_found"),
        part="field",
        observed="customer",
    ),
    "a price that moved": Case(
        purchase, Purchase(sku="A-17", at_most=Decimal("24.49")), "precondition_failed", observed=LAMP
    ),
    "too few in stock": Case(
        purchase, Purchase(sku="A-17", quantity=13, at_most=Decimal("24.50")), "conflict", observed=LAMP
    ),
    "no such order": Case(refund, Refund(order=9999), "not_found", "orders.0.id", 217),
    "a refunded order": Case(refund, Refund(order=5), "gone", "orders.0.refunded", "2025-04-23T09:00:00Z"),
    "nobody of this name": Case(find_customer, Query(query="Grace Marhs"), "no_results", "near.C-0002", "Grace Marsh"),
    "no such customer, to change": Case(
        update_customer, change("C-20002", phone="1"), "not_found", "near.C-0002", "Grace Marsh"
    ),
    "a customer who was changed": Case(
        update_customer, change(version=1, phone="1"), "precondition_failed", "customers", [GRACE]
    ),
    "no address": Case(
        update_customer, change(email="grace"), "invalid_input", observed={"field": "email", "expected": MAIL}
    ),
    "no number": Case(
        update_customer, change(phone="call me"), "invalid_input", observed={"field": "phone", "expected": PHONE}
    ),
    "no change": Case(update_customer, change(), "invalid_input", "field", "changes"),
    "no such document": Case(
        *(delete_document, Delete(document="returns-checklists"), "not_found"),
        part="near.returns-checklist",
        observed="Returns: checklist",
    ),
    "a deleted document": Case(
        *(delete_document, Delete(document="returns-minutes"), "gone"),
        part="document",
        observed={"name": "returns-minutes", "title": "Returns: minutes", "deleted": "2025-11-18T17:00:00Z"},
    ),
}
each = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
KINDS = Registry(TOOLS)


@each
async def test_a_refusal_is_typed_and_carries_what_was_seen(desk: Desk, case: Case) -> None:
    """The planner is told what contradicts the call, not only that something does."""
    fault = await desk.refuses(case.tool, case.args)

    assert fault.code == case.code
    assert pick(fault.observed, case.part, "it") == case.observed


@each
async def test_a_refusal_changes_nothing(desk: Desk, case: Case) -> None:
    """The world after a refusal is the world before it."""
    before = await desk.digest()
    await desk.refuses(case.tool, case.args)

    assert await desk.digest() == before


@each
async def test_a_refusal_says_what_to_do_in_one_sentence(desk: Desk, case: Case) -> None:
    """What happened, and behind a colon what it means."""
    reason = (await desk.refuses(case.tool, case.args)).reason

    assert reason.endswith(".")
    assert ": " in reason or ";" in reason


@each
async def test_nothing_is_offered_in_the_place_of_what_was_named(desk: Desk, case: Case) -> None:
    """A planner without judgement takes another slot or a newer version, never another customer, order or document."""
    fault = await desk.refuses(case.tool, case.args)

    assert arguments_offered(case, fault.observed) <= {"at", "day", "version"}


@each
async def test_nor_is_it_when_one_looks_again(desk: Desk, case: Case) -> None:
    """What a fresh look shows is as safe as what the refusal carried."""
    assert arguments_offered(case, await look(desk, case)) <= {"at", "day", "version"}


def arguments_offered(case: Case, seen: JsonValue) -> set[str]:
    """The arguments for which a rule-based planner finds another value in what was seen."""
    return {one.argument for one in find_alternatives(case.args.model_dump(mode="json"), seen)}


async def look(desk: Desk, case: Case) -> JsonValue:
    """What the kind's `observe` shows; nothing where it has none or is refused as well."""
    companion = KINDS[case.tool.__name__].spec.observe
    if companion is None:
        return None
    kind, call = KINDS[companion.kind], dict[str, JsonValue](args=case.args.model_dump(mode="json"))
    args = kind.parse({name: pick(call, path, "the call") for name, path in companion.args.items()})
    async with desk.engine.begin() as tx:
        try:
            return kind.result.dump_python(await kind.function(args, tx), mode="json")  # type: ignore[no-any-return]
        except Refused:
            return None
