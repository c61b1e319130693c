"""Sample values of JSON schemas, to show a model what a call looks like."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import JsonValue

DEPTH = 4
SAMPLES: Mapping[str, JsonValue] = {
    **{"date": "2026-01-31", "time": "14:30:00", "date-time": "2026-01-31T14:30:00Z", "email": "ann@example.com"},
    **{"uri": "https://example.com/", "uuid": "00000000-0000-4000-8000-000000000000"},
}


def sample(schema: Mapping[str, Any]) -> JsonValue:
    """Make a sample value for a JSON schema; it may break limits such as `pattern`, which are not considered."""
    return _sample(schema, "", schema)


def _sample(schema: Any, name: str, whole: Mapping[str, Any], depth: int = DEPTH) -> JsonValue:
    if not isinstance(schema, dict) or not depth:
        return f"some {name}" if name else "some text"
    if "$ref" in schema:
        part = whole.get("$defs", {}).get(str(schema["$ref"]).rpartition("/")[2])
        return _sample(part, name, whole, depth - 1)
    chosen = [schema["const"]] if "const" in schema else [*schema.get("examples", ()), *schema.get("enum", ())]
    if chosen:
        found: JsonValue = chosen[0]
        return found
    options: Sequence[Any] = schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf") or ()
    if options:
        return _sample(options[0], name, whole, depth - 1)
    match schema.get("type"):
        case "object":
            required = schema.get("required") or list(schema.get("properties", {}))
            fields = schema.get("properties", {})
            return {field: _sample(fields[field], field, whole, depth - 1) for field in required if field in fields}
        case "array":
            return [_sample(schema.get("items", {}), name, whole, depth - 1)]
        case "integer" | "number":
            return schema.get("minimum", 1)  # type: ignore[no-any-return]  # it is a number
        case "boolean":
            return True
        case "null":
            return None
    return SAMPLES.get(str(schema.get("format")), f"some {name}" if name else "some text")
