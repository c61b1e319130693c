"""Texts without what may be a secret, for the log."""

import re
from collections.abc import Callable
from typing import Any

from activities.borders.table import class_name

_CLOSED = r"[\]),;?(]*(?:[\s\"']|$)"
"""A pattern of the characters after a `?` that is a placeholder in SQL; the query of a URL does not match."""
_SECRETS = (
    re.compile(
        r"(?i)(?<![a-z])(apikey|token|key|secret|password|passwd|authorization|cookie)"
        rf"[\"']?(\s*[:=]\s*|\s+(?![:=]))(?!\?{_CLOSED})([\"']?(bearer|basic)\s+)?\S+"
    ),
    re.compile(r"(?i)\b(bearer|basic)\s+\S+"),
    re.compile(r"\b(sk|pk|rk|ghp|xox[a-z])[-_][\w-]{6,}"),
    re.compile(r"(?<=://)[^/\s@]+@"),
    re.compile(rf"(?<=\?)(?!{_CLOSED})[^\s\"']+"),
    re.compile(r"[A-Za-z0-9+/_=-]{32,}"),
)
"""Patterns of possible secrets: named credentials, formats of keys, user and query of a URL, long opaque strings."""


def text_of(value: Any, show: Callable[[Any], str], limit: int) -> str:
    """At most `limit` characters of what `show` makes of a value, with `***` for possible secrets."""
    try:
        text = show(value)[: 4 * limit]
    except BaseException as failed:  # its class may be anybody's, and the attempt needs a fault
        text = f"(its text cannot be read: {class_name(failed)})"
    for secret in _SECRETS:
        text = secret.sub("***", text)
    return text[:limit]
