"""What was meant as a reference to the result of a step, in a spelling that would be taken as it stands."""

import json
import re
from collections.abc import Collection, Iterator

from pydantic import JsonValue

_STEP = ("$ref", "$step", "from", "ref", "step")
_PATH = {"path", "field", "key", "$path"}
_WORDS = re.compile(r"(?:\$\{|\{\{|\{|\$)\s*([A-Za-z][\w-]*(?:\.[\w-]+)*)\s*\}{0,2}")
_WHOLE = {"result", "output"}
"""Words that other languages put between a step and its field."""


def lookalikes(value: JsonValue, steps: Collection[str], at: str = "") -> Iterator[str]:
    """Say of each such value in a step's arguments how it is written here; `steps` are the ids that it may mean."""
    meant = _meant(value, steps)
    if meant is not None:
        yield f"{at!r} looks like a reference: write {json.dumps(meant)}"
    elif isinstance(value, dict | list):
        for name, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from lookalikes(item, steps, f"{at}.{name}" if at else str(name))


def _meant(value: JsonValue, steps: Collection[str]) -> JsonValue:
    """The reference as it should be; None for one that is right, and for what is none."""
    if isinstance(value, str):
        found = _WORDS.fullmatch(value)
        return _reference(found.group(1), "", steps) if found else None
    if not isinstance(value, dict) or ("$from" in value and value.keys() <= {"$from", "path"}):
        return None
    name = next((one for one in ("$from", *_STEP) if isinstance(value.get(one), str)), None)
    if name is None or not (name == "$from" or value.keys() <= {name, *_PATH}):
        return None
    path = next((str(value[one]) for one in value if one in _PATH), "")
    return _reference(str(value[name]).lstrip("#/$"), path, steps)


def _reference(dotted: str, path: str, steps: Collection[str]) -> JsonValue:
    step, *parts = dotted.split(".")
    parts = parts[1:] if parts[:1] and parts[0] in _WHOLE else parts
    whole = ".".join([*parts, *filter(None, [path])])
    return ({"$from": step, "path": whole} if whole else {"$from": step}) if step in steps else None
