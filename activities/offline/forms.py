"""The forms of the offline planner, by subject; a clause of a task is read by the first form that it matches.

For example `calculate 18% of 2450` matches the pattern of `calculate`, whose function reads the rest as the argument
`expression`. The function returns None if a part of the clause is ambiguous; then the next form is tried.
"""

import re
from collections.abc import Callable
from datetime import date, time
from decimal import ROUND_DOWN, Decimal

from pydantic import JsonValue

from activities.offline.grammar import (
    CUSTOMER,
    WEEKDAYS,
    CallResult,
    Calls,
    Form,
    PlannedCall,
    Pronoun,
    Read,
    Referent,
    Value,
    format_time,
    parse_day,
    parse_time,
    read_name,
    read_words,
    unquote,
)
from activities.toolbox.expressions.expression import unknown_words

NUMBER = Referent(
    "the number of an earlier calculation, price or order",
    "Write the number instead",
    {"calculate": "value", "get_price": "price", "purchase": "total", "refund": "total"},
)
_TEXTS = {"search": "hits.0.text", "read_document": "text", "fetch_page": "text"}
TEXT = Referent("a text that was found, read or fetched before", "Name the document or the URL instead", _TEXTS)
CONTENT = Referent(
    "a text or a number that an earlier clause brings",
    "Write the text in quotation marks instead",
    {**_TEXTS, "summarise": "summary", "calculate": "value"},
)
SUMMARY = Referent(
    "the summary that an earlier clause makes", "Ask for it first: summarise document NAME", {"summarise": "summary"}
)
PAGE = Referent("the page that an earlier clause fetches", "Ask for it first: fetch URL", {"fetch_page": "text"})
DOCUMENT = Referent("a document that was searched for before", "Name the document instead", {"search": "hits.0.path"})
BOOKING = Referent("a booking that was made before", "Write its number instead, as in booking 12", {"book_slot": "id"})
BOOKED_DAY = Referent(BOOKING.description, BOOKING.remedy, {"book_slot": "day", "list_bookings": "bookings.0.day"})
BOOKED_NAME = Referent(BOOKING.description, BOOKING.remedy, {"book_slot": "name", "list_bookings": "bookings.0.name"})
ORDER = Referent("an order that was made before", "Write its number instead, as in order 12", {"purchase": "id"})
_FOUND = "a customer that was found by its id before (by a name several may be found)"
_FIND = "Write the id instead, as in customer C-0001"
CUSTOMER_ID = Referent(_FOUND, _FIND, {"find_customer": "customers.0.id", "update_customer": "id"})
CUSTOMER_VERSION = Referent(_FOUND, _FIND, {"find_customer": "customers.0.version", "update_customer": "version"})

IT = r"(?:it|that|the\s+result)"
THEM = r"(?:them|these|those|the\s+results)"
QUOTED = r"\"[^\"]+\"|\u201c[^\u201d]+\u201d|'[^']+'"
_WORD = r"[^\s\"'\u201c\u201d,;]+"
NAME = rf"(?:{QUOTED}|{_WORD})"  # one word, or several in quotation marks
FILE = rf"(?:{QUOTED}|(?=\S*[^\s.,;][.\-_/][^\s.,;]){_WORD})"
"""A file name that cannot be an ordinary word: it has `.`, `-`, `_` or `/` inside, or is in quotation marks."""


def pronoun(said: str, referent: Referent) -> Pronoun | None:
    if re.fullmatch(IT, said, re.IGNORECASE):
        return Pronoun(referent)
    return Pronoun(referent, is_plural=True) if re.fullmatch(THEM, said, re.IGNORECASE) else None


def number_or_pronoun(said: str, referent: Referent) -> JsonValue | Pronoun:
    digits = re.search(r"[0-9]+", said)
    if digits:
        return int(digits.group())
    return Pronoun(referent, is_plural=bool(re.fullmatch(THEM, said, re.IGNORECASE)))


def _form(kinds: str, spelling: str, example: str, pattern: str, read: Read) -> Form:
    return Form(tuple(kinds.split()), spelling, example, re.compile(pattern, re.IGNORECASE | re.DOTALL), read)


def _with_name(kind: str, id: str, argument: str, title: str, read: Callable[[str], str | None]) -> Read:
    """Make the `read` function for a call with at most one argument, as in `list the orders of A-17`."""

    def calls(found: re.Match[str], _today: date) -> Calls | None:
        value = read(found[argument]) if found[argument] else ""
        if value is None:
            return None
        return (PlannedCall(kind, id, {argument: value} if value else {}, f"{title} {value}" if value else id),)

    return calls


def _with_number(kind: str, verb: str, argument: str, referent: Referent) -> Read:
    """Make the `read` function for a call about a number or a pronoun, as in `cancel booking 12` or `cancel it`."""

    def calls(found: re.Match[str], _today: date) -> Calls:
        number = number_or_pronoun(found[argument], referent)
        title = f"{verb} {argument} {number}" if isinstance(number, int) else f"{verb} {{it}}"
        return (PlannedCall(kind, verb, {argument: number}, title),)

    return calls


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


def _name(said: str) -> str | None:
    name = read_name(said)
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
    return (PlannedCall("book_slot", "book", {"day": day.isoformat(), "at": format_time(at), "name": name}, title),)


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
    to = _moment(found["to"], today)
    booking = number_or_pronoun(found["booking"], BOOKING)
    if to is None or (isinstance(booking, Pronoun) and booking.is_plural):
        return None
    day, at = to
    is_id = isinstance(booking, int)
    what = f"booking {booking}" if is_id else "{it}"
    look = (PlannedCall("list_bookings", "booking", {"booking": booking}, what),) if is_id else ()
    name, its_day = (CallResult(0, one) if is_id else Pronoun(one) for one in (BOOKED_NAME, BOOKED_DAY))
    args = {"day": day.isoformat() if day else its_day, "at": format_time(at), "name": name}
    # Book before cancelling: if the new slot is rejected, the old booking still stands.
    book = PlannedCall("book_slot", "move", args, f"{what} to {f'{day} ' if day else ''}{format_time(at)}")
    return (*look, book, PlannedCall("cancel_booking", "cancel", {"booking": booking}, f"cancel {what}", is_last=True))


def _moment(said: str, today: date) -> tuple[date | None, time] | None:
    """Read a time, or a day and a time; None if it cannot be read. A day of None means the day of the old booking."""
    words = re.sub(r"^(?:on|at)\s+", "", said.strip(), flags=re.IGNORECASE).split()
    for count in (1, 2, 3):
        at = parse_time(" ".join(words[-count:])) if count <= len(words) else None
        if at is None:
            continue
        before = re.sub(r"[\s,]*\bat$", "", " ".join(words[:-count]), flags=re.IGNORECASE)
        day = parse_day(before, today) if before else None
        if day is not None or not before:
            return day, at
    return None


CALENDAR = (
    _form(
        "book_slot",
        "book a slot [for NAME] [on DATE] at 14:00",
        "book a slot for the team on Friday at 14:00",
        r"(?:book|reserve)(?:\s+(?:me|us))?(?:\s+(?:an?|the|one))?(?:\s+free)?\s+(?:time\s+)?slot\b(?P<rest>.*)",
        _book,
    ),
    _form(
        "list_bookings book_slot cancel_booking",
        "move booking 12 to [DATE] 15:00",
        "move booking 12 to Monday 15:00",
        rf"(?:move|reschedule)\s+(?P<booking>{_BOOKING}|{IT})\s+to\s+(?P<to>.+)",
        _move,
    ),
    _form(
        "cancel_booking",
        "cancel booking 12",
        "book a slot at 14:00, book a slot at 15:00, then cancel them",
        rf"cancel\s+(?P<booking>{_BOOKING}|{IT}|{THEM})",
        _with_number("cancel_booking", "cancel", "booking", BOOKING),
    ),
    _form(
        "list_slots",
        "list the free slots [on DATE]",
        "list the free slots on 24 November",
        r"(?:list|show)(?:\s+(?:me|us))?(?:\s+(?:all|the|any))*(?:\s+(?:free|open|available))?\s+slots\b(?P<rest>.*)",
        _list_slots,
    ),
    _form(
        "list_bookings",
        "list the bookings [for NAME]",
        "list the bookings for Ada",
        r"(?:list|show)(?:\s+(?:me|us))?(?:\s+(?:all|the|my|our))*\s+bookings(?:\s+(?:for|of)\s+(?P<name>.+))?",
        _with_name("list_bookings", "bookings", "name", "bookings for", _name),
    ),
)


_DOCUMENTS = r"(?:(?:the|my|our|all|these)\s+)*(?:documents?|docs|files)"
_DOCUMENT = r"(?:the\s+)?(?:document|file)\s+"
_URL = r"https?://\S+"
_SAVED = {"the summary": SUMMARY, "the page": PAGE, "the text": TEXT}


def _search(found: re.Match[str], _today: date) -> Calls | None:
    said = found["query"] or found["named"]
    query = read_words(re.sub(r"^(?:the|our|your|a|an)\s+", "", said.strip(), flags=re.IGNORECASE))
    return (PlannedCall("search", "search", {"query": query}, query),) if query else None


def _read(found: re.Match[str], _today: date) -> Calls:
    name = pronoun(found["name"], DOCUMENT) or unquote(found["name"])
    title = "read {it}" if isinstance(name, Pronoun) else f"read {name}"
    return (PlannedCall("read_document", "read", {"name": name}, title),)


def _summarise(found: re.Match[str], _today: date) -> Calls | None:
    said, count = found["what"], found["count"]
    sentences: dict[str, Value] = {"sentences": int(count)} if count else {}
    text = pronoun(said, TEXT)
    if text is not None:
        return (PlannedCall("summarise", "summarise", {"text": text, **sentences}, "summary of {it}"),)
    name = unquote(said)
    if re.fullmatch(_URL, name, re.IGNORECASE):
        first = PlannedCall("fetch_page", "fetch", {"url": name}, name)
    else:
        first = PlannedCall("read_document", "read", {"name": name}, f"read {name}")
    args = {"text": CallResult(0, TEXT), **sentences}
    return (first, PlannedCall("summarise", "summarise", args, f"summary of {name}"))


def _save(found: re.Match[str], _today: date) -> Calls | None:
    said, name = found["what"], unquote(found["name"])
    referent = _SAVED.get(" ".join(said.lower().split()), CONTENT)
    # No plural here: a second text in the same file would replace the first.
    content = unquote(said) if re.fullmatch(QUOTED, said) else Pronoun(referent)
    return (PlannedCall("write_file", "save", {"name": name, "content": content}, f"save {name}"),)


def _delete(found: re.Match[str], _today: date) -> Calls:
    name = unquote(found["name"])
    return (PlannedCall("delete_document", "delete", {"document": name}, f"delete {name}"),)


PAPERS = (
    _form(
        "search",
        "search the documents for WORDS",
        "search the documents for the refund policy",
        rf"(?:search|look)(?:\s+(?:in|through))?(?:\s+{_DOCUMENTS})?\s+for\s+(?P<query>.+)"
        rf"|find\s+(?P<named>.+?)\s+in\s+{_DOCUMENTS}",
        _search,
    ),
    _form(
        "fetch_page",
        "fetch URL",
        "fetch https://example.org/prices",
        rf"(?:fetch|get|open|load|download|read)\s+(?:(?:the\s+)?(?:web\s*)?(?:page|url|site)\s+)?(?P<url>{_URL})",
        lambda found, _today: (PlannedCall("fetch_page", "fetch", {"url": found["url"]}, found["url"]),),
    ),
    _form(
        "read_document",
        "read document NAME",
        "search the documents for refunds then read it",
        rf"(?:read|open)\s+(?:{_DOCUMENT}|(?={IT}\b|{THEM}\b|{FILE}))(?P<name>{IT}|{NAME})",
        _read,
    ),
    _form(
        "read_document summarise",
        "summarise document NAME [in 3 sentences]",
        "read refund-policy.md, summarise it in 2 sentences and save it to summary.md",
        rf"summari[sz]e\s+(?:{_DOCUMENT}|(?:the\s+page\s+)?(?={_URL}|{IT}\b|{THEM}\b|{FILE}))"
        rf"(?P<what>{_URL}|{IT}|{THEM}|{NAME})"
        r"(?:\s+in\s+(?P<count>[1-9]|1[0-9]|20)\s+sentences?)?",
        _summarise,
    ),
    _form(
        "write_file",
        "save it to FILE",
        "fetch https://example.org/prices then save it to prices.md",
        rf"(?:save|write|store)\s+(?P<what>{IT}|the\s+(?:summary|page|text)|{QUOTED})"
        rf"\s+(?:to|in|into|as)\s+(?:(?:the\s+|a\s+)?file\s+)?(?P<name>{NAME})",
        _save,
    ),
    _form(
        "list_documents",
        "list the documents [about WORD]",
        "list the documents about returns",
        r"(?:list|show)(?:\s+(?:me|us))?(?:\s+(?:all|the|my|our))*\s+documents"
        r"(?:\s+(?:about|on|named|called)\s+(?P<query>.+))?",
        _with_name("list_documents", "documents", "query", "documents about", read_words),
    ),
    _form(
        "delete_document",
        "delete document NAME",
        "delete document returns-checklist",
        rf"(?:delete|remove)\s+(?:the\s+)?document\s+(?P<name>{NAME})",
        _delete,
    ),
)


_CENT = Decimal("0.01")
_ORDER = r"(?:(?:the|my|our)\s+)?order\s+(?:no\.?\s*|#\s*)?[0-9]{1,9}"
_MONEY = r"(?:EUR\s*|\u20ac\s*)?(?P<most>[0-9]{1,9}(?:\.[0-9]{1,2})?)(?:\s*(?:EUR|euros?|\u20ac))?"
_FIELD = r"e-?mail(?:\s+address)?|phone(?:\s+number)?|name"
_CHANGE = re.compile(rf"(?P<field>{_FIELD})(?:\s+(?:to|is)\b|\s*[:=])?\s+(?P<value>.+)", re.IGNORECASE | re.DOTALL)


def _article(said: str) -> str | None:
    words = read_name(said)
    return words.upper() if words and re.fullmatch(r"[A-Za-z]{1,3}-[0-9]+", words) else words


def _buy(found: re.Match[str], _today: date) -> Calls | None:
    """Buy with a price limit for one piece; a limit for all pieces is divided by their number and rounded down."""
    quantity, most, sku = int(found["quantity"] or 1), Decimal(found["most"]), _article(found["sku"])
    if not (quantity and sku):
        return None
    if found["all"]:
        most = (most / quantity).quantize(_CENT, ROUND_DOWN)
    args: dict[str, Value] = {"sku": sku, "quantity": quantity, "at_most": str(most)}
    return (PlannedCall("purchase", "buy", args, f"{quantity} of {sku} for at most {most} each"),)


def _find(found: re.Match[str], _today: date) -> Calls | None:
    query = read_name(found["query"]) or ""
    query = query.upper() if re.fullmatch(CUSTOMER, query.upper()) else query
    return (PlannedCall("find_customer", "customer", {"query": query}, f"customer {query}"),) if query else None


def _change(found: re.Match[str], _today: date) -> Calls | None:
    changes = _changes(found["changes"])
    if changes is None:
        return None
    args: dict[str, Value]
    title = ", ".join(f"{field} {value}" for field, value in changes.items())
    if not found["id"]:
        args = {"customer": Pronoun(CUSTOMER_ID), "version": Pronoun(CUSTOMER_VERSION), "changes": changes}
        return (PlannedCall("update_customer", "update", args, f"{{it}}: {title}"),)
    # Find the customer first: a change must name the version that was read.
    id = found["id"].upper()
    look = PlannedCall("find_customer", "customer", {"query": id}, f"customer {id}")
    args = {"customer": id, "version": CallResult(0, CUSTOMER_VERSION), "changes": changes}
    return (look, PlannedCall("update_customer", "update", args, f"{id}: {title}"))


def _changes(said: str) -> dict[str, JsonValue] | None:
    changes = dict[str, JsonValue]()
    for part in re.split(rf"(?:\s*,\s*(?:and\s+)?|\s+and\s+)(?:(?:his|her|its|their|the)\s+)?(?=(?:{_FIELD})\b)", said):
        one = _CHANGE.fullmatch(part.strip())
        if one is None:
            return None
        field, value = one["field"].split()[0].lower().replace("-", ""), read_name(one["value"])
        if field in changes or not value:
            return None
        changes[field] = value
    return changes


SHOP = (
    _form(
        "get_price",
        "get the price of A-17",
        "get the price of A-17 and calculate 3 * it",
        r"(?:get|check|look\s+up|show(?:\s+me)?|what(?:['\u2019]s|\s+is))\s+(?:the\s+)?price\s+(?:of|for)\s+(?P<sku>.+)",
        _with_name("get_price", "price", "sku", "price of", _article),
    ),
    _form(
        "purchase",
        "buy 2 of A-17 for at most 24.50 [each | in all]",
        "buy 2 of A-17 for at most 24.50 each",
        r"(?:buy|purchase|order)\s+(?:(?P<quantity>[0-9]{1,6})\s+(?:pieces?\s+)?(?:of\s+|x\s+)?)?(?P<sku>\S.*?)\s+"
        rf"(?:for|at)\s+(?:at\s+most|no\s+more\s+than|up\s+to)\s+{_MONEY}"
        r"(?:\s+(?:(?P<each>each|apiece|per\s+piece|a\s+piece)|(?P<all>in\s+all|in\s+total|all\s+together|together)))?",
        _buy,
    ),
    _form(
        "refund",
        "refund order 12",
        "buy 1 of A-17 for at most 24.50 then refund it",
        rf"refund\s+(?P<order>{_ORDER}|{IT}|{THEM})",
        _with_number("refund", "refund", "order", ORDER),
    ),
    _form(
        "list_orders",
        "list the orders [of A-17]",
        "list the orders of A-17",
        r"(?:list|show)(?:\s+(?:me|us))?(?:\s+(?:all|the|my|our|latest))*\s+orders(?:\s+(?:for|of)\s+(?P<sku>.+))?",
        _with_name("list_orders", "orders", "sku", "orders of", _article),
    ),
    _form(
        "find_customer",
        "find customer NAME",
        "find customer Ada Brook",
        r"(?:find|look\s+up|look\s+for)\s+(?:the\s+)?customer\s+(?P<query>.+)",
        _find,
    ),
    _form(
        "find_customer update_customer",
        "update customer C-0001: e-mail X [, phone X] [, name X]",
        "update customer C-0001: e-mail ada@mail.example, phone +49 30 1234567",
        rf"(?:update|change)\s+(?:(?:the\s+)?customer\s+(?P<id>{CUSTOMER})|{IT}|(?:the\s+|this\s+|that\s+)customer)"
        rf"(?:['\u2019]s)?(?:\s*[:,]\s*|\s+)(?P<changes>(?:{_FIELD})\b.+)",
        _change,
    ),
)


def _calculation(found: re.Match[str], _today: date) -> Calls | None:
    expression = re.sub(r"\b(?:the result|that)\b", "it", found["expression"], flags=re.IGNORECASE).strip(" =\n")
    has_it = re.search(r"\bit\b", expression) is not None
    if not (has_it or re.search(r"[0-9]", expression)) or unknown_words(expression):
        return None
    args: dict[str, Value] = {"expression": expression, **({"it": Pronoun(NUMBER)} if has_it else {})}
    return (PlannedCall("calculate", "calculate", args, expression),)


NUMBERS = (
    _form(
        "calculate",
        "calculate 18% of 2450",
        "calculate 18% of 2450 then calculate 10% of it",
        r"(?:calculate|compute|work\s+out)\s+(?P<expression>.+)",
        _calculation,
    ),
    _form(
        "calculate",
        "what is 18% of 2450 (for other questions: search the documents for WORDS)",
        "what is 18% of 2450",
        r"(?:what(?:['\u2019]s|\s+is)|how\s+much\s+is)\s+(?P<expression>.+)",
        _calculation,
    ),
)


FORMS = (*CALENDAR, *PAPERS, *SHOP, *NUMBERS)
