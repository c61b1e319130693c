"""The names of arguments as a model sees and writes them: providers take no other names than `filter_status_`.

A tool may call an argument `filter[status]`. Each request to a model has other names in place of such names, and the
model's calls get the tool's own names again before anybody else sees them.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import count
from typing import Any
from urllib.parse import unquote

from pydantic import JsonValue

from activities.providers.messages import AssistantTurn, Request, ToolCall, ToolDefinition, Turn

MAX_NAME = 64
USUAL = re.compile(rf"[A-Za-z0-9_.-]{{1,{MAX_NAME}}}")
"""Matches the names that every provider takes."""
UNUSUAL_CHARACTER = re.compile("[^A-Za-z0-9_.-]")
SCHEMAS = ("$defs", "definitions", "patternProperties", "dependentSchemas", "properties")
"""Keywords with a schema for each of several names."""
VALUES = ("const", "default", "enum", "examples")
"""Keywords with values, in which nothing is renamed."""
BRANCHES = ("allOf", "anyOf", "oneOf")
CONDITIONS = ("if", "then", "else")

Schema = Mapping[str, Any]


class TwoNames(ValueError):
    """A model gave an argument by its own name and by the name for models; the message is the tool's own name."""


class PropertyNames:
    """The names for a model of the properties in a tool's schema."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        names = dict.fromkeys(name for part in _parts(schema) for name in _properties(part))
        self._written = dict[str, str]()
        """For each property with a name that no model may write, the name for models."""
        taken = {name for name in names if USUAL.fullmatch(name)}
        for name in names:
            if name not in taken:
                self._written[name] = _free_name(name, {*taken, *self._written.values()})
        self._own = {written: name for name, written in self._written.items()}

    @property
    def is_needed(self) -> bool:
        return bool(self._written)

    @cached_property
    def schema(self) -> dict[str, Any]:
        """The schema for a model; the description of a renamed property has its own name."""
        renamed: dict[str, Any] = self._renamed(self._schema)
        return renamed

    def written(self, args: dict[str, JsonValue]) -> dict[str, JsonValue]:
        """Arguments with the names for a model, in place of the tool's own."""
        return self._translated(args, [self._schema], self._written)  # type: ignore[no-any-return]  # as it was

    def own(self, args: dict[str, JsonValue]) -> dict[str, JsonValue]:
        """Arguments with the tool's own names, in place of those for a model; raises TwoNames."""
        return self._translated(args, [self._schema], self._own)  # type: ignore[no-any-return]  # as it was

    def _renamed(self, part: Any) -> Any:
        if isinstance(part, list):
            return [self._renamed(item) for item in part]
        return {name: self._keyword(name, value) for name, value in part.items()} if isinstance(part, dict) else part

    def _keyword(self, keyword: str, value: Any) -> Any:
        if keyword in VALUES:
            return value
        if keyword == "required" and isinstance(value, list):
            return [self._written.get(name, name) for name in value]
        if keyword == "dependentRequired" and isinstance(value, dict):
            return {self._name(name): [*map(self._name, names)] for name, names in value.items()}
        if keyword not in SCHEMAS or not isinstance(value, dict):
            return self._renamed(value)
        are_names = keyword in ("properties", "dependentSchemas")
        parts = {self._name(name) if are_names else name: self._renamed(part) for name, part in value.items()}
        if keyword == "properties":
            parts |= {self._name(name): self._described(name, parts[self._name(name)]) for name in value}
        return parts

    def _name(self, name: str) -> str:
        return self._written.get(name, name)

    def _described(self, name: str, part: Any) -> Any:
        if name not in self._written or not isinstance(part, dict):
            return part
        words = [f"The tool calls it {name!r}.", str(part.get("description") or "")]
        return {**part, "description": " ".join(filter(None, words))}

    def _translated(self, value: Any, places: Iterable[Any], names: Mapping[str, str]) -> Any:
        """A value whose schemas are `places`, with other names for the properties that these schemas declare."""
        known = [*self._applied(places)]
        if isinstance(value, list):
            return [self._translated(item, _of_item(known, number), names) for number, item in enumerate(value)]
        if not isinstance(value, dict):
            return value
        declared = {name for part in known for name in _properties(part)}
        found = dict[str, JsonValue]()
        for key, item in value.items():
            other = names.get(key)
            is_renamed = other is not None and (key in declared or other in declared)
            name = other if is_renamed and other is not None else key
            if name in found or (is_renamed and name in value):
                raise TwoNames(name)
            own = name if name in declared else key
            found[name] = self._translated(item, _of_property(known, own), names)
        return found

    def _applied(self, places: Iterable[Any]) -> Iterator[Schema]:
        """Yield the schemas that apply to a value at the same place as those of `places`, each once."""
        waiting, done = [*places], set[int]()
        while waiting:
            part = waiting.pop()
            if not isinstance(part, dict) or id(part) in done:
                continue
            done.add(id(part))
            yield part
            waiting += [branch for keyword in BRANCHES for branch in part.get(keyword, ())]
            waiting += [part[keyword] for keyword in CONDITIONS if keyword in part]
            waiting += part.get("dependentSchemas", {}).values()
            if isinstance(reference := part.get("$ref"), str):
                waiting.append(self._at(reference))

    def _at(self, reference: str) -> Any:
        """What is in the schema at a pointer; None if there is nothing."""
        found: Any = self._schema
        for step in unquote(reference.removeprefix("#")).split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            if isinstance(found, list) and name.isdecimal() and int(name) < len(found):
                found = found[int(name)]
            else:
                found = found.get(name) if isinstance(found, dict) else None
        return found


class RequestNames:
    """The names in the tools of one request."""

    def __init__(self, tools: Sequence[ToolDefinition]) -> None:
        every = {tool.name: PropertyNames(tool.schema) for tool in tools}
        self._tools = {tool: names for tool, names in every.items() if names.is_needed}

    def written(self, request: Request) -> Request:
        """The request with names that the model may write."""
        if not self._tools:
            return request
        tools = [
            replace(tool, schema=self._tools[tool.name].schema) if tool.name in self._tools else tool
            for tool in request.tools
        ]
        return replace(request, tools=tools, turns=[self._written_turn(turn) for turn in request.turns])

    def own(self, turn: AssistantTurn) -> AssistantTurn:
        """The model's turn with the tools' own names."""
        return replace(turn, calls=tuple(map(self._own_call, turn.calls))) if self._tools else turn

    def _written_turn(self, turn: Turn) -> Turn:
        if not isinstance(turn, AssistantTurn):
            return turn
        return replace(turn, calls=tuple(map(self._written_call, turn.calls)))

    def _written_call(self, call: ToolCall) -> ToolCall:
        try:
            return replace(call, args=self._tools[call.name].written(call.args)) if call.name in self._tools else call
        except TwoNames:
            return call

    def _own_call(self, call: ToolCall) -> ToolCall:
        try:
            return replace(call, args=self._tools[call.name].own(call.args)) if call.name in self._tools else call
        except TwoNames as name:
            return replace(call, args={}, broken=f"an object in them has {str(name)[:MAX_NAME]!r} under two names")


def _free_name(name: str, taken: Iterable[str]) -> str:
    """A usual name that is like `name` and not in `taken`."""
    plain = UNUSUAL_CHARACTER.sub("_", name)[:MAX_NAME] or "_"
    others = (f"{plain[: MAX_NAME - 5]}_{number}" for number in count(2))
    return plain if plain not in taken else next(other for other in others if other not in taken)


def _parts(value: Any) -> Iterator[Schema]:
    """Yield the schemas in a schema, itself included, at any depth."""
    if isinstance(value, list):
        for item in value:
            yield from _parts(item)
    elif isinstance(value, dict):
        yield value
        for keyword, part in value.items():
            if keyword not in VALUES:
                yield from _parts([*part.values()] if keyword in SCHEMAS and isinstance(part, dict) else part)


def _properties(part: Schema) -> Mapping[str, Any]:
    found = part.get("properties")
    return found if isinstance(found, dict) else {}


def _of_property(known: Iterable[Schema], name: str) -> list[Any]:
    """The schemas of a property, of each schema in `known` that has one."""
    declared = [_properties(part)[name] for part in known if name in _properties(part)]
    others = [part for part in known if name not in _properties(part)]
    patterns = [inner for part in others for inner in part.get("patternProperties", {}).values()]
    return [*declared, *patterns, *(part.get("additionalProperties") for part in others)]


def _of_item(known: Iterable[Schema], number: int) -> list[Any]:
    firsts = [(part.get("prefixItems", ()), part.get("items")) for part in known]
    return [first[number] if number < len(first) else rest for first, rest in firsts]
