"""Finds the type of a field such as `result.free.0` in a JSON schema, to check paths in the options of tools."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter
from pydantic.errors import PydanticUserError

from activities.toolbox.expressions.evaluation import Type
from workflows.text import nearest

Schema = Mapping[str, Any]
_TYPES: Mapping[str, Type] = {
    "integer": Type.NUMBER,
    "number": Type.NUMBER,
    "string": Type.TEXT,
    "boolean": Type.TRUTH,
    "null": Type.NONE,
    "array": Type.LIST,
    "object": Type.OBJECT,
}


class NoField(LookupError):
    """A path names a field that does not exist; the message is the end of a sentence, and lists the existing fields."""


@dataclass(frozen=True)
class Fields:
    """The two JSON schemas of a type: of its JSON output and of its input."""

    written: Schema  # the schema of its JSON
    read: Schema  # the schema of its input: here a decimal may be a number, in the output it is a text

    @classmethod
    def of(cls, annotation: Any) -> "Fields":
        """Make the schemas of an annotation; empty schemas if it is None or pydantic has no schema for it."""
        if annotation in (None, type(None)):
            return cls({}, {})
        try:
            adapter = TypeAdapter[Any](annotation)
            return cls(adapter.json_schema(by_alias=False, mode="serialization"), adapter.json_schema(by_alias=False))
        except PydanticUserError:
            return cls({}, {})

    def type(self, dotted: str) -> Type | None:
        """The type at a path such as `result.free.0` in a value of this type; None if unknown. Raises NoField."""
        type = _type(_at(self.written, dotted))
        try:
            return type if type is _type(_at(self.read, dotted)) else None
        except NoField:  # a computed field is only in the output
            return None


def _at(whole: Schema, dotted: str) -> list[Schema]:
    """The schemas of the value at the path `dotted`, one for each member of a union; `{}` allows any value."""
    parts = dotted.split(".")
    places = _members(whole, whole)
    for number, part in enumerate(parts[1:], start=1):
        below = [schema for parent in places for schema in _below(parent, part)]
        if not below:
            raise NoField(_instead(".".join(parts[:number]), part, places))
        places = [member for schema in below for member in _members(schema, whole)]
    return places


def _members(schema: Schema | bool, whole: Schema) -> list[Schema]:
    """The members of a schema that is a union, or else the schema itself; `whole` has the referenced definitions."""
    if isinstance(schema, bool):
        return [{}]
    if isinstance(types := schema.get("type"), list):
        return [{**schema, "type": type} for type in types]
    if "$ref" in schema:
        return _members(whole["$defs"][schema["$ref"].rpartition("/")[2]], whole)
    union = schema.get("anyOf") or schema.get("oneOf")
    return [member for alternative in union for member in _members(alternative, whole)] if union else [schema]


def _below(schema: Schema, part: str) -> list[Schema]:
    """A list with the schema of the field or item `part`, or an empty list if there is none; `{}` allows any value."""
    match _TYPES.get(schema.get("type", "")):
        case Type.OBJECT:
            named = schema.get("properties", {})
            others = schema.get("additionalProperties", "properties" not in schema)
            found = named.get(part, others)
        case Type.LIST:
            first = schema.get("prefixItems", [])
            others = schema.get("items", not first)
            found = part.isdecimal() and (first[int(part)] if int(part) < len(first) else others)
        case None:
            found = True
        case _:
            found = False
    return [{} if found is True else found] if found is not False else []


def _instead(where: str, part: str, places: Sequence[Schema]) -> str:
    """The end of a sentence about a missing field: what there is instead of `part` at the path `where`."""
    models = [schema for schema in places if "properties" in schema]
    if models:
        near = nearest(part, {field for model in models for field in model["properties"]})
        fields_of_models = [f"{model.get('title', where)} has {sorted(model['properties'])}" for model in models]
        return f"{near}: {', '.join(fields_of_models)}"
    if Type.LIST in map(_type, ([schema] for schema in places)):
        return f": {where!r} is a list, so write {where}.0 for its first item"
    return f": {where!r} has no fields"


def _type(places: Sequence[Schema]) -> Type | None:
    """The type that all the schemas have, apart from null; None if they have several types or an unknown one."""
    types = {_TYPES.get(schema.get("type", "")) for schema in places}
    types = types - {Type.NONE} or types  # null counts only if there is no other type
    return types.pop() if len(types) == 1 else None
