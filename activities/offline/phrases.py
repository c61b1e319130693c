"""The result of a completed step as one sentence, for kinds that Replan knows.

`{"expression": "1 + 1", "value": 2}` of `calculate` becomes "1 + 1 = 2.". Each function takes the result and today's
date. A result of another shape is no error: the planner then lists its fields.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal

from pydantic import BaseModel, JsonValue

from activities.offline.grammar import format_time
from activities.toolbox.documents.excerpt import DocumentText
from activities.toolbox.documents.search import Found
from activities.toolbox.expressions.calculate import Calculation, plain
from activities.toolbox.http.fetch_page import WebPage
from activities.toolbox.reasoning.compose import Composition
from activities.toolbox.reasoning.summarise import Summary
from activities.toolbox.write_file import Written

MAX_LISTED, MAX_TEXT = 8, 400
"""Items of a list, and characters of a text, that a sentence shows."""


class Booking(BaseModel):
    """A result of the kinds for bookings, as far as a sentence needs it; the models below likewise."""

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


def _booked(result: JsonValue, today: date) -> str:
    booking = Booking.model_validate(result)
    return f"Booked {format_time(booking.at)} {_day(booking.day, today)}{_whom(booking)}."


def _cancelled(result: JsonValue, today: date) -> str:
    booking = Booking.model_validate(result)
    return f"Cancelled booking {booking.id}: {format_time(booking.at)} {_day(booking.day, today)}{_whom(booking)}."


def _bookings(result: JsonValue, today: date) -> str:
    found = Bookings.model_validate(result).bookings
    words = (
        f"{one.id} {_day(one.day, today)} {format_time(one.at)} {one.name}{' (cancelled)' if one.cancelled else ''}"
        for one in found
    )
    return f"Bookings: {_several(words)}." if found else "There are no such bookings."


def _slots(result: JsonValue, today: date) -> str:
    slots = Slots.model_validate(result)
    day = _day(slots.day, today)
    return f"Free {day}: {_several(map(format_time, slots.free))}." if slots.free else f"Nothing is free {day}."


def _searched(result: JsonValue, _today: date) -> str:
    found = Found.model_validate(result)
    if not found.hits:
        return f"Nothing was found for {found.query}."
    best = found.hits[0]
    page = f" page {best.page}," if best.page else ""
    return f"{best.title}: {best.text} ({best.path},{page} line {best.line})"


def _calculated(result: JsonValue, _today: date) -> str:
    calculation = Calculation.model_validate(result)
    return f"{calculation.expression} = {plain(calculation.value)}."


def _read(result: JsonValue, _today: date) -> str:
    document = DocumentText.model_validate(result)
    return f"{document.title or document.name}: {_short(document.text)} ({document.name})"


def _fetched(result: JsonValue, _today: date) -> str:
    page = WebPage.model_validate(result)
    return f"{page.title or 'The page says'}: {_short(page.text)} ({page.url})"


def _summarised(result: JsonValue, _today: date) -> str:
    return f"In short: {Summary.model_validate(result).summary}"


def _composed(result: JsonValue, _today: date) -> str:
    return Composition.model_validate(result).text


def _saved(result: JsonValue, _today: date) -> str:
    file = Written.model_validate(result)
    return f"Saved {file.path} ({file.bytes:,} bytes)."


def _priced(result: JsonValue, _today: date) -> str:
    price = Article.model_validate(result)
    return f"{price.sku}, {price.name}: {price.price:.2f} EUR, {price.stock} in stock."


def _bought(result: JsonValue, _today: date) -> str:
    order = Order.model_validate(result)
    return f"Bought {_goods(order)}: order {order.id}."


def _refunded(result: JsonValue, _today: date) -> str:
    order = Order.model_validate(result)
    return f"Refunded order {order.id}: {_goods(order)}."


def _orders(result: JsonValue, _today: date) -> str:
    found = Orders.model_validate(result).orders
    words = (f"{one.id} {_goods(one)}{' (refunded)' if one.refunded else ''}" for one in found)
    return f"Orders: {_several(words, '; ')}." if found else "There are no such orders."


def _customers(result: JsonValue, _today: date) -> str:
    found = Customers.model_validate(result)
    more = " There are more." if found.more else ""
    return f"Customers: {_several(map(_customer, found.customers), '; ')}.{more}"


def _updated(result: JsonValue, _today: date) -> str:
    return f"Customer {_customer(Customer.model_validate(result))} is up to date."


def _documents(result: JsonValue, _today: date) -> str:
    found = Papers.model_validate(result).documents
    return f"Documents: {_several(one.name for one in found)}." if found else "There are no such documents."


def _deleted(result: JsonValue, _today: date) -> str:
    document = Paper.model_validate(result)
    return f"Deleted {document.name} ({document.title})."


PHRASES: Mapping[str, Callable[[JsonValue, date], str]] = {
    "book_slot": _booked,
    "list_slots": _slots,
    "list_bookings": _bookings,
    "cancel_booking": _cancelled,
    "search": _searched,
    "calculate": _calculated,
    "read_document": _read,
    "fetch_page": _fetched,
    "summarise": _summarised,
    "key_sentences": _summarised,
    "compose": _composed,
    "write_file": _saved,
    "get_price": _priced,
    "purchase": _bought,
    "refund": _refunded,
    "list_orders": _orders,
    "find_customer": _customers,
    "update_customer": _updated,
    "list_documents": _documents,
    "delete_document": _deleted,
}
"""By kind; a result of another shape raises a ValidationError."""


def _day(day: date, today: date) -> str:
    near = {today: "today", today + timedelta(days=1): "tomorrow"}
    return near.get(day, f"on {day}")


def _whom(booking: Booking) -> str:
    name = f"the {booking.name}" if booking.name[:1].islower() else booking.name
    return "" if booking.name == "me" else f" for {name.replace('the the ', 'the ')}"


def _customer(customer: Customer) -> str:
    return f"{customer.id} {customer.name}, {customer.email}, {customer.phone}"


def _goods(order: Order) -> str:
    each = "" if order.quantity == 1 else f" ({order.price:.2f} each)"
    return f"{order.quantity} of {order.sku} for {order.price * order.quantity:.2f} EUR{each}"


def _several(words: Iterable[str], joint: str = ", ") -> str:
    """The first items, and how many more there are."""
    every = list(words)
    more = len(every) - MAX_LISTED
    return joint.join(every[:MAX_LISTED]) + (f" and {more} more" if more > 0 else "")


def _short(text: str) -> str:
    """The beginning of a text, on one line."""
    line = " ".join(text[: 2 * MAX_TEXT].split())
    return line if len(line) <= MAX_TEXT else f"{line[:MAX_TEXT].rsplit(' ', 1)[0]} …"
