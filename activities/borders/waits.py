"""How long a service asks its callers to wait, by the headers of its answer.

Retry-After (RFC 9110), and what services give beside it or instead: the RateLimit fields of
draft-ietf-httpapi-ratelimit-headers in both forms, X-RateLimit (GitHub and others), and those of OpenAI and Anthropic.
A field about a limit counts only where it says that nothing is left of the limit.
"""

import itertools
import math
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from activities.borders.table import attribute
from activities.errors import bounded

MAX_VALUE = 400
"""The most characters of a header that is read; the longest that services give has 60."""
MAX_HEADERS = 200
"""How many headers are read."""
_EPOCH = 1e9
"""A number from here on is a time since 1970, in seconds; from 1e12 on, in milliseconds."""
Headers = Mapping[str, str]
"""Values by the name of the header in lower case."""
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


def wait_of(headers: object) -> float | None:
    """Seconds that an answer asks its caller to wait; None if it asks for no wait, or cannot be read.

    A point in time counts from the answer's own `Date`, so that a wrong clock of the worker does not matter.
    """
    known = _lower_case(headers)
    for read in (_retry_after, _fields, _github, _openai, _anthropic):
        found = read(known)
        if found is not None and math.isfinite(found):
            return bounded(found)
    return None


def _lower_case(headers: object) -> Headers:
    known = dict[str, str]()
    try:
        items = list(itertools.islice(attribute(headers, "items")(), MAX_HEADERS))
    except Exception:  # of whatever a tool gave as headers
        return known
    for item in items:
        match item:
            case (str(name), str(value)) if len(value) <= MAX_VALUE:
                known[name.lower()] = value.strip()
    return known


def _retry_after(headers: Headers) -> float | None:
    if (milliseconds := _number(headers.get("retry-after-ms"))) is not None:
        return milliseconds / 1000
    value = headers.get("retry-after", "")
    return _number(value) if value[:1].isdecimal() else _seconds_until(value, parsedate_to_datetime, headers)


def _fields(headers: Headers) -> float | None:
    """Seconds by `RateLimit: "name";r=0;t=30`, or by an earlier draft's RateLimit-Reset if RateLimit-Remaining is 0."""
    used_up = [item for item in headers.get("ratelimit", "").split(",") if re.search(r";\s*r=0\s*(;|$)", item)]
    if waits := [float(found[1]) for item in used_up if (found := re.search(r";\s*t=([0-9]{1,12})\s*(;|$)", item))]:
        return max(waits)
    return _number(headers.get("ratelimit-reset")) if headers.get("ratelimit-remaining") == "0" else None


def _github(headers: Headers) -> float | None:
    """Seconds by X-RateLimit-Reset: a time since 1970, or seconds from now on."""
    reset = _number(headers.get("x-ratelimit-reset"))
    if reset is None or headers.get("x-ratelimit-remaining") != "0":
        return None
    if reset < _EPOCH:
        return reset
    return reset / (1 if reset < _EPOCH * 1000 else 1000) - _answered_at(headers)


def _openai(headers: Headers) -> float | None:
    """Seconds by x-ratelimit-reset-requests or its like for tokens: `1s`, `6m0s`, `20ms`."""
    return _longest_wait(headers, "x-ratelimit-remaining-{}", "x-ratelimit-reset-{}", _duration)


def _anthropic(headers: Headers) -> float | None:
    """Seconds by anthropic-ratelimit-requests-reset or its like for tokens: a time of RFC 3339."""
    remaining, reset = "anthropic-ratelimit-{}-remaining", "anthropic-ratelimit-{}-reset"
    return _longest_wait(headers, remaining, reset, lambda text: _seconds_until(text, datetime.fromisoformat, headers))


def _longest_wait(headers: Headers, remaining: str, reset: str, read: Callable[[str], float | None]) -> float | None:
    names = ("requests", "tokens", "input-tokens", "output-tokens")
    used_up = [name for name in names if headers.get(remaining.format(name)) == "0"]
    waits = [read(headers.get(reset.format(name), "")) for name in used_up]
    return max((wait for wait in waits if wait is not None), default=None)


def _number(text: str | None) -> float | None:
    return float(text) if text and re.fullmatch(r"[0-9]{1,300}(\.[0-9]{1,20})?", text) else None


def _duration(text: str) -> float | None:
    parts = re.findall(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)(ms|[smhd])", text)
    is_whole = parts and "".join(map("".join, parts)) == text
    return sum(float(number) * _UNITS[unit] for number, unit in parts) if is_whole else None


def _moment(text: str, parse: Callable[[str], datetime]) -> datetime | None:
    try:
        when = parse(text)
    except (ValueError, OverflowError, LookupError, TypeError):  # the last two of `email`, for odd texts
        return None
    return when.replace(tzinfo=when.tzinfo or UTC)


def _seconds_until(text: str, parse: Callable[[str], datetime], headers: Headers) -> float | None:
    when = _moment(text, parse)
    return None if when is None else when.timestamp() - _answered_at(headers)


def _answered_at(headers: Headers) -> float:
    return (_moment(headers.get("date", ""), parsedate_to_datetime) or datetime.now(UTC)).timestamp()
