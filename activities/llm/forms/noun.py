"""Nouns: what `it` can be, and where the results of the kinds hold it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from workflows.plan import Step


@dataclass(frozen=True)
class Noun:
    """One sort of thing that a later clause may need."""

    what: str
    """For people: `it` must be ..."""
    instead: str
    """What to write where nothing of the sort stands before."""
    paths: Mapping[str, str]
    """Where the result of a kind holds it."""

    def path(self, step: Step) -> str | None:
        """Where the result of this step will hold it."""
        is_named = step.kind != "find_customer" or re.fullmatch(CUSTOMER, str(step.args.get("query")))
        return self.paths.get(step.kind) if is_named else None


CUSTOMER = r"[A-Z]{1,4}-[0-9]{1,12}"
"""How the id of a customer looks; by a name several may be found, and a change must not hit just any of them."""

NUMBER = Noun(
    "the number of an earlier calculation, price or order",
    "Write the number instead",
    {"calculate": "value", "get_price": "price", "purchase": "total", "refund": "total"},
)
_TEXTS = {"search": "hits.0.text", "read_document": "text", "fetch_page": "text"}
TEXT = Noun("a text that was found, read or fetched before", "Name the document or the URL instead", _TEXTS)
CONTENT = Noun(
    "a text or a number that an earlier clause brings",
    "Write the text in quotation marks instead",
    {**_TEXTS, "summarise": "summary", "calculate": "value"},
)
SUMMARY = Noun(
    "the summary that an earlier clause makes", "Ask for it first: summarise document NAME", {"summarise": "summary"}
)
PAGE = Noun("the page that an earlier clause fetches", "Ask for it first: fetch URL", {"fetch_page": "text"})
DOCUMENT = Noun("a document that was searched for before", "Name the document instead", {"search": "hits.0.path"})
BOOKING = Noun("a booking that was made before", "Write its number instead, as in booking 12", {"book_slot": "id"})
BOOKED_DAY = Noun(BOOKING.what, BOOKING.instead, {"book_slot": "day", "list_bookings": "bookings.0.day"})
BOOKED_NAME = Noun(BOOKING.what, BOOKING.instead, {"book_slot": "name", "list_bookings": "bookings.0.name"})
ORDER = Noun("an order that was made before", "Write its number instead, as in order 12", {"purchase": "id"})
_FOUND = "a customer that was found by its id before (by a name several may be found)"
_FIND = "Write the id instead, as in customer C-0001"
CUSTOMER_ID = Noun(_FOUND, _FIND, {"find_customer": "customers.0.id", "update_customer": "id"})
CUSTOMER_VERSION = Noun(_FOUND, _FIND, {"find_customer": "customers.0.version", "update_customer": "version"})
