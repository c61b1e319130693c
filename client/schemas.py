"""What the JSON schema of a tool says of a value: references, what may be null, and decimals."""

from collections.abc import Mapping
from typing import Any

Schema = Mapping[str, Any]
DEFINITIONS = "#/$defs/"


def plain(schema: Schema, whole: Schema) -> dict[str, Any]:
    """The schema of a field without references to the definitions of `whole`; if it may be null, with `nullable`."""
    found = dict(schema)
    if reference := str(found.pop("$ref", "")):
        found = {**whole.get("$defs", {}).get(reference.removeprefix(DEFINITIONS), {}), **found}
    others = [option for option in found.get("anyOf", ()) if option.get("type") != "null"]
    is_nullable = len(others) < len(found.get("anyOf", ()))
    if len(others) == 1:
        rest = {name: value for name, value in found.items() if name != "anyOf"}
        return {**plain(others[0], whole), **rest, "nullable": True}
    return {**found, "anyOf": others, "nullable": True} if is_nullable else found


def decimal_part(schema: Schema) -> Schema | None:
    """The rules for the number, if the schema is that of a Decimal; else None.

    A Decimal is a number that may be written as a text, too, so that none of its digits is lost.
    """
    parts = schema.get("anyOf") or schema.get("oneOf") or ()
    by_type = {str(part.get("type")): part for part in parts}
    is_decimal = {"number", "string"} <= by_type.keys() <= {"number", "string", "null"} and len(parts) == len(by_type)
    return by_type["number"] if is_decimal else None
