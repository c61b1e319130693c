"""The forms, by subject; the first form that a clause matches is meant.

Each has a pattern, how to write it, an example, and a function that reads a match as calls. For example `calculate 18%
of 2450` matches the pattern of `calculate`, which reads the rest as the argument `expression`. A clause with an
ambiguous part is read by no form, rather than guessed.
"""

import re
from datetime import date, time
from decimal import ROUND_DOWN, Decimal

from pydantic import JsonValue

from activities.offline.grammar import (
    BOOKED_DAY,
    BOOKED_NAME,
    BOOKING,
    CONTENT,
    CUSTOMER,
    CUSTOMER_ID,
    CUSTOMER_VERSION,
    DOCUMENT,
    FILE,
    IT,
    NAME,
    NUMBER,
    ORDER,
    PAGE,
    QUOTED,
    SUMMARY,
    TEXT,
    THEM,
    WEEKDAYS,
    CallResult,
    Calls,
    PlannedCall,
    Pronoun,
    Value,
    format_time,
    make_form,
    name_or_pronoun,
    number_or_pronoun,
    parse_day,
    parse_time,
    pronoun,
    unquote,
)
from activities.toolbox.expressions.expression import unknown_words

_ON = rf"today|tomorrow|(?:(?:this|next)\s+)?(?:{'|'.join(WEEKDAYS)})"
_PART = re.compile(rf"(?:^|(?<!next)(?<!this)\s+)(?=(?:for|on|at|{_ON})\b)", re.IGNORECASE)
_BOOKING = r"(?:(?:the|my|our)\s+)?booking\s+(?:no\.?\s*|#\s*)?[0-9]{1,9}"


def _parts(rest: str) -> dict[str, str] | None:
    """The words after `for`, `on` and `at`; None if there is anything else, or one of them twice."""
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


def _name(said: str) -> str:
    return re.sub(r"^(?:the|my|our)\s+", "", unquote(said), flags=re.IGNORECASE)


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
    """Book first, then cancel: if the new slot is rejected, the old booking is still there."""
    to = _moment(found["to"], today)
    booking = number_or_pronoun(found["booking"], BOOKING)
    if to is None or (isinstance(booking, Pronoun) and booking.is_plural):
        return None
    day, at = to
    what = f"booking {booking}" if isinstance(booking, int) else "{it}"
    is_looked_up = isinstance(booking, int)
    look = (PlannedCall("list_bookings", "booking", {"booking": booking}, what),) if is_looked_up else ()
    name, its_day = (
        CallResult(0, referent) if is_looked_up else Pronoun(referent) for referent in (BOOKED_NAME, BOOKED_DAY)
    )
    args = {"day": day.isoformat() if day else its_day, "at": format_time(at), "name": name}
    book = PlannedCall("book_slot", "move", args, f"{what} to {f'{day} ' if day else ''}{format_time(at)}")
    return (*look, book, PlannedCall("cancel_booking", "cancel", {"booking": booking}, f"cancel {what}", is_last=True))


def _moment(said: str, today: date) -> tuple[date | None, time] | None:
    """A time, or a day and a time; None as the day means that it stays."""
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


def _cancel(found: re.Match[str], _today: date) -> Calls:
    booking = number_or_pronoun(found["booking"], BOOKING)
    what = f"booking {booking}" if isinstance(booking, int) else "{it}"
    return (PlannedCall("cancel_booking", "cancel", {"booking": booking}, f"cancel {what}"),)


def _list_bookings(found: re.Match[str], _today: date) -> Calls:
    name = _name(found["name"]) if found["name"] else ""
    title = f"bookings for {name}" if name else "bookings"
    return (PlannedCall("list_bookings", "bookings", {"name": name} if name else {}, title),)


CALENDAR = (
    make_form(
        "book_slot",
        "book a slot [for NAME] [on DATE] at 14:00",
        "book a slot for the team on Friday at 14:00",
        r"(?:book|reserve)(?:\s+(?:me|us))?(?:\s+(?:an?|the|one))?(?:\s+free)?\s+(?:time\s+)?slot\b(?P<rest>.*)",
        _book,
    ),
    make_form(
        "list_bookings book_slot cancel_booking",
        "move booking 12 to [DATE] 15:00",
        "move booking 12 to Monday 15:00",
        rf"(?:move|reschedule)\s+(?P<booking>{_BOOKING}|{IT})\s+to\s+(?P<to>.+)",
        _move,
    ),
    make_form(
        "cancel_booking",
        "cancel booking 12",
        "book a slot at 14:00, book a slot at 15:00, then cancel them",
        rf"cancel\s+(?P<booking>{_BOOKING}|{IT}|{THEM})",
        _cancel,
    ),
    make_form(
        "list_slots",
        "list the free slots [on DATE]",
        "list the free slots on 24 November",
        r"(?:list|show)(?:\s+(?:me|us))?(?:\s+(?:all|the|any))*(?:\s+(?:free|open|available))?\s+slots\b(?P<rest>.*)",
        _list_slots,
    ),
    make_form(
        "list_bookings",
        "list the bookings [for NAME]",
        "list the bookings for Ada",
        r"(?:list|show)(?:\s+(?:me|us))?(?:\s+(?:all|the|my|our))*\s+bookings(?:\s+(?:for|of)\s+(?P<name>.+))?",
        _list_bookings,
    ),
)


_DOCUMENTS = r"(?:(?:the|my|our|all|these)\s+)*(?:documents?|docs|files)"
_DOCUMENT = r"(?:the\s+)?(?:document|file)\s+"
_URL = r"https?://\S+"
_SAVED = {"the summary": SUMMARY, "the page": PAGE, "the text": TEXT}


def _search(found: re.Match[str], _today: date) -> Calls | None:
    query = found["query"] or found["named"]
    query = unquote(re.sub(r"^(?:the|our|your|a|an)\s+", "", query.strip(), flags=re.IGNORECASE))
    return (PlannedCall("search", "search", {"query": query}, query),) if query else None


def _fetch(found: re.Match[str], _today: date) -> Calls:
    return (PlannedCall("fetch_page", "fetch", {"url": found["url"]}, found["url"]),)


def _read(found: re.Match[str], _today: date) -> Calls:
    name = name_or_pronoun(found["name"], DOCUMENT)
    return (
        PlannedCall(
            "read_document", "read", {"name": name}, "read {it}" if isinstance(name, Pronoun) else f"read {name}"
        ),
    )


def _summarise(found: re.Match[str], _today: date) -> Calls | None:
    """Summarise an earlier text, or read one first."""
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
    return (
        first,
        PlannedCall("summarise", "summarise", {"text": CallResult(0, TEXT), **sentences}, f"summary of {name}"),
    )


def _save(found: re.Match[str], _today: date) -> Calls | None:
    """Save one thing: a second one would replace the first."""
    said, name = found["what"], unquote(found["name"])
    referent = _SAVED.get(" ".join(said.lower().split()), CONTENT)
    content = unquote(said) if re.fullmatch(QUOTED, said) else Pronoun(referent)
    return (PlannedCall("write_file", "save", {"name": name, "content": content}, f"save {name}"),)


def _list_papers(found: re.Match[str], _today: date) -> Calls:
    query = unquote(found["query"]) if found["query"] else ""
    title = f"documents about {query}" if query else "documents"
    return (PlannedCall("list_documents", "documents", {"query": query} if query else {}, title),)


def _delete(found: re.Match[str], _today: date) -> Calls:
    name = unquote(found["name"])
    return (PlannedCall("delete_document", "delete", {"document": name}, f"delete {name}"),)


PAPERS = (
    make_form(
        "search",
        "search the documents for WORDS",
        "search the documents for the refund policy",
        rf"(?:search|look)(?:\s+(?:in|through))?(?:\s+{_DOCUMENTS})?\s+for\s+(?P<query>.+)"
        rf"|find\s+(?P<named>.+?)\s+in\s+{_DOCUMENTS}",
        _search,
    ),
    make_form(
        "fetch_page",
        "fetch URL",
        "fetch https://example.org/prices",
        rf"(?:fetch|get|open|load|download|read)\s+(?:(?:the\s+)?(?:web\s*)?(?:page|url|site)\s+)?(?P<url>{_URL})",
        _fetch,
    ),
    make_form(
        "read_document",
        "read document NAME",
        "search the documents for refunds then read it",
        rf"(?:read|open)\s+(?:{_DOCUMENT}|(?={IT}\b|{THEM}\b|{FILE}))(?P<name>{IT}|{NAME})",
        _read,
    ),
    make_form(
        "read_document summarise",
        "summarise document NAME [in 3 sentences]",
        "read refund-policy.md, summarise it in 2 sentences and save it to summary.md",
        rf"summari[sz]e\s+(?:{_DOCUMENT}|(?:the\s+page\s+)?(?={_URL}|{IT}\b|{THEM}\b|{FILE}))"
        rf"(?P<what>{_URL}|{IT}|{THEM}|{NAME})"
        r"(?:\s+in\s+(?P<count>[1-9]|1[0-9]|20)\s+sentences?)?",
        _summarise,
    ),
    make_form(
        "write_file",
        "save it to FILE",
        "fetch https://example.org/prices then save it to prices.md",
        rf"(?:save|write|store)\s+(?P<what>{IT}|the\s+(?:summary|page|text)|{QUOTED})"
        rf"\s+(?:to|in|into|as)\s+(?:(?:the\s+|a\s+)?file\s+)?(?P<name>{NAME})",
        _save,
    ),
    make_form(
        "list_documents",
        "list the documents [about WORD]",
        "list the documents about returns",
        r"(?:list|show)(?:\s+(?:me|us))?(?:\s+(?:all|the|my|our))*\s+documents"
        r"(?:\s+(?:about|on|named|called)\s+(?P<query>.+))?",
        _list_papers,
    ),
    make_form(
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


def _article(said: str) -> str:
    """A stock code in capitals, or a name as it was written."""
    words = unquote(said)
    return words.upper() if re.fullmatch(r"[A-Za-z]{1,3}-[0-9]+", words) else words


def _price(found: re.Match[str], _today: date) -> Calls:
    sku = _article(found["sku"])
    return (PlannedCall("get_price", "price", {"sku": sku}, f"price of {sku}"),)


def _buy(found: re.Match[str], _today: date) -> Calls | None:
    """Buy with a limit per piece; a limit for all pieces is divided and rounded down."""
    quantity = int(found["quantity"] or 1)
    if not quantity:
        return None
    most, sku = Decimal(found["most"]), _article(found["sku"])
    if found["all"]:
        most = (most / quantity).quantize(_CENT, ROUND_DOWN)
    args: dict[str, Value] = {"sku": sku, "quantity": quantity, "at_most": str(most)}
    return (PlannedCall("purchase", "buy", args, f"{quantity} of {sku} for at most {most} each"),)


def _refund(found: re.Match[str], _today: date) -> Calls:
    order = number_or_pronoun(found["order"], ORDER)
    title = f"refund order {order}" if isinstance(order, int) else "refund {it}"
    return (PlannedCall("refund", "refund", {"order": order}, title),)


def _list_orders(found: re.Match[str], _today: date) -> Calls:
    sku = _article(found["sku"]) if found["sku"] else ""
    return (PlannedCall("list_orders", "orders", {"sku": sku} if sku else {}, f"orders of {sku}" if sku else "orders"),)


def _find(found: re.Match[str], _today: date) -> Calls | None:
    query = unquote(found["query"])
    query = query.upper() if re.fullmatch(CUSTOMER, query.upper()) else query
    return (PlannedCall("find_customer", "customer", {"query": query}, f"customer {query}"),) if query else None


def _change(found: re.Match[str], _today: date) -> Calls | None:
    """Find the customer first: a change applies to the version that was read."""
    changes = _changes(found["changes"])
    if changes is None:
        return None
    title = ", ".join(f"{field} {value}" for field, value in changes.items())
    if not found["id"]:
        which: dict[str, Value] = {
            "customer": Pronoun(CUSTOMER_ID),
            "version": Pronoun(CUSTOMER_VERSION),
            "changes": changes,
        }
        return (PlannedCall("update_customer", "update", which, f"{{it}}: {title}"),)
    id = found["id"].upper()
    look = PlannedCall("find_customer", "customer", {"query": id}, f"customer {id}")
    args: dict[str, Value] = {"customer": id, "version": CallResult(0, CUSTOMER_VERSION), "changes": changes}
    return (look, PlannedCall("update_customer", "update", args, f"{id}: {title}"))


def _changes(said: str) -> dict[str, JsonValue] | None:
    """The fields to change; None if one cannot be read or is there twice."""
    changes = dict[str, JsonValue]()
    for part in re.split(rf"(?:\s*,\s*(?:and\s+)?|\s+and\s+)(?:(?:his|her|its|their|the)\s+)?(?=(?:{_FIELD})\b)", said):
        one = _CHANGE.fullmatch(part.strip())
        if one is None:
            return None
        field = one["field"].split()[0].lower().replace("-", "")
        if field in changes or not unquote(one["value"]):
            return None
        changes[field] = unquote(one["value"])
    return changes


SHOP = (
    make_form(
        "get_price",
        "get the price of A-17",
        "get the price of A-17 and calculate 3 * it",
        r"(?:get|check|look\s+up|show(?:\s+me)?|what(?:['\u2019]s|\s+is))\s+(?:the\s+)?price\s+(?:of|for)\s+(?P<sku>.+)",
        _price,
    ),
    make_form(
        "purchase",
        "buy 2 of A-17 for at most 24.50 [each | in all]",
        "buy 2 of A-17 for at most 24.50 each",
        r"(?:buy|purchase|order)\s+(?:(?P<quantity>[0-9]{1,6})\s+(?:pieces?\s+)?(?:of\s+|x\s+)?)?(?P<sku>\S.*?)\s+"
        rf"(?:for|at)\s+(?:at\s+most|no\s+more\s+than|up\s+to)\s+{_MONEY}"
        r"(?:\s+(?:(?P<each>each|apiece|per\s+piece|a\s+piece)|(?P<all>in\s+all|in\s+total|all\s+together|together)))?",
        _buy,
    ),
    make_form(
        "refund",
        "refund order 12",
        "buy 1 of A-17 for at most 24.50 then refund it",
        rf"refund\s+(?P<order>{_ORDER}|{IT}|{THEM})",
        _refund,
    ),
    make_form(
        "list_orders",
        "list the orders [of A-17]",
        "list the orders of A-17",
        r"(?:list|show)(?:\s+(?:me|us))?(?:\s+(?:all|the|my|our|latest))*\s+orders(?:\s+(?:for|of)\s+(?P<sku>.+))?",
        _list_orders,
    ),
    make_form(
        "find_customer",
        "find customer NAME",
        "find customer Ada Brook",
        r"(?:find|look\s+up|look\s+for)\s+(?:the\s+)?customer\s+(?P<query>.+)",
        _find,
    ),
    make_form(
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
    make_form(
        "calculate",
        "calculate 18% of 2450",
        "calculate 18% of 2450 then calculate 10% of it",
        r"(?:calculate|compute|work\s+out)\s+(?P<expression>.+)",
        _calculation,
    ),
    make_form(
        "calculate",
        "what is 18% of 2450 (for other questions: search the documents for WORDS)",
        "what is 18% of 2450",
        r"(?:what(?:['\u2019]s|\s+is)|how\s+much\s+is)\s+(?P<expression>.+)",
        _calculation,
    ),
)


FORMS = (*CALENDAR, *PAPERS, *SHOP, *NUMBERS)
