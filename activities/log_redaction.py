"""What a log line may have of arguments, results and exceptions: cut, without secrets, or only types and sizes."""

import re
import sysconfig
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from activities.borders.table import class_name, traceback_of
from activities.toolbox.declare.kind import Kind

MAX_WORDS = 300
"""Characters of an exception's message in the log."""
MAX_VALUES = 2_000
"""Characters of the arguments or the result in the log of a worker with `--log-values`."""
_LIBRARIES = tuple(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
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


def scrubbed(error: BaseException) -> str:
    """The class of an exception and at most MAX_WORDS characters of its message, with `***` for possible secrets."""
    return f"{class_name(error)}: {text_of(error, str, MAX_WORDS)}"


def text_of(value: Any, show: Callable[[Any], str], limit: int) -> str:
    try:
        text = show(value)[: 4 * limit]
    except BaseException as failed:  # its class may be anybody's, and the attempt needs a fault
        text = f"(its text cannot be read: {class_name(failed)})"
    for secret in _SECRETS:
        text = secret.sub("***", text)
    return text[:limit]


def raised_at(error: BaseException, last: int = 6) -> list[str]:
    """Where an exception was raised: at most `last` frames as `file:line function`, the innermost frame at the end.

    Frames in libraries are left out, except the innermost frame.
    """
    # The line to fix is the tool's.
    stack = traceback.extract_tb(traceback_of(error))
    frames = outside_libraries(stack[:-1])[1 - last :] + stack[-1:]
    return [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames]


def outside_libraries(frames: Iterable[traceback.FrameSummary]) -> list[traceback.FrameSummary]:
    return [frame for frame in frames if not frame.filename.startswith(("<", *_LIBRARIES))]


def shape(value: Any, kind: Kind) -> JsonValue:
    """The type and size of each argument that the kind declares, for the log, without values and dictionary keys."""
    if not isinstance(value, dict):
        return type(value).__name__
    known = {info.alias or name for name, info in kind.args.model_fields.items()}
    return {name: _size(item) for name, item in value.items() if name in known}


def _size(value: Any) -> str:
    name = type(value).__name__
    return f"{name}[{len(value)}]" if isinstance(value, str | list | dict) else name
