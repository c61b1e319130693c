"""A form: one way to ask for something, and the calls that are meant by it."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from functools import cached_property
from typing import NamedTuple

from dateutil import parser, relativedelta
from pydantic import JsonValue

from workflows.plan import Step

LOOK_AHEAD = 300
"""Characters after a joint that decide whether a clause begins there."""
_QUOTED = r"\"[^\"]*\"|\u201c[^\u201d]*\u201d|\u00ab[^\u00bb]*\u00bb|(?<!\w)'[^']*'(?!\w)"
_URL = r"https?://\S+?(?=[.,;:?!)]*(?:\s|$))"
_JOINT = re.compile(
    rf"{_QUOTED}|{_URL}|(?P<joint>[,;.\n ]{{0,3}}\b(?:and )?then\b,? |[,;\n][ \n]?(?:and )?|[.?!] (?:and )?| and )",
    re.IGNORECASE,
)
_POLITE = re.compile(
    r"(?:(?:please|and|also|now|first|finally|next|then|can you|could you|would you|i want you to)\b[ ,]*)+", re.I
)


class Clause(NamedTuple):
    """One thing that is asked for."""

    text: str
    is_after: bool
    """Whether `then` stands before it, which means: after what was asked before."""


def cut(text: str, begins: Callable[[str], bool]) -> list[Clause]:
    """Cut a text at `then` and `;`, and at `and`, commas and sentence ends where `begins` sees a clause behind them."""
    text = re.sub(r"\s+", lambda run: "\n" if "\n" in run.group() else " ", text.strip())
    clauses, start, is_after = list[Clause](), 0, False
    for found in _JOINT.finditer(text):
        joint = (found["joint"] or "").lower()
        rest = bare(text[found.end() : found.end() + LOOK_AHEAD])
        if not joint or not (";" in joint or "then" in joint or begins(rest)):
            continue
        clauses.append(Clause(bare(text[start : found.start()]), is_after))
        start, is_after = found.end(), "then" in joint or (is_after and not clauses[-1].text)
    clauses.append(Clause(bare(text[start:]), is_after))
    return [clause for clause in clauses if clause.text]


def bare(text: str) -> str:
    """A clause without words of politeness before it and signs after it."""
    text = text.strip()
    polite = _POLITE.match(text)
    return (text[polite.end() :] if polite else text).rstrip(" .,;:?!").lstrip(" ,;.")


def unquoted(text: str) -> str:
    """A text without the quotation marks around it."""
    text = text.strip(" ,")
    return text[1:-1].strip() if re.fullmatch(_QUOTED, text) else text


WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_WEEKDAY = re.compile(rf"(?:(?P<next>next|this)\s+)?(?P<day>{'|'.join(WEEKDAYS)})", re.IGNORECASE)
_MONTH = (
    "(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?"
    "|nov(?:ember)?|dec(?:ember)?)"
)
_DAY = "[0-9]{1,2}(?:st|nd|rd|th)?"
_DATE = re.compile(
    rf"(?:(?:{_DAY}\s+(?:of\s+)?{_MONTH})|(?:{_MONTH}\s+{_DAY}))(?P<year>,?\s+[0-9]{{4}})?|(?P<iso>[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}})",
    re.IGNORECASE,
)
_TIME = re.compile(r"[0-9]{1,2}[:.][0-9]{2}(?:\s*[ap]\.?m\.?)?|[0-9]{1,2}\s*[ap]\.?m\.?", re.IGNORECASE)
_HOURS = {"noon": time(12), "midday": time(12), "midnight": time(0)} | {str(hour): time(hour) for hour in range(13, 24)}
"""Words and bare hours that mean one time only."""


def read_day(text: str, today: date) -> date | None:
    """Read `tomorrow`, `Friday`, `21 November`, `2025-11-21`; a day without a year is the next one of that name."""
    text = text.strip(" ,.").lower().removeprefix("the ")
    ahead = {"today": 0, "tomorrow": 1, "day after tomorrow": 2}.get(text)
    if ahead is not None:
        return today + timedelta(days=ahead)
    weekday = _WEEKDAY.match(text)
    if weekday is not None and weekday.end() == len(text):
        first = today + timedelta(days=1 if weekday["next"] == "next" else 0)
        return first + relativedelta.relativedelta(weekday=WEEKDAYS.index(weekday["day"]))
    return _read_date(text[weekday.end() :].strip(" ,") if weekday else text, today)


def _read_date(text: str, today: date) -> date | None:
    found = _DATE.fullmatch(text)
    if found is None:
        return None
    try:
        day = parser.parse(text, default=datetime(today.year, 1, 1)).date()  # noqa: DTZ001 - a day has no zone
    except (ValueError, OverflowError):
        return None
    is_open = found["year"] is None and found["iso"] is None
    return day + relativedelta.relativedelta(years=1) if is_open and day < today else day


def read_time(text: str) -> time | None:
    """Read `14:00`, `14.30`, `2 pm`, `noon`, `15`; not `2`, which may be in the night or in the afternoon."""
    text = text.strip(" ,").lower().removesuffix(" o'clock")
    if text in _HOURS:
        return _HOURS[text]
    if _TIME.fullmatch(text) is None:
        return None
    hour, _, rest = text.partition(".") if re.match("[0-9]+[.][0-9]", text) else (text, "", "")
    spelt = f"{hour}:{rest}" if rest else text
    try:
        return parser.parse(spelt.replace("a.m", "am").replace("p.m", "pm").rstrip(".")).time()
    except (ValueError, OverflowError):
        return None


def clock(at: time) -> str:
    """Write a time as 14:00."""
    return f"{at:%H:%M}"


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


@dataclass(frozen=True)
class It:
    """What an earlier clause brought; with `is_each` the call is made for each of those that did."""

    noun: Noun
    is_each: bool = False


@dataclass(frozen=True)
class Own:
    """What an earlier call of the same clause brings."""

    call: int
    noun: Noun


Value = JsonValue | It | Own


class Wanted(NamedTuple):
    """One call that a clause asks for."""

    kind: str
    id: str
    """The id of its first step."""
    args: Mapping[str, Value]
    title: str
    """May say `{it}` for the title of the step that `it` refers to."""
    is_last: bool = False
    """Whether it waits for the calls of the clause before it."""


Read = Callable[[re.Match[str], date], tuple[Wanted, ...] | None]


@dataclass(frozen=True)
class Form:
    """One way to ask."""

    kinds: tuple[str, ...]
    """What it calls, the kind that it is about last."""
    spelling: str
    """How it is written, for people."""
    example: str
    """A whole task that uses it, with what must stand before it."""
    pattern: re.Pattern[str]
    read: Read
    """The calls of a clause that the pattern fits; None when something in it cannot be read in one way only."""

    @cached_property
    def beginning(self) -> re.Pattern[str]:
        """What fits a text that begins with such a clause and goes on with others."""
        return re.compile(rf"(?:{self.pattern.pattern})(?=\s*(?:[,;.?!\n]|$)|\s+(?:and|then)\b)", self.pattern.flags)


def form(kinds: str, spelling: str, example: str, pattern: str, read: Read) -> Form:
    """Put a form together; `kinds` are names with spaces between them."""
    return Form(tuple(kinds.split()), spelling, example, re.compile(pattern, re.IGNORECASE | re.DOTALL), read)


IT = r"(?:it|that|the\s+result)"
THEM = r"(?:them|these|those|the\s+results)"
QUOTED = r"\"[^\"]+\"|\u201c[^\u201d]+\u201d|'[^']+'"
_WORD = r"[^\s\"'\u201c\u201d,;]+"
NAME = rf"(?:{QUOTED}|{_WORD})"
"""One word, or several in quotation marks."""
FILE = rf"(?:{QUOTED}|(?=\S*[^\s.,;][.\-_/][^\s.,;]){_WORD})"
"""A name that no other word of a sentence looks like: with a dot, a dash, or in quotation marks."""


def it(said: str, noun: Noun) -> It | None:
    """What a pronoun stands for; None when `said` is no pronoun."""
    if re.fullmatch(IT, said, re.IGNORECASE):
        return It(noun)
    return It(noun, is_each=True) if re.fullmatch(THEM, said, re.IGNORECASE) else None


def name_or_it(said: str, noun: Noun) -> JsonValue | It:
    """A name as it was written, or what a pronoun stands for."""
    return it(said, noun) or unquoted(said)


def number_or_it(said: str, noun: Noun) -> JsonValue | It:
    """The number in what was written, or what a pronoun stands for."""
    digits = re.search(r"[0-9]+", said)
    return int(digits.group()) if digits else It(noun, is_each=bool(re.fullmatch(THEM, said, re.IGNORECASE)))
