"""Refusals of the front desk: typed, and with what was seen."""

from datetime import time
from decimal import Decimal
from typing import Any, NamedTuple

from pydantic import BaseModel, JsonValue

from activities.offline.alternatives import find_alternatives
from activities.toolbox.registry import Registry
from examples.desk import TOOLS
from examples.desk.bookings import Book, Cancel, book_slot, cancel_booking
from examples.desk.customers import Changes, Query, Update, find_customer, update_customer
from examples.desk.papers import Delete, delete_document
from examples.desk.shop import PriceOf, Purchase, Refund, get_price, purchase, refund
from replan import Refused, Tool
from tests.activities.desk.front import FREE, LAMP, TODAY, Desk
from workflows.plans.references import pick

GRACE: dict[str, JsonValue] = {
    **{"id": "C-0002", "name": "Grace Marsh", "email": "grace.marsh@mail.example"},
    **{"phone": "+49 30 5550001", "version": 2},
}
OAK = "Desk lamp Alder, oak"
MAIL: JsonValue = {"field": "email", "expected": "an address such as ada@mail.example"}
PHONE: JsonValue = {"field": "phone", "expected": "digits, with + before the country, e.g. +49 30 1234567"}
MINUTES: JsonValue = {"name": "returns-minutes", "title": "Returns: minutes", "deleted": "2025-11-18T17:00:00Z"}


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
    return Update(customer=customer, version=version, changes=Changes(**changes))


def buying(sku: str = "A-17", at_most: str = "99", **more: Any) -> Purchase:
    return Purchase(sku=sku, at_most=Decimal(at_most), **more)


CASES = {
    "a taken slot": Case(book_slot, Book(day=TODAY, at=time(14), name="team"), "conflict", "free", FREE),
    "no such booking": Case(cancel_booking, Cancel(booking=9999), "not_found", "bookings.0.id", 75),
    "a cancelled booking": Case(
        cancel_booking, Cancel(booking=84), "gone", "bookings.0.cancelled", "2025-11-20T08:00:00Z"
    ),
    "no such article, to look up": Case(get_price, PriceOf(sku="A-71"), "not_found", "near.A-17", OAK),
    "no such article, to buy": Case(purchase, buying("Desk lamp alder"), "not_found", "near.A-17", OAK),
    "no such customer, to buy": Case(purchase, buying(customer="C-9001"), "not_found", "field", "customer"),
    "a price that moved": Case(purchase, buying(at_most="24.49"), "precondition_failed", "", LAMP),
    "too few in stock": Case(purchase, buying(quantity=13), "conflict", "", LAMP),
    "no such order": Case(refund, Refund(order=9999), "not_found", "orders.0.id", 217),
    "a refunded order": Case(refund, Refund(order=5), "gone", "orders.0.refunded", "2025-04-23T09:00:00Z"),
    "nobody of this name": Case(find_customer, Query(query="Grace Marhs"), "no_results", "near.C-0002", "Grace Marsh"),
    "no such customer": Case(update_customer, change("C-20002", phone="1"), "not_found", "near.C-0002", "Grace Marsh"),
    "a customer who was changed": Case(
        update_customer, change(version=1, phone="1"), "precondition_failed", "customers", [GRACE]
    ),
    "no address": Case(update_customer, change(email="grace"), "invalid_input", "", MAIL),
    "no number": Case(update_customer, change(phone="call me"), "invalid_input", "", PHONE),
    "no change": Case(update_customer, change(), "invalid_input", "field", "changes"),
    "no such document": Case(
        delete_document,
        Delete(document="returns-checklists"),
        "not_found",
        "near.returns-checklist",
        "Returns: checklist",
    ),
    "a deleted document": Case(delete_document, Delete(document="returns-minutes"), "gone", "document", MINUTES),
}


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


async def test_a_refusal_is_typed_carries_what_was_seen_and_changes_nothing(desk: Desk) -> None:
    """The planner is told what contradicts the call, in one sentence: what happened, behind a colon what it means."""
    wrong, before = [], await desk.digest()
    for name, case in CASES.items():
        fault = await desk.refuses(case.tool, case.args)
        is_sentence = fault.reason.endswith(".") and (": " in fault.reason or ";" in fault.reason)
        found = (fault.code, pick(fault.observed, case.part, "it"), is_sentence, await desk.digest())
        if found != (case.code, case.observed, True, before):
            wrong.append((name, fault))

    assert wrong == []


async def test_nothing_is_offered_in_the_place_of_what_was_named(desk: Desk) -> None:
    """A planner without judgement takes another slot or a newer version, never another customer, order or document.

    What a fresh look shows is as safe as what the refusal carried.
    """
    wrong = []
    for name, case in CASES.items():
        fault = await desk.refuses(case.tool, case.args)
        offered = arguments_offered(case, fault.observed) | arguments_offered(case, await look(desk, case))
        if not offered <= {"at", "day", "version"}:
            wrong.append((name, offered))

    assert wrong == []


KINDS = Registry(TOOLS)
