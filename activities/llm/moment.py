"""Days and times as people write them; what can be read in two ways is not read."""

import re
from datetime import date, datetime, time, timedelta

from dateutil import parser, relativedelta

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
