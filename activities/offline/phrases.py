"""Writes the result of a completed step as one sentence, for the built-in kinds and those of the demo.

`{"expression": "1 + 1", "value": 2}` of `calculate` becomes "1 + 1 = 2.".
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import TypeVar

from pydantic import BaseModel, JsonValue

from activities.offline.grammar import format_time
from activities.toolbox.documents.excerpt import DocumentText
from activities.toolbox.documents.search import Found
from activities.toolbox.expressions.calculate import Calculation, plain
from activities.toolbox.http.fetch_page import WebPage
from activities.toolbox.reasoning.compose import Composition
from activities.toolbox.reasoning.summarise import Summary
from activities.toolbox.workspace import Written

MAX_LISTED, MAX_TEXT = 8, 400  # items of a list, and characters of a text, that a sentence shows


class Booking(BaseModel):
    """The fields of a booking that a sentence needs; the models below have the fields of other results."""

    id: int
    day: date
    at: time
    name: str
    cancelled: datetime | None = None


class Bookings(BaseModel):
    bookings: list[Booking]


class Slots(BaseModel):
    day: date
    free: list[time]


class Article(BaseModel):
    sku: str
    name: str
    price: Decimal
    stock: int


class Order(BaseModel):
    id: int
    sku: str
    quantity: int
    price: Decimal
    refunded: datetime | None = None


class Orders(BaseModel):
    orders: list[Order]


class Customer(BaseModel):
    id: str
    name: str
    email: str
    phone: str


class Customers(BaseModel):
    customers: list[Customer]
    more: bool = False


class Paper(BaseModel):
    name: str
    title: str


class Papers(BaseModel):
    documents: list[Paper]


Result = TypeVar("Result", bound=BaseModel)
Phrase = Callable[[JsonValue, date], str]


def _phrase(model: type[Result], write: Callable[[Result, date], str]) -> Phrase:
    return lambda result, today: write(model.model_validate(result), today)


def _slots(slots: Slots, today: date) -> str:
    day = _day(slots.day, today)
    return f"Free {day}: {_several(map(format_time, slots.free))}." if slots.free else f"Nothing is free {day}."


def _bookings(found: Bookings, today: date) -> str:
    words = (
        f"{one.id} {_day(one.day, today)} {format_time(one.at)} {one.name}{' (cancelled)' if one.cancelled else ''}"
        for one in found.bookings
    )
    return f"Bookings: {_several(words)}." if found.bookings else "There are no such bookings."


def _hits(found: Found, _today: date) -> str:
    if not found.hits:
        return f"Nothing was found for {found.query}."
    best = found.hits[0]
    page = f" page {best.page}," if best.page else ""
    return f"{best.title}: {best.text} ({best.path},{page} line {best.line})"


def _orders(found: Orders, _today: date) -> str:
    words = (f"{one.id} {_goods(one)}{' (refunded)' if one.refunded else ''}" for one in found.orders)
    return f"Orders: {_several(words, '; ')}." if found.orders else "There are no such orders."


def _customers(found: Customers, _today: date) -> str:
    more = " There are more." if found.more else ""
    return f"Customers: {_several(map(_customer, found.customers), '; ')}.{more}"


def _documents(found: Papers, _today: date) -> str:
    names = _several(one.name for one in found.documents)
    return f"Documents: {names}." if names else "There are no such documents."


_SUMMARY = _phrase(Summary, lambda result, _: f"In short: {result.summary}")
PHRASES: Mapping[str, Phrase] = {
    "book_slot": _phrase(Booking, lambda booking, today: f"Booked {_slot(booking, today)}."),
    "list_slots": _phrase(Slots, _slots),
    "list_bookings": _phrase(Bookings, _bookings),
    "cancel_booking": _phrase(
        Booking, lambda booking, today: f"Cancelled booking {booking.id}: {_slot(booking, today)}."
    ),
    "search": _phrase(Found, _hits),
    "calculate": _phrase(Calculation, lambda result, _: f"{result.expression} = {plain(result.value)}."),
    "read_document": _phrase(
        DocumentText, lambda text, _: f"{text.title or text.name}: {_short(text.text)} ({text.name})"
    ),
    "fetch_page": _phrase(
        WebPage, lambda page, _: f"{page.title or 'The page says'}: {_short(page.text)} ({page.url})"
    ),
    "summarise": _SUMMARY,
    "key_sentences": _SUMMARY,
    "compose": _phrase(Composition, lambda result, _: result.text),
    "write_file": _phrase(Written, lambda file, _: f"Saved {file.path} ({file.bytes:,} bytes)."),
    "get_price": _phrase(Article, lambda one, _: f"{one.sku}, {one.name}: {one.price:.2f} EUR, {one.stock} in stock."),
    "purchase": _phrase(Order, lambda order, _: f"Bought {_goods(order)}: order {order.id}."),
    "refund": _phrase(Order, lambda order, _: f"Refunded order {order.id}: {_goods(order)}."),
    "list_orders": _phrase(Orders, _orders),
    "find_customer": _phrase(Customers, _customers),
    "update_customer": _phrase(Customer, lambda customer, _: f"Customer {_customer(customer)} is up to date."),
    "list_documents": _phrase(Papers, _documents),
    "delete_document": _phrase(Paper, lambda paper, _: f"Deleted {paper.name} ({paper.title})."),
}
"""For each kind, the function that makes the sentence from the result and today's date.

It raises ValidationError if the result does not fit the kind's model in this file.
"""


def _slot(booking: Booking, today: date) -> str:
    name = f"the {booking.name}" if booking.name[:1].islower() else booking.name
    whom = "" if booking.name == "me" else f" for {name.replace('the the ', 'the ')}"
    return f"{format_time(booking.at)} {_day(booking.day, today)}{whom}"


def _day(day: date, today: date) -> str:
    near = {today: "today", today + timedelta(days=1): "tomorrow"}
    return near.get(day, f"on {day}")


def _customer(customer: Customer) -> str:
    return f"{customer.id} {customer.name}, {customer.email}, {customer.phone}"


def _goods(order: Order) -> str:
    each = "" if order.quantity == 1 else f" ({order.price:.2f} each)"
    return f"{order.quantity} of {order.sku} for {order.price * order.quantity:.2f} EUR{each}"


def _several(words: Iterable[str], joint: str = ", ") -> str:
    every = list(words)
    more = len(every) - MAX_LISTED
    return joint.join(every[:MAX_LISTED]) + (f" and {more} more" if more > 0 else "")


def _short(text: str) -> str:
    line = " ".join(text[: 2 * MAX_TEXT].split())
    return line if len(line) <= MAX_TEXT else f"{line[:MAX_TEXT].rsplit(' ', 1)[0]} …"
