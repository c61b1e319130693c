"""Text from the world is text: never SQL, never a wildcard."""

from collections.abc import Callable
from datetime import time
from decimal import Decimal
from itertools import product
from typing import Any

import pytest
from pydantic import BaseModel

from examples.desk.bookings import Book, BookingsOf, Cancel, book_slot, cancel_booking, list_bookings
from examples.desk.customers import Changes, Query, Update, find_customer, update_customer
from examples.desk.papers import Delete, DocumentsOf, delete_document, list_documents
from examples.desk.shop import OrdersOf, PriceOf, Purchase, get_price, list_orders, purchase
from replan import Refused, Tool
from tests.activities.desk.front import TODAY, Desk

FRAGMENTS = [
    "'; DROP TABLE slots; --",
    "x' OR '1'='1",
    'x" OR 1=1 --',
    "C-0001'--",
    "%",
    "_",
    "\\",
    "A-1_",
    "%' ESCAPE '%",
    "') OR 1=1 #",
    ":name",
    "?",
    "Robert'/*",
]

CALLS: dict[str, tuple[Tool[..., Any], Callable[[str], BaseModel]]] = {
    "list_bookings.name": (list_bookings, lambda text: BookingsOf(name=text)),
    "get_price.sku": (get_price, lambda text: PriceOf(sku=text)),
    "purchase.sku": (purchase, lambda text: Purchase(sku=text, at_most=Decimal(99))),
    "purchase.customer": (purchase, lambda text: Purchase(sku="A-17", at_most=Decimal(99), customer=text[:20])),
    "list_orders.sku": (list_orders, lambda text: OrdersOf(sku=text)),
    "list_orders.customer": (list_orders, lambda text: OrdersOf(customer=text[:20])),
    "find_customer.query": (find_customer, lambda text: Query(query=text)),
    "update_customer.customer": (
        update_customer,
        lambda text: Update(customer=text[:20], version=1, changes=Changes(name="x")),
    ),
    "update_customer.email": (
        update_customer,
        lambda text: Update(customer="C-0001", version=1, changes=Changes(email=text)),
    ),
    "update_customer.phone": (
        update_customer,
        lambda text: Update(customer="C-0001", version=1, changes=Changes(phone=text)),
    ),
    "list_documents.query": (list_documents, lambda text: DocumentsOf(query=text)),
    "delete_document.document": (delete_document, lambda text: Delete(document=text)),
}
MISSES = {"not_found", "no_results", "invalid_input"}


@pytest.mark.parametrize(
    "fragments", [FRAGMENTS[:4], pytest.param(FRAGMENTS, marks=pytest.mark.full)], ids=["some", "all"]
)
async def test_text_that_names_nothing_finds_nothing_and_touches_nothing(desk: Desk, fragments: list[str]) -> None:
    """Whatever the text is, it is a typed refusal or an empty list, and all rows are as before."""
    wrong, rows = [], await desk.digest()
    for (call, (tool, args)), text in product(CALLS.items(), fragments):
        ended, before, rows = await outcome(desk, tool, args(text)), rows, await desk.digest()
        if ended not in MISSES | {"nothing"} or rows != before:
            wrong.append((call, text, ended))

    assert wrong == []


async def outcome(desk: Desk, tool: Tool[..., Any], args: BaseModel) -> str:
    """The code of a refusal, `nothing` for an empty list, else what came back."""
    try:
        back = (await desk.do(tool, args)).model_dump()
    except Refused as refused:
        return refused.fault.code
    return "something" if any(back.values()) else "nothing"


async def test_a_name_is_stored_as_it_is(desk: Desk) -> None:
    """Names may look like anything, and come back the same."""
    wrong = []
    for version, text in enumerate(FRAGMENTS, start=1):
        changed = Update(customer="C-0001", version=version, changes=Changes(name=text))
        customer = await desk.do(update_customer, changed)
        booking = await desk.do(book_slot, Book(day=TODAY, at=time(14, 30), name=text))
        found = (await desk.do(list_bookings, BookingsOf(name=text))).bookings
        await desk.do(cancel_booking, Cancel(booking=booking.id))
        in_force = [one.id for one in found if one.cancelled is None]
        if (customer.name, booking.name, in_force) != (text, text, [booking.id]):
            wrong.append((text, customer, booking, in_force))

    assert wrong == []
