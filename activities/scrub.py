"""What of a foreign exception may go into a log: where it was raised, and its words without anything like a secret."""

import re
import traceback
from pathlib import Path

MAX_WORDS = 300
"""Characters."""

_CLOSED = r"[\]),;?(]*(?:[\s\"']|$)"
"""What may follow the placeholder `?` of a statement, up to the next space."""
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
"""Named credentials, well-known key forms, user info and queries of URLs, long opaque strings."""


def words(error: BaseException) -> str:
    """The exception's class and message, scrubbed and cut."""
    message = str(error)[: 4 * MAX_WORDS]
    for secret in _SECRETS:
        message = secret.sub("***", message)
    return f"{type(error).__name__}: {message[:MAX_WORDS]}"


def frames(error: BaseException, last: int = 6) -> list[str]:
    """Where it was raised: `file:line function`, the innermost last; no values.

    Of the libraries only the innermost: the tool's own line is what has to be mended.
    """
    whole = traceback.extract_tb(error.__traceback__)
    found = [frame for frame in whole[:-1] if "site-packages" not in frame.filename][1 - last :] + whole[-1:]
    return [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in found]
