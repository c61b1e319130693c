"""The drafts of JSON Schema: where a schema has schemas in it, and where its references lead."""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any
from urllib.parse import quote

DATA = ("const", "default", "enum", "example", "examples")
"""Keywords that have values, not schemas; a `$ref` in a value is no reference."""
NAMED = frozenset({"$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"})
"""JSON Schema keywords that have a schema for each name of their own; such a name may be that of a keyword."""
DRAFTS = {
    "2020-12": "Draft202012Validator",
    "2019-09": "Draft201909Validator",
    "draft-07": "Draft7Validator",
    "draft-06": "Draft6Validator",
    "draft-04": "Draft4Validator",
}
"""The drafts of JSON Schema, the newest first, each with the class of jsonschema that validates by it."""
NEWEST = "2020-12"
REFERENCE_ALONE = ("draft-07", "draft-06", "draft-04")
"""The drafts in which all keywords beside a `$ref` are ignored."""
WHOLE = "urn:replan:schema"
"""The address of a whole schema without an id, for references into it."""


class BadSchema(ValueError):
    """A JSON schema cannot be used; the message gives the reason in words that fit into a longer sentence."""


def validator_class(draft: str) -> Any:
    # Imported where they are used, as in all of this package: they take 3 MB, and most workers never see a schema.
    import jsonschema  # type: ignore[import-untyped]  # ships no types

    return getattr(jsonschema, DRAFTS[draft])


def specification(draft: str) -> Any:
    from referencing.jsonschema import specification_with

    plain = validator_class(draft)
    return specification_with(plain.ID_OF(plain.META_SCHEMA))


def registry_of(draft: str, schema: Mapping[str, Any]) -> Any:
    """A registry of `referencing` with a schema at its address."""
    from referencing import Registry

    return Registry().with_resource(address_of(draft, schema), specification(draft).create_resource(schema)).crawl()


def address_of(draft: str, schema: Mapping[str, Any]) -> str:
    """The address of a whole schema, which is its id if it has one."""
    return specification(draft).create_resource(schema).id() or WHOLE


def inner_resolver(draft: str, resolver: Any, part: Any) -> Any:
    return resolver.in_subresource(specification(draft).create_resource(part))


def target(resolver: Any, reference: str) -> Any:
    """The schema to which a reference leads, as `referencing` resolves it; None if it leads to no schema."""
    from referencing.exceptions import Unresolvable

    try:
        found = resolver.lookup(reference)
    except (Unresolvable, ValueError, TypeError, AttributeError):  # of an address or a pointer that is none
        return None
    return found if isinstance(found.contents, dict | bool) else None


def pointer_part(name: str) -> str:
    """A name as a part of a JSON pointer in the fragment of an address."""
    return quote(name.replace("~", "~0").replace("/", "~1"), safe="", errors="surrogatepass")


def schemas(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The schema and all schemas in it, at any depth; a schema comes before those in it."""
    yield schema
    for keyword, value in schema.items():
        for _, part in schemas_in(keyword, value):
            yield from schemas(part)


def schemas_in(keyword: str, value: Any) -> list[tuple[str, dict[str, Any]]]:
    """The schemas that are directly in the value of a keyword, each with its place in it. Booleans are left out."""
    if keyword in DATA or keyword.startswith("x-"):
        return []
    if isinstance(value, dict):
        parts = [(f".{name}", part) for name, part in value.items()] if keyword in NAMED else [("", value)]
    else:
        parts = [(f".{number}", part) for number, part in enumerate(value)] if isinstance(value, list) else []
    return [(key, part) for key, part in parts if isinstance(part, dict)]


def relocated(schema: dict[str, Any], below: str) -> dict[str, Any]:
    """Copy a schema for use at the place `below` in another schema: each pointer in the copy begins with `below`."""
    moved = deepcopy(schema)
    for part in schemas(moved):
        if isinstance(reference := part.get("$ref"), str) and reference[:2] in ("#", "#/"):
            part["$ref"] = below + reference[1:]
    return moved
