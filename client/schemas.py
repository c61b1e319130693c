"""Reads JSON schemas of tools: resolves references, and finds the values that may be null or are decimals.

Used when a tool, its arguments or its result are shown, and when a person fills in arguments on the page.
"""

import re
import secrets
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import JsonValue

Schema = Mapping[str, Any]
DEFINITIONS = "#/$defs/"
NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?")
"""A number as JSON writes it."""


def plain(schema: Schema, whole: Schema) -> dict[str, Any]:
    """The schema of a field with its `$ref` resolved in `whole`; a null option of `anyOf` becomes `nullable: True`."""
    found = dict(schema)
    if reference := str(found.pop("$ref", "")):
        found = {**whole.get("$defs", {}).get(reference.removeprefix(DEFINITIONS), {}), **found}
    others = [option for option in found.get("anyOf", ()) if option.get("type") != "null"]
    is_nullable = len(others) < len(found.get("anyOf", ()))
    null = {"nullable": True} if is_nullable else {}
    if len(others) == 1:
        rest = {name: value for name, value in found.items() if name != "anyOf"}
        return {**plain(others[0], whole), **rest, **null}
    return {**found, "anyOf": others, **null} if is_nullable else found


def decimal_part(schema: Schema) -> Schema | None:
    """The part for numbers in a Decimal's schema, else None. A Decimal may also be a text, which keeps all digits."""
    parts = schema.get("anyOf") or schema.get("oneOf") or ()
    by_type = {str(part.get("type")): part for part in parts}
    is_decimal = {"number", "string"} <= by_type.keys() <= {"number", "string", "null"} and len(parts) == len(by_type)
    return by_type["number"] if is_decimal else None


def has_number(value: JsonValue) -> bool:
    """Whether `value` is or contains a text that reads as a number; a schema may declare such a text as a Decimal."""
    if isinstance(value, dict):
        return any(map(has_number, value.values()))
    if isinstance(value, list):
        return any(map(has_number, value))
    return isinstance(value, str) and NUMBER.fullmatch(value) is not None


def with_numbers(write: Callable[[Any], str], value: JsonValue, schema: Schema) -> str:
    """The text that `write` returns for `value`, with each Decimal of `schema` as a number: all digits, no quotes."""
    mark = secrets.token_hex(8)  # no text has it by chance
    text = write(_with_marked_decimals(value, schema, schema, mark))
    return text.replace(f'"{mark}', "").replace(f'{mark}"', "")


def _with_marked_decimals(value: JsonValue, schema: Schema, whole: Schema, mark: str) -> JsonValue:
    known = plain(schema, whole)
    if isinstance(value, dict):
        fields, other = known.get("properties", {}), known.get("additionalProperties")
        rest = other if isinstance(other, dict) else {}
        return {name: _with_marked_decimals(item, fields.get(name, rest), whole, mark) for name, item in value.items()}
    if isinstance(value, list):
        items = known.get("items")
        return [_with_marked_decimals(item, items if isinstance(items, dict) else {}, whole, mark) for item in value]
    is_decimal = isinstance(value, str) and decimal_part(known) is not None and NUMBER.fullmatch(value)
    return f"{mark}{value}{mark}" if is_decimal else value
