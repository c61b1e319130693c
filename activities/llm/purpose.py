"""Kinds of the same purpose: who may answer a question in the place of another."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from activities.toolbox.kind import Kind
from workflows.catalogue import Effect
from workflows.plan import Step

_FOR_PEOPLE = ("title", "description", "examples")


def same_purpose(step: Step, kinds: Mapping[str, Kind], down: Collection[str]) -> Iterator[str]:
    """Yield the usable kinds that take the arguments of `step` and return the same fields, by name.

    Only what reads is ever replaced: two effects that look alike need not be the same effect.
    """
    old = kinds.get(step.kind)
    if old is None or old.spec.effect is not Effect.READ:
        return
    asks, brings = _fields(old.args_schema), _fields(_result(old))
    for name in sorted(set(kinds) - {step.kind, *down}):
        new = kinds[name]
        if new.spec.effect is not Effect.READ or not brings or _fields(_result(new)) != brings:
            continue
        takes = _fields(new.args_schema)
        accepts = all(field in asks and takes.get(field) == asks[field] for field in step.args)
        if accepts and set(new.args_schema.get("required", ())) <= set(step.args):
            yield name


def _result(kind: Kind) -> dict[str, Any]:
    return kind.result.json_schema(mode="serialization")


def _fields(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of an object with their schemas, without what is written for people."""
    definitions = schema.get("$defs", {})
    return {name: _plain(field, definitions, ()) for name, field in _object(schema, definitions).items()}


def _object(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Mapping[str, Any]:
    target = definitions.get(str(schema.get("$ref", "")).rpartition("/")[2], schema)
    properties: Mapping[str, Any] = target.get("properties", {})
    return properties


def _plain(value: Any, definitions: Mapping[str, Any], within: tuple[str, ...]) -> Any:
    """A schema with its definitions in place, which may be named differently elsewhere; a circle ends at its name."""
    if isinstance(value, list):
        return [_plain(item, definitions, within) for item in value]
    if not isinstance(value, dict):
        return value
    name = str(value.get("$ref", "")).rpartition("/")[2]
    if name in definitions and name not in within:
        return _plain(definitions[name], definitions, (*within, name))
    fields = value.get("properties")
    plain = {
        key: _plain(item, definitions, within)
        for key, item in value.items()
        if key not in _FOR_PEOPLE and key != "properties"
    }
    if isinstance(fields, dict):  # whose names are data: one of them may be called title
        plain["properties"] = {key: _plain(item, definitions, within) for key, item in fields.items()}
    return plain
