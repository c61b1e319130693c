"""Equal JSON values have one canonical text and one digest.

Used whenever arguments or results are compared, measured, or recorded by their digest.
"""

import hashlib
import json
from collections.abc import Iterable

from pydantic import JsonValue

MAX_EXACT = 2**53
"""A float represents every whole number below this exactly."""


def canonical(value: JsonValue) -> str:
    """The canonical JSON text: equal for equal values."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def text_of(value: JsonValue) -> str:
    """A value for people: a text as it is, all others as canonical JSON."""
    return value if isinstance(value, str) else canonical(value)


def digest(*values: JsonValue) -> str:
    """A short digest of JSON values, the same in every process."""
    # 24 hex digits are 96 bits: short in history, and no two values collide by chance.
    return hashlib.sha256(canonical(_with_whole_floats_as_ints(list(values))).encode()).hexdigest()[:24]


def _with_whole_floats_as_ints(value: JsonValue) -> JsonValue:
    # 1.0 and 1 are equal, so they must have the same digest.
    if isinstance(value, dict):
        return {key: _with_whole_floats_as_ints(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_whole_floats_as_ints(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < MAX_EXACT else value


def depth(value: JsonValue) -> int:
    """How deep a JSON value is nested; 0 for a number, text, bool or null."""
    return 1 + max(map(depth, items(value)), default=0) if isinstance(value, dict | list) else 0


def items(value: JsonValue) -> Iterable[JsonValue]:
    """The values of an object, or the items of a list; empty for any other value."""
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
