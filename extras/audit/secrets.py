"""Finds what looks like a secret in a text, by the patterns with which Replan scrubs its log."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from activities.scrubbing import SECRETS
from extras.audit.tools import Confidence

SOUGHT = ("a key in a known format", "an authorization", "a named credential", "a password in an address")
"""The patterns that are looked for, the surest first. The other patterns of the log also match harmless texts."""
MAX_TEXT = 200_000
"""The most characters of one text that are looked at."""
_IS_ID = re.compile(r"(?i)[0-9a-f]{8}-[0-9a-f]{4}-.*|(\w+[-_])?[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}.*")
"""A UUID, perhaps with text before or after it: an id, and no secret."""
_NAMED = re.compile(r"(?is)^(\w+)[\"'\\]*\s*[:=]?\s*[\"'\\]*((?:bearer|basic)\s+)?([^\"'\\\s,;&})\]]+)")
"""A named credential: its name, and its value up to a quote or separator; the log's pattern ends at a blank only."""
_BEFORE_KEY = re.compile(r"(?i)(api|access|secret|private|auth|signing|account)[_ -]?$")
_BEFORE_TOKEN = re.compile(r"(?i)(page|next|continuation|sync|cursor|max|min|task|resume|cancel|client|dedup)[_ -]?$")
"""Words before `key` that make it the name of a credential, and words before `token` that make it none."""
_PLACEHOLDER = re.compile(
    r"(?i)\*{2,}|x{4,}|<[^>]*>|\$\{?\w+|%\(|\{\{|redacted|masked|hidden|example|placeholder|null|none"
)
_QUICK = re.compile(
    r"(?i)key|token|secret|passw|authoriz|cookie|bearer|basic |\b(sk|pk|rk|ghp|xox)[a-z]?[-_]|AKIA|eyJ|://"
)
"""A quick test: a text without a match has no secret that the patterns find. Most texts have no match."""


class Secret(NamedTuple):
    """What looks like a secret, masked."""

    what: str
    masked: str
    confidence: Confidence


def secrets_in(text: str) -> Iterator[Secret]:
    """Yield what looks like a secret in the first MAX_TEXT characters of a text, each place once."""
    text = text[:MAX_TEXT]
    if not _QUICK.search(text):
        return
    taken = list[tuple[int, int]]()
    for what in SOUGHT:
        for found in SECRETS[what].finditer(text):
            begin = found.start()
            name, value = _name_and_value(what, found[0], text[max(0, begin - 12) : begin])
            end = begin + found[0].find(value) + len(value)
            if not value or any(start < end and begin < stop for start, stop in taken):
                continue
            taken.append((begin, end))
            is_guessed = what == "a named credential"
            yield Secret(what, masked(name, value), Confidence.GUESSED if is_guessed else Confidence.LIKELY)


def _name_and_value(what: str, text: str, before: str) -> tuple[str, str]:
    """The name and the value of the credential in `text`, which the pattern named `what` found; `before` precedes it.

    The value is empty for a placeholder, for an id, and for a value that is too simple for a secret.
    """
    nothing = "", ""
    if what == "a password in an address":
        user, colon, password = text.removesuffix("@").partition(":")
        return (user, password) if colon and len(password) > 2 and not _PLACEHOLDER.search(password) else nothing
    name, value = "", text
    if what != "a key in a known format":
        if (parts := _NAMED.match(text)) is None:
            return nothing
        name, value = parts[1], parts[3]
    if _PLACEHOLDER.search(value) or _IS_ID.fullmatch(value):
        return nothing
    kind = name.lower()
    if (kind == "key" and not _BEFORE_KEY.search(before)) or (kind == "token" and _BEFORE_TOKEN.search(before)):
        return nothing
    if kind in ("password", "passwd"):
        return (name, value) if len(value) >= 6 and value != "false" else nothing
    is_mixed = re.search(r"[0-9]", value) and re.search(r"[A-Za-z]", value)
    return (name, value) if len(value) >= 12 and is_mixed else nothing


def masked(name: str, value: str) -> str:
    """A secret made harmless: its name, at most four characters of its value, and the length of the value."""
    return f"{name}{': ' if name else ''}{value[: min(4, len(value) // 4)]}*** ({len(value)} characters)"
