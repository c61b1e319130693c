"""The grammar of tasks that the planner without a model understands: clauses, names, dates and times.

A text is split into clauses, each of which begins with a verb; see `verbs`.
"""

import re
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from typing import NamedTuple

from dateutil import parser, relativedelta

LOOK_AHEAD = 300  # characters after a joint that are enough to see whether a clause begins there
QUOTED = r"\"[^\"]*\"|\u201c[^\u201d]*\u201d|\u00ab[^\u00bb]*\u00bb|(?<!\w)'[^']*'(?!\w)"
_URL = r"https?://\S+?(?=[.,;:?!)]*(?:\s|$))"
_JOINT = re.compile(
    rf"{QUOTED}|{_URL}|(?P<joint>[,;.\n ]{{0,3}}\b(?:and )?then\b,? |[,;\n][ \n]?(?:and )?|[.?!] (?:and )?| and )",
    re.IGNORECASE,
)
ADDING = "or|but|plus|also"
LEADING_ON = "so|if|unless|because|before|after|until|while|who|whose|which"
_ADDING = re.compile(rf"\b(?:{ADDING})\b", re.IGNORECASE)
_LEADING_ON = re.compile(rf"\b(?:to|{LEADING_ON})\b", re.IGNORECASE)
_POLITE = re.compile(
    r"(?:(?:please|and|also|now|first|finally|next|then|can you|could you|would you|i want you to)\b[ ,]*)+", re.I
)


class Clause(NamedTuple):
    """One part of a task's text, without the words that join it to other clauses."""

    text: str
    is_after: bool  # whether `then` is before it: the clauses before it must be finished first


def split_clauses(text: str, is_clause_start: Callable[[str], bool]) -> list[Clause]:
    """Split a text at `then` and `;`, and at `and`, commas and sentence ends if a clause starts after them."""
    text = re.sub(r"\s+", lambda run: "\n" if "\n" in run.group() else " ", text.strip())
    clauses, start, is_after = list[Clause](), 0, False
    for found in _JOINT.finditer(text):
        joint = (found["joint"] or "").lower()
        rest = strip_politeness(text[found.end() : found.end() + LOOK_AHEAD])
        if not joint or not (";" in joint or "then" in joint or is_clause_start(rest)):
            continue
        clauses.append(Clause(strip_politeness(text[start : found.start()]), is_after))
        start, is_after = found.end(), "then" in joint or (is_after and not clauses[-1].text)
    clauses.append(Clause(strip_politeness(text[start:]), is_after))
    return [clause for clause in clauses if clause.text]


def strip_politeness(text: str) -> str:
    """Remove words such as `please` from the beginning of a clause, and punctuation from both ends."""
    text = text.strip()
    polite = _POLITE.match(text)
    return (text[polite.end() :] if polite else text).rstrip(" .,;:?!").lstrip(" ,;.")


def unquote(text: str) -> str:
    """Remove blanks and commas at both ends, and the quotation marks around the whole text if it has them."""
    text = text.strip(" ,")
    return text[1:-1].strip() if _is_quoted(text) else text


def read_words(text: str) -> str | None:
    """The text without its quotation marks; None if a text without quotation marks may contain another request."""
    may_have_more = any(found["joint"] for found in _JOINT.finditer(text.strip(" ,"))) or _ADDING.search(text)
    return None if may_have_more and not _is_quoted(text) else unquote(text)


def read_name(text: str) -> str | None:
    """Read a name as `read_words` does; also None if it is not quoted and a word such as `to` may begin a request.

    An example is `Ada to change her phone`.
    """
    return None if _LEADING_ON.search(text) and not _is_quoted(text) else read_words(text)


def _is_quoted(text: str) -> bool:
    return re.fullmatch(QUOTED, text.strip(" ,")) is not None


WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_WEEKDAY = rf"(?:(?:next|this)\s+)?(?:{'|'.join(WEEKDAYS)})"
_MONTH = (
    "(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?"
    "|nov(?:ember)?|dec(?:ember)?)"
)
_NUMBER = "[0-9]{1,2}(?:st|nd|rd|th)?"
_DATE = rf"(?:{_NUMBER}\s+(?:of\s+)?{_MONTH}|{_MONTH}\s+{_NUMBER})(?:,?\s+[0-9]{{4}})?|[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}"
DAY = rf"today|tomorrow|day\s+after\s+tomorrow|{_WEEKDAY}(?:,?\s+(?:the\s+)?(?:{_DATE}))?|{_DATE}"
TIME = r"[0-9]{1,2}[:.][0-9]{2}(?:\s*[ap]\.?m\.?)?|[0-9]{1,2}\s*[ap]\.?m\.?|noon|midday|midnight"
_HOURS = {"noon": time(12), "midday": time(12), "midnight": time(0)} | {str(hour): time(hour) for hour in range(13, 24)}
"""Words, and hours without minutes, that mean exactly one time; `2` is not here, as it may be 02:00 or 14:00."""


def parse_day(text: str, today: date) -> date | None:
    """Read `tomorrow`, `Friday`, `21 November`, `2025-11-21`; without a year, the next such day. None if unreadable."""
    text = text.strip(" ,.").lower().removeprefix("the ")
    ahead = {"today": 0, "tomorrow": 1, "day after tomorrow": 2}.get(text)
    if ahead is not None:
        return today + timedelta(days=ahead)
    weekday = re.match(_WEEKDAY, text)
    if weekday is not None and weekday.end() == len(text):
        first = today + timedelta(days=1 if text.startswith("next") else 0)
        return first + relativedelta.relativedelta(weekday=WEEKDAYS.index(text.split()[-1]))
    text = text[weekday.end() :].strip(" ,").removeprefix("the ") if weekday else text
    if not re.fullmatch(_DATE, text):
        return None
    try:
        day = parser.parse(text, default=datetime(today.year, 1, 1)).date()  # noqa: DTZ001 - a day has no zone
    except (ValueError, OverflowError):
        return None
    is_open = re.search("[0-9]{4}", text) is None
    return day + relativedelta.relativedelta(years=1) if is_open and day < today else day


def parse_time(text: str) -> time | None:
    """Read `14:00`, `14.30`, `2 pm`, `noon` or `15`; None for other texts, such as the ambiguous `2`."""
    text = text.strip(" ,").lower().removesuffix(" o'clock")
    if text in _HOURS:
        return _HOURS[text]
    if not re.fullmatch(TIME, text):
        return None
    hour, _, rest = text.partition(".") if re.match("[0-9]+[.][0-9]", text) else (text, "", "")
    spelt = f"{hour}:{rest}" if rest else text
    try:
        return parser.parse(spelt.replace("a.m", "am").replace("p.m", "pm").rstrip(".")).time()
    except (ValueError, OverflowError):
        return None


def format_time(at: time) -> str:
    """Write a time as `14:30`, without seconds."""
    return f"{at:%H:%M}"
