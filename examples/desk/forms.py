"""How people write requests for the front desk, which the offline planner understands, and how it lists results."""

import re
from collections.abc import Callable, Iterable
from datetime import date, time
from decimal import ROUND_DOWN, Decimal
from typing import Any

from replan.forms import (
    IT,
    NAME,
    NUMBER,
    THEM,
    WEEKDAYS,
    CallResult,
    Calls,
    Form,
    PlannedCall,
    Pronoun,
    Read,
    Referent,
    Things,
    Value,
    format_time,
    parse_day,
    parse_time,
    pronoun,
    read_name,
    read_words,
    unquote,
)

BOOKING = Referent("a booking that was made before", "Write its number instead, as in booking 12")
ORDER = Referent("an order that was made before", "Write its number instead, as in order 12")
CUSTOMER = Referent(
    "a customer that was found by its id before (by a name several may be found)",
    "Write the id instead, as in customer C-0001",
)
MAX_LISTED = 8


def listed(words: Iterable[str], joint: str = ", ") -> str:
    """The first words of a list as a part of a sentence, and how many more there are."""
    every = list(words)
    more = len(every) - MAX_LISTED
    return joint.join(every[:MAX_LISTED]) + (f" and {more} more" if more > 0 else "")


def _one_call(
    kind: str, id: str, argument: str, title: str, read: Callable[[str], str | None], things: Things | None = None
) -> Read:
    """Make the function of a form for a call with at most one argument, as in `list the orders of A-17`."""

    def calls(found: re.Match[str], _today: date) -> Calls | None:
        value = read(found[argument]) if found[argument] else ""
        if value is None:
            return None
        args: dict[str, Value] = {argument: value} if value else {}
        return (PlannedCall(kind, id, args, f"{title} {value}" if value else id, things or {}),)

    return calls


def _with_number(kind: str, verb: str, argument: str, referent: Referent, things: Things | None = None) -> Read:
    """Make the function of a form about a number or a pronoun, as in `cancel booking 12` or `cancel it`."""

    def calls(found: re.Match[str], _today: date) -> Calls:
        number = pronoun(found[argument], referent, "id") or _number(found[argument])
        title = f"{verb} {argument} {number}" if isinstance(number, int) else f"{verb} {{it}}"
        return (PlannedCall(kind, verb, {argument: number}, title, things or {}),)

    return calls


def _number(text: str) -> int:
    return int(re.sub(r"[^0-9]", "", text))


_ON = rf"today|tomorrow|(?:(?:this|next)\s+)?(?:{'|'.join(WEEKDAYS)})"
_PART = re.compile(rf"(?:^|(?<!next)(?<!this)\s+)(?=(?:for|on|at|{_ON})\b)", re.IGNORECASE)
_BOOKING = r"(?:(?:the|my|our)\s+)?booking\s+(?:no\.?\s*|#\s*)?[0-9]{1,9}"


def _parts(rest: str) -> dict[str, str] | None:
    """The words after `for`, `on` and `at`; None if there are other words, or one of these three comes twice."""
    parts = dict[str, str]()
    for part in filter(None, (part.strip(" ,\n") for part in _PART.split(rest))):
        word, _, value = part.partition(" ")
        if re.fullmatch(_ON, part.split(",")[0], re.IGNORECASE) or re.match(rf"(?:{_ON})\b", part, re.IGNORECASE):
            word, value = "on", part
        if word.lower() not in ("for", "on", "at") or (value and word.lower() in parts):
            return None
        if value:
            parts[word.lower()] = value
    return parts


def _name(text: str) -> str | None:
    name = read_name(text)
    return name and re.sub(r"^(?:the|my|our)\s+", "", name, flags=re.IGNORECASE)


def _book(found: re.Match[str], today: date) -> Calls | None:
    parts = _parts(found["rest"])
    if parts is None or "at" not in parts:
        return None
    day, at = parse_day(parts.get("on", "today"), today), parse_time(parts["at"])
    name = _name(parts.get("for", "me"))
    if day is None or at is None or not name:
        return None
    title = f"{name} {format_time(at)}" if day == today else f"{name} {day} {format_time(at)}"
    args: dict[str, Value] = {"day": day.isoformat(), "at": format_time(at), "name": name}
    return (PlannedCall("book_slot", "book", args, title, {BOOKING: ""}),)


def _list_slots(found: re.Match[str], today: date) -> Calls | None:
    parts = _parts(found["rest"])
    if parts is None or "at" in parts or len(parts) > 1:
        return None
    day = parse_day(next(iter(parts.values()), "today"), today)
    if day is None:
        return None
    title = f"free slots {'today' if day == today else day}"
    return (PlannedCall("list_slots", "slots", {"day": day.isoformat()}, title),)


def _move(found: re.Match[str], today: date) -> Calls | None:
    moment = _moment(found["to"], today)
    if moment is None:
        return None
    day, at = moment
    look: Calls = ()
    booking: Value = pronoun(found["booking"], BOOKING, "id")
    its_name: Value = Pronoun(BOOKING, "name")
    its_day: Value = Pronoun(BOOKING, "day")
    what = "{it}"
    if booking is None:
        booking = _number(found["booking"])
        its_name, its_day = CallResult(0, "bookings.0.name"), CallResult(0, "bookings.0.day")
        what = f"booking {booking}"
        look = (PlannedCall("list_bookings", "booking", {"booking": booking}, what),)
    args: dict[str, Value] = {"day": day.isoformat() if day else its_day, "at": format_time(at), "name": its_name}
    title = f"{what} to {f'{day} ' if day else ''}{format_time(at)}"
    # Book before cancelling: if the new slot is rejected, the old booking still stands.
    book = PlannedCall("book_slot", "move", args, title, {BOOKING: ""})
    cancel = PlannedCall("cancel_booking", "cancel", {"booking": booking}, f"cancel {what}", is_last=True)
    return (*look, book, cancel)


def _moment(text: str, today: date) -> tuple[date | None, time] | None:
    """Read a time, or a day and a time; None if it cannot be read. A day of None means the day of the old booking."""
    words = re.sub(r"^(?:on|at)\s+", "", text.strip(), flags=re.IGNORECASE).split()
    for count in (1, 2, 3):
        at = parse_time(" ".join(words[-count:])) if count <= len(words) else None
        if at is None:
            continue
        before = re.sub(r"[\s,]*\bat$", "", " ".join(words[:-count]), flags=re.IGNORECASE)
        day = parse_day(before, today) if before else None
        if day is not None or not before:
            return day, at
    return None


BOOK_SLOT = Form(
    "book a slot [for NAME] [on DATE] at 14:00",
    r"(?:book|reserve)(?:\s+(?:me|us))?(?:\s+(?:an?|the|one))?(?:\s+free)?\s+(?:time\s+)?slot\b(?P<rest>.*)",
    _book,
    example="book a slot for the team on Friday at 14:00",
)
MOVE_BOOKING = Form(
    "move booking 12 to [DATE] 15:00",
    rf"(?:move|reschedule)\s+(?P<booking>{_BOOKING}|{IT})\s+to\s+(?P<to>.+)",
    _move,
    example="move booking 12 to Monday 15:00",
    kinds=("list_bookings", "book_slot", "cancel_booking"),
)
CANCEL_BOOKING = Form(
    "cancel booking 12",
    rf"cancel\s+(?P<booking>{_BOOKING}|{IT}|{THEM})",
    _with_number("cancel_booking", "cancel", "booking", BOOKING),
    example="book a slot at 14:00, book a slot at 15:00, then cancel them",
)
LIST_SLOTS = Form(
    "list the free slots [on DATE]",
    r"(?:list|show)(?:\s+(?:me|us))?(?:\s+(?:all|the|any))*(?:\s+(?:free|open|available))?\s+slots\b(?P<rest>.*)",
    _list_slots,
    example="list the free slots on 24 November",
)
LIST_BOOKINGS = Form(
    "list the bookings [for NAME]",
    r"(?:list|show)(?:\s+(?:me|us))?(?:\s+(?:all|the|my|our))*\s+bookings(?:\s+(?:for|of)\s+(?P<name>.+))?",
    _one_call("list_bookings", "bookings", "name", "bookings for", _name),
    example="list the bookings for Ada",
)


LIST_DOCUMENTS = Form(
    "list the documents [about WORD]",
    r"(?:list|show)(?:\s+(?:me|us))?(?:\s+(?:all|the|my|our))*\s+documents"
    r"(?:\s+(?:about|on|named|called)\s+(?P<query>.+))?",
    _one_call("list_documents", "documents", "query", "documents about", read_words),
    example="list the documents about returns",
)
DELETE_DOCUMENT = Form(
    "delete document NAME",
    rf"(?:delete|remove)\s+(?:the\s+)?document\s+(?P<document>{NAME})",
    _one_call("delete_document", "delete", "document", "delete", unquote),
    example="delete document returns-checklist",
)


_CENT = Decimal("0.01")
_ORDER = r"(?:(?:the|my|our)\s+)?order\s+(?:no\.?\s*|#\s*)?[0-9]{1,9}"
_MONEY = r"(?:EUR\s*|\u20ac\s*)?(?P<most>[0-9]{1,9}(?:\.[0-9]{1,2})?)(?:\s*(?:EUR|euros?|\u20ac))?"
_CUSTOMER = r"[A-Z]{1,4}-[0-9]{1,12}"
_FIELD = r"e-?mail(?:\s+address)?|phone(?:\s+number)?|name"
_CHANGE = re.compile(rf"(?P<field>{_FIELD})(?:\s+(?:to|is)\b|\s*[:=])?\s+(?P<value>.+)", re.IGNORECASE | re.DOTALL)


def _article(text: str) -> str | None:
    words = read_name(text)
    return words.upper() if words and re.fullmatch(r"[A-Za-z]{1,3}-[0-9]+", words) else words


def _buy(found: re.Match[str], _today: date) -> Calls | None:
    """Buy with a price limit for one piece; a limit for all pieces is divided by their number and rounded down."""
    quantity, most, sku = int(found["quantity"] or 1), Decimal(found["most"]), _article(found["sku"])
    if not (quantity and sku):
        return None
    if found["all"]:
        most = (most / quantity).quantize(_CENT, ROUND_DOWN)
    args: dict[str, Value] = {"sku": sku, "quantity": quantity, "at_most": str(most)}
    title = f"{quantity} of {sku} for at most {most} each"
    return (PlannedCall("purchase", "buy", args, title, {ORDER: "", NUMBER: "total"}),)


def _find(found: re.Match[str], _today: date) -> Calls | None:
    query = read_name(found["query"]) or ""
    return (_find_call(query.upper() if re.fullmatch(_CUSTOMER, query.upper()) else query),) if query else None


def _find_call(query: str) -> PlannedCall:
    # A name may find several customers, and a change must not reach the wrong one: only an id is safe.
    things = {CUSTOMER: "customers.0"} if re.fullmatch(_CUSTOMER, query) else {}
    return PlannedCall("find_customer", "customer", {"query": query}, f"customer {query}", things)


def _change(found: re.Match[str], _today: date) -> Calls | None:
    changes = _changes(found["changes"])
    if changes is None:
        return None
    look: Calls = ()
    title, what, id = ", ".join(f"{field} {value}" for field, value in changes.items()), "{it}", found["id"]
    args: dict[str, Value] = {"customer": Pronoun(CUSTOMER, "id"), "version": Pronoun(CUSTOMER, "version")}
    if id:
        # Find the customer first: a change must name the version that was read.
        what = id.upper()
        look, args = (_find_call(what),), {"customer": what, "version": CallResult(0, "customers.0.version")}
    update = PlannedCall("update_customer", "update", {**args, "changes": changes}, f"{what}: {title}", {CUSTOMER: ""})
    return (*look, update)


def _changes(text: str) -> dict[str, Any] | None:
    changes = dict[str, Any]()
    for part in re.split(rf"(?:\s*,\s*(?:and\s+)?|\s+and\s+)(?:(?:his|her|its|their|the)\s+)?(?=(?:{_FIELD})\b)", text):
        change = _CHANGE.fullmatch(part.strip())
        if change is None:
            return None
        field, value = change["field"].split()[0].lower().replace("-", ""), read_name(change["value"])
        if field in changes or not value:
            return None
        changes[field] = value
    return changes


GET_PRICE = Form(
    "get the price of A-17",
    r"(?:get|check|look\s+up|show(?:\s+me)?|what(?:['\u2019]s|\s+is))\s+(?:the\s+)?price\s+(?:of|for)\s+(?P<sku>.+)",
    _one_call("get_price", "price", "sku", "price of", _article, {NUMBER: "price"}),
    example="get the price of A-17 and calculate 3 * it",
)
PURCHASE = Form(
    "buy 2 of A-17 for at most 24.50 [each | in all]",
    r"(?:buy|purchase|order)\s+(?:(?P<quantity>[0-9]{1,6})\s+(?:pieces?\s+)?(?:of\s+|x\s+)?)?(?P<sku>\S.*?)\s+"
    rf"(?:for|at)\s+(?:at\s+most|no\s+more\s+than|up\s+to)\s+{_MONEY}"
    r"(?:\s+(?:(?P<each>each|apiece|per\s+piece|a\s+piece)|(?P<all>in\s+all|in\s+total|all\s+together|together)))?",
    _buy,
    example="buy 2 of A-17 for at most 24.50 each",
)
REFUND = Form(
    "refund order 12",
    rf"refund\s+(?P<order>{_ORDER}|{IT}|{THEM})",
    _with_number("refund", "refund", "order", ORDER, {NUMBER: "total"}),
    example="buy 1 of A-17 for at most 24.50 then refund it",
)
LIST_ORDERS = Form(
    "list the orders [of A-17]",
    r"(?:list|show)(?:\s+(?:me|us))?(?:\s+(?:all|the|my|our|latest))*\s+orders(?:\s+(?:for|of)\s+(?P<sku>.+))?",
    _one_call("list_orders", "orders", "sku", "orders of", _article),
    example="list the orders of A-17",
)
FIND_CUSTOMER = Form(
    "find customer NAME",
    # Not `find customer complaints in the documents`, which is a search.
    r"(?!find\s.+\sin\s+(?:(?:the|my|our|all|these)\s+)*(?:documents?|docs|files)$)"
    r"(?:find|look\s+up)\s+(?:the\s+)?customer\s+(?P<query>.+)",
    _find,
    example="find customer Ada Brook",
)
UPDATE_CUSTOMER = Form(
    "update customer C-0001: e-mail X [, phone X] [, name X]",
    rf"(?:update|change)\s+(?:(?:the\s+)?customer\s+(?P<id>{_CUSTOMER})|{IT}|(?:the\s+|this\s+|that\s+)customer)"
    rf"(?:['\u2019]s)?(?:\s*[:,]\s*|\s+)(?P<changes>(?:{_FIELD})\b.+)",
    _change,
    example="update customer C-0001: e-mail ada@mail.example, phone +49 30 1234567",
    kinds=("find_customer", "update_customer"),
)
