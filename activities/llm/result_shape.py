"""The shape of a result in a line, so that a planner knows what a reference to it may point at."""

from typing import Any

DEPTH = 3
"""Levels that are spelt out."""


def shape(schema: dict[str, Any]) -> str:
    """What a JSON schema describes: `{id, at, free: [text]}`."""
    return _shape(schema, schema.get("$defs", {}), DEPTH)


def _shape(schema: dict[str, Any], parts: dict[str, Any], left: int) -> str:
    if "$ref" in schema:
        return _shape(parts.get(str(schema["$ref"]).rpartition("/")[2], {}), parts, left)
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_shape(one, parts, left) for one in schema["anyOf"]))
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    if schema.get("type") == "array":
        return f"[{_shape(schema.get('items', {}), parts, left)}]"
    if schema.get("properties"):
        fields = schema["properties"].items()
        inner = (
            [f"{name}: {_shape(part, parts, left - 1)}" for name, part in fields] if left else [n for n, _ in fields]
        )
        return f"{{{', '.join(inner)}}}"
    return str(schema.get("format") or WORDS.get(schema.get("type", ""), schema.get("type", "anything")))


WORDS = {"string": "text", "null": "nothing", "object": "an object", "integer": "whole number"}
