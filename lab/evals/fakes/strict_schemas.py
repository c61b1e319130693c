"""Checks strict schemas as the providers do, for the model APIs on loopback.

The rules are those of https://platform.claude.com/docs/en/build-with-claude/structured-outputs and of
https://developers.openai.com/api/docs/guides/structured-outputs, and errors of the real APIs that users report.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

Json = dict[str, Any]

BOTH = {"type", "properties", "required", "additionalProperties", "items", "anyOf", "enum", "const"}
BOTH |= {"$ref", "$defs", "definitions", "description", "title", "format"}
ANTHROPIC_KEYWORDS = BOTH | {"allOf", "default", "minItems", "pattern"}
OPENAI_KEYWORDS = BOTH | {"pattern", "minItems", "maxItems", "multipleOf", "minimum", "maximum"}
OPENAI_KEYWORDS |= {"exclusiveMinimum", "exclusiveMaximum"}
FORMATS = {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"}
BEYOND_REGULAR = re.compile(r"\(\?|\\[1-9bB]")
"""Lookaround, backreferences and word boundaries in a regular expression."""
MAX_TOOLS, MAX_OPTIONAL, MAX_UNIONS = 20, 24, 16
MAX_PROPERTIES, MAX_DEPTH, MAX_CHARACTERS, MAX_VALUES = 5_000, 10, 120_000, 1_000
LONG_ENUM, MAX_LONG_ENUM = 250, 15_000


def anthropic_mistakes(tools: Sequence[Json], formats: Sequence[Json]) -> Iterator[str]:
    """What Anthropic's API rejects in the schemas of a request's strict tools and of its `output_config.format`."""
    parts = [part for schema in [*tools, *formats] for _, part in _parts(schema)]
    for part in parts:
        kind = part.get("type")
        for name in sorted(part.keys() - ANTHROPIC_KEYWORDS):
            yield f"For '{kind}' type, property '{name}' is not supported"
        if part.get("minItems", 0) not in (0, 1):
            yield "For 'array' type, 'minItems' values other than 0 or 1 are not supported"
        if part.get("format", "date") not in FORMATS | {"uri"}:
            yield f"String format '{part['format']}' is not supported"
        if any("$ref" in member for member in part.get("allOf", ())):
            yield "allOf with $ref is not supported"
        yield from _common_mistakes(part)
    if any(_is_recursive(schema) for schema in [*tools, *formats]):
        yield "Recursive schemas are not supported"
    optional = sum(len(part.get("properties", {}).keys() - {*part.get("required", ())}) for part in parts)
    unions = sum("anyOf" in part or isinstance(part.get("type"), list) for part in parts)
    if len(tools) > MAX_TOOLS:
        yield f"Too many strict tools ({len(tools)}). The maximum number of strict tools supported is {MAX_TOOLS}."
    if optional > MAX_OPTIONAL:
        yield f"Schemas contain too many optional parameters ({optional}, limit: {MAX_OPTIONAL})"
    if unions > MAX_UNIONS:
        yield f"Schemas contain too many parameters with union types ({unions}, limit: {MAX_UNIONS})"


def openai_mistakes(schema: Json) -> Iterator[str]:
    """What OpenAI's APIs reject in a strict schema."""
    if schema.get("type") != "object" or "anyOf" in schema:
        yield "schema must be a JSON Schema of 'type: \"object\"', without 'anyOf' at the root"
    parts = list(_parts(schema))
    for depth, part in parts:
        for name in sorted(part.keys() - OPENAI_KEYWORDS):
            yield f"'{name}' is not permitted"
        if "$ref" in part and len(part) > 1:
            yield f"$ref cannot have keywords {sorted(part.keys() - {'$ref'})}"
        if missing := sorted(part.get("properties", {}).keys() - {*part.get("required", ())}):
            yield (
                "'required' is required to be supplied and to be an array including every key in properties. Missing"
                f" {missing[0]!r}"
            )
        if not part.keys() & {"type", "anyOf", "$ref"}:
            yield "schema must have a 'type' key"
        if part.get("format", "date") not in FORMATS:
            yield f"'{part['format']}' is not a valid format"
        if BEYOND_REGULAR.search(part.get("pattern", "")):
            yield f"'pattern' {part['pattern']!r} is not supported"
        if depth > MAX_DEPTH:
            yield f"schema exceeds maximum nesting depth of {MAX_DEPTH}"
        values = [str(value) for value in part.get("enum", ())]
        if len(values) > LONG_ENUM and sum(map(len, values)) > MAX_LONG_ENUM:
            yield f"enum has too many characters ({sum(map(len, values))}, limit: {MAX_LONG_ENUM})"
        yield from _common_mistakes(part)
    names = [name for _, part in parts for name in [*part.get("properties", {}), *part.get("$defs", {})]]
    values = [str(value) for _, part in parts for value in [*part.get("enum", ()), part.get("const", "")]]
    if len(names) > MAX_PROPERTIES or sum(len(part.get("enum", ())) for _, part in parts) > MAX_VALUES:
        yield f"schema exceeds {MAX_PROPERTIES} object properties or {MAX_VALUES} enum values"
    if sum(map(len, [*names, *values])) > MAX_CHARACTERS:
        yield f"schema exceeds {MAX_CHARACTERS} characters of names and values"


def _common_mistakes(part: Json) -> Iterator[str]:
    types = part["type"] if isinstance(part.get("type"), list) else [part.get("type")]
    if "object" in types and part.get("additionalProperties") is not False:
        yield "For 'object' type, 'additionalProperties' must be explicitly set to false"
    if "array" in types and not isinstance(part.get("items"), dict):
        yield "For 'array' type, 'items' must be a schema"
    if {*part.get("required", ())} - part.get("properties", {}).keys():
        yield "'required' has names that are not in 'properties'"
    if any(isinstance(value, dict | list) for value in part.get("enum", ())):
        yield "enum values must be strings, numbers, booleans or null"
    if not part.keys() & {"type", "anyOf", "allOf", "enum", "const", "$ref"}:
        yield "Schema must have a type"


def _parts(schema: Any, depth: int = 0) -> Iterator[tuple[int, Json]]:
    """Yield each schema in a schema, the whole schema first, with its depth: the nested objects, itself included."""
    if not isinstance(schema, dict):
        yield depth, {}
        return
    inner = depth + 1 if "properties" in schema else depth
    yield inner, schema
    for name in ("properties", "$defs", "definitions"):
        for part in schema.get(name, {}).values():
            yield from _parts(part, inner if name == "properties" else 0)
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), dict):
            yield from _parts(schema[name], inner)
    for name in ("anyOf", "oneOf", "allOf"):
        for part in schema.get(name, ()):
            yield from _parts(part, inner)


def _is_recursive(schema: Json) -> bool:
    refers = {
        name: {str(part["$ref"]).rpartition("/")[2] for _, part in _parts(definition) if "$ref" in part}
        for name, definition in schema.get("$defs", {}).items()
    }
    for _ in refers:
        refers = {name: others.union(*(refers.get(other, ()) for other in others)) for name, others in refers.items()}
    return any(name in others for name, others in refers.items())
