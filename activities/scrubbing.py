"""Removes possible secrets from texts, for the log and for audits."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from activities.borders.table import class_name

_CLOSED = r"[\]),;?(]*(?:[\s\"']|$)"
"""A pattern of the characters after a `?` that is a placeholder in SQL; the query of a URL does not match."""
SECRETS: Mapping[str, re.Pattern[str]] = {
    "a named credential": re.compile(
        r"(?i)(?<![a-z])(apikey|token|key|secret|password|passwd|authorization|cookie)"
        rf"[\"']?(\s*[:=]\s*|\s+(?![:=]))(?!\?{_CLOSED})([\"']?(bearer|basic)\s+)?\S+"
    ),
    "an authorization": re.compile(r"(?i)\b(bearer|basic)\s+\S+"),
    "a key in a known format": re.compile(
        r"\b(sk|pk|rk|ghp|xox[a-z])[-_][\w-]{6,}|\bAKIA[0-9A-Z]{16}\b|\beyJ[\w-]+\.eyJ[\w-]+\.[\w-]*"
    ),
    "a password in an address": re.compile(r"(?<=://)[^/\s@]+@"),
    "the query of an address": re.compile(rf"(?<=\?)(?!{_CLOSED})[^\s\"']+"),
    "a long opaque text": re.compile(r"[A-Za-z0-9+/_=-]{32,}"),
}


def text_of(value: Any, show: Callable[[Any], str], limit: int) -> str:
    """At most `limit` characters of `show(value)`, with `***` for possible secrets; a note if `show` raises."""
    try:
        text = show(value)[: 4 * limit]
    except BaseException as failed:  # its class may be anybody's, and the attempt needs a fault
        text = f"(its text cannot be read: {class_name(failed)})"
    for secret in SECRETS.values():
        text = secret.sub("***", text)
    return text[:limit]
