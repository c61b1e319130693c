"""What is wrong with a file of settings, in words for whoever wrote it."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from workflows.plan import nearest

MAX_VALUE = 80
"""Characters of a value that are quoted."""


def first_mistake(error: ValidationError, form: Mapping[str, Any]) -> str:
    """The first mistake with its place; `form` is the schema of what the file may say."""
    first = error.errors(include_url=False, include_context=False)[0]
    loc = [str(part) for part in first["loc"] if part != "[key]"]
    place = ".".join(loc)
    if first["type"] == "extra_forbidden":
        there = _names(form, loc[:-1])
        near = nearest(loc[-1], there).removeprefix(": ") or f"there are {', '.join(there)}"
        return f"{place!r} is no setting ({near})"
    if first["loc"][-1] == "[key]":
        return f"{place!r} names no model (write it as --planner does, in quotes)"
    if first["type"] == "missing":
        return f"{place!r} is missing"
    if first["type"] in ("model_type", "dict_type"):
        return f"{place!r} must be a table"
    value = repr(first["input"])[:MAX_VALUE]
    return f"{place!r} cannot be {value}: {first['msg'][0].lower()}{first['msg'][1:]}"


def _names(schema: Mapping[str, Any], place: Sequence[str]) -> list[str]:
    """What may stand at a place."""
    at: Any = schema
    for part in place:
        others = [*at.get("patternProperties", {}).values(), {}]
        at = at.get("properties", {}).get(part) or others[0]
        at = schema["$defs"][at["$ref"].rpartition("/")[2]] if "$ref" in at else at
    return list(at.get("properties", {}))
