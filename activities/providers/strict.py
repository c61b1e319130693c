"""Strict schemas: a provider lets a model write only what fits them, but supports only a part of JSON Schema.

A schema is sent in its strict form; a schema without a strict form is sent unchanged and without `strict`. The strict
form may accept more than the schema, because limits such as `maxLength` become a part of its description: arguments are
always validated.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from enum import StrEnum
from typing import Any, NamedTuple

import structlog

from activities.borders import classify
from activities.providers.messages import LanguageModel, Reply, Request, ToolDefinition
from activities.providers.metering import current_reply
from workflows.faults.fault import Code
from workflows.json_values import digest

log = structlog.get_logger("replan.model")

Schema = dict[str, Any]

# Without `time` and `date-time`: RFC 3339 demands an offset in them, and a tool's `time` or `datetime` often has none.
FORMATS = frozenset({"date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"})
NUMBERS = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})
LIMITS = NUMBERS | {
    *("minLength", "maxLength", "pattern", "format", "minItems", "maxItems", "uniqueItems"),
    *("minProperties", "maxProperties", "default", "examples"),
}
"""The keywords that may become a part of the description."""
SHAPES = frozenset(
    {"type", "properties", "required", "additionalProperties", "items", "anyOf", "oneOf", "enum", "const"}
)
ABOUT = frozenset({"title", "description"})
IGNORED = frozenset({"$defs", "definitions", "$schema", "$id", "$comment", "discriminator", "deprecated", "readOnly"})
UNSUPPORTED_REGEX = re.compile(r"\(\?|\\[1-9a-ceg-mo-qu-vx-zA-CE-RT-VX-Z]")
"""Finds lookaround, backreferences, word boundaries and other parts of a regular expression beyond the basic ones."""
JSON_TYPES: Mapping[type, str] = {
    **{str: "string", bool: "boolean", int: "integer", float: "number"},
    **{type(None): "null", list: "array", dict: "object"},
}
MAX_PARTS = 2_000
"""The most parts of a strict form, in which each `$ref` is replaced by its definition."""
LONG_ENUM, MAX_LONG_ENUM = 250, 15_000
"""An enum with more values than LONG_ENUM may have at most MAX_LONG_ENUM characters."""
MAX_REJECTED = 3
"""How many different sets of strict schemas a provider may reject; then no more are sent to the model."""


class Rules(NamedTuple):
    """What a provider supports in strict schemas."""

    formats: frozenset[str]
    limits: frozenset[str]
    """Keywords of LIMITS that the provider enforces."""
    requires_all: bool
    """Whether each property must be in `required`."""
    max_depth: int | None
    """How many objects may be nested; None for any number."""
    per_schema: Mapping[str, int]
    """The most of a schema's `values` (of enums) and `characters` (of names and of values of enums)."""
    per_request: Mapping[str, int]
    """The most `tools` with a strict schema in a request, and the most of all their `optional` properties and `unions`
    (`anyOf`, and lists of types)."""
    source: str


ANTHROPIC = Rules(
    formats=FORMATS | {"uri"},
    limits=frozenset({"default"}),
    requires_all=False,
    max_depth=None,
    per_schema={},
    per_request={"tools": 20, "optional": 24, "unions": 16},
    source="https://platform.claude.com/docs/en/build-with-claude/structured-outputs",
)
OPENAI = Rules(
    formats=FORMATS,
    limits=NUMBERS | {"pattern", "minItems", "maxItems"},
    requires_all=True,
    max_depth=10,
    per_schema={"values": 1_000, "characters": 120_000},
    per_request={},
    source="https://developers.openai.com/api/docs/guides/structured-outputs",
)
LIMIT_REACHED: Mapping[str, str] = {
    "tools": "a request may have {most} strict tools",
    "optional": "all tools of a request may have {most} optional properties",
    "unions": "all tools of a request may have {most} properties with several types",
}


class NotStrict(ValueError):
    """A schema has no strict form; the message says why."""


class SchemaStanding(StrEnum):
    """What a provider did with a set of strict schemas."""

    ACCEPTED = "accepted"
    LATE = "late"
    """The provider did not answer in time, perhaps because it takes longer to compile the schemas."""
    REJECTED = "rejected"


class StrictModel:
    """A model that gets strict schemas; if its provider rejects them, the request is sent once more without them."""

    def __init__(self, model: LanguageModel, rules: Rules, standings: dict[str, SchemaStanding]) -> None:
        """`standings` has the standing of each set of schemas so far in this process, by the digest of the set."""
        self.name = model.name
        self.plain = model
        """The model without strict schemas."""
        self._rules = rules
        self._standings = standings

    async def reply(self, request: Request) -> Reply:
        strict, _ = with_strict_schemas(request, self._rules)
        schemas = [dict(tool.schema) for tool in [strict.answer, *strict.tools] if tool and tool.strict]
        sent = digest(*schemas)
        before, rejected = self._standings.get(sent), [*self._standings.values()].count(SchemaStanding.REJECTED)
        if not schemas or before is SchemaStanding.REJECTED or rejected >= MAX_REJECTED:
            return await self.plain.reply(request)
        if before is SchemaStanding.LATE:
            del self._standings[sent]
        else:
            try:
                reply = await self.plain.reply(strict)
            except Exception as error:  # total: `classify` knows every exception
                if before is None and classify(error).code is Code.TIMEOUT:
                    self._standings[sent] = SchemaStanding.LATE
                if not _is_rejection(error):
                    raise
                current_reply().rejected += 1
            else:
                self._standings[sent] = SchemaStanding.ACCEPTED
                return reply
        reply = await self.plain.reply(request)
        # Only now: without a reply, the schemas may not be what was wrong.
        self._standings[sent] = SchemaStanding.REJECTED
        log.warning("no_strict", model=self.name, remedy="set strict = false for it in the settings file")
        return reply


def _is_rejection(error: Exception) -> bool:
    # The messages differ from schema to schema, and no field says that the schemas are the reason.
    return getattr(error, "status_code", 0) in (400, 422) and classify(error).code is Code.MALFORMED_SCHEMA


def with_strict_schemas(request: Request, rules: Rules) -> tuple[Request, dict[str, str]]:
    """The request with the strict forms of its schemas, and for each tool without a strict form the reason.

    A request may have a limited number of strict schemas: first that of the answer, then those that need the least.
    """
    reasons, forms = dict[str, str](), dict[str, _Form]()
    for tool in request.tools:
        try:
            forms[tool.name] = _Form(tool.schema, rules)
        except NotStrict as why:
            reasons[tool.name] = str(why)
    used, answer = Counter[str](), None
    with suppress(NotStrict):  # `finish` has the same schema, and the reason
        if request.answer is not None:
            form = _Form(request.answer.schema, rules)
            used, answer = _sum(rules, form.needs), form.apply_to(request.answer)
    for name, form in sorted(forms.items(), key=lambda named: named[1].needs.total()):
        try:
            used = _sum(rules, used, form.needs, Counter(tools=1))
        except NotStrict as why:
            reasons[name] = str(why)
    tools = [tool if tool.name in reasons else forms[tool.name].apply_to(tool) for tool in request.tools]
    return replace(request, tools=tools, answer=answer), reasons


def _sum(rules: Rules, *needs: Counter[str]) -> Counter[str]:
    """Add up what the schemas of a request need; raise NotStrict if that exceeds `rules.per_request`."""
    total = sum(needs, Counter[str]())
    for what, most in rules.per_request.items():
        if total[what] > most:
            raise NotStrict(LIMIT_REACHED[what].format(most=most))
    return total


class _Form:
    """The strict form of a schema, and what it needs of the limits of a request."""

    def __init__(self, schema: Mapping[str, Any], rules: Rules) -> None:
        """Make the strict form; raise NotStrict if there is none under these `rules`."""
        self._root, self._rules = schema, rules
        self._size = Counter[str]()
        self.needs = Counter[str]()
        try:
            self.schema = self._part(schema, "it", 0, ())
        except RecursionError:
            raise NotStrict("it is nested too deeply") from None
        for what, most in rules.per_schema.items():
            if self._size[what] > most:
                raise NotStrict(f"it has more than {most} {what} in names and enums")

    def apply_to(self, tool: ToolDefinition) -> ToolDefinition:
        return replace(tool, schema=self.schema, strict=True)

    def _part(self, part: Any, name: str, depth: int, refs: tuple[str, ...]) -> Schema:
        """The strict form of a part of the schema: `name` is for messages, `refs` are the `$ref`s that led to it."""
        self._size["parts"] += 1
        if self._size["parts"] > MAX_PARTS:
            raise NotStrict(f"it has more than {MAX_PARTS} parts")
        if isinstance(part, dict) and "$ref" in part:
            if part["$ref"] in refs:
                raise NotStrict(f"{name} may contain itself")
            return self._part(self._resolve_ref(part, name), name, depth, (*refs, part["$ref"]))
        if not isinstance(part, dict) or not part.keys() & {"type", "anyOf", "oneOf", "enum", "const"}:
            raise NotStrict(f"{name} takes any value")
        if others := part.keys() - SHAPES - LIMITS - ABOUT - IGNORED:
            raise NotStrict(f"{name} uses {min(others)}")
        choices = [*part.get("anyOf", ()), *part.get("oneOf", ())]
        if not choices:
            return {**self._described(part), **self._part_without_choices(part, name, depth, refs)}
        if ("anyOf" in part and "oneOf" in part) or part.keys() & SHAPES - {"anyOf", "oneOf"}:
            raise NotStrict(f"{name} joins anyOf with other keywords")
        self.needs["unions"] += 1
        return {**self._described(part), "anyOf": [self._part(choice, name, depth, refs) for choice in choices]}

    def _resolve_ref(self, part: Schema, name: str) -> Any:
        """The part of the schema to which a `$ref` refers, with the keywords beside the `$ref`."""
        if part.keys() - {"$ref", "default", "examples"} - ABOUT - IGNORED:
            raise NotStrict(f"{name} joins $ref with other keywords")
        found: Any = self._root
        try:
            for step in str(part["$ref"]).removeprefix("#").split("/")[1:]:
                found = found[int(step) if isinstance(found, list) else step.replace("~1", "/").replace("~0", "~")]
        except (KeyError, IndexError, TypeError, ValueError):
            raise NotStrict(f"{name} refers to {part['$ref']}, which it does not have") from None
        beside = {keyword: value for keyword, value in part.items() if keyword != "$ref"}
        return {**found, **beside} if isinstance(found, dict) else found

    def _part_without_choices(self, part: Schema, name: str, depth: int, refs: tuple[str, ...]) -> Schema:
        form: Schema = {keyword: part[keyword] for keyword in ("enum", "const") if keyword in part}
        values = [*part.get("enum", ()), *([part["const"]] if "const" in part else [])]
        if any(isinstance(value, dict | list) for value in values):
            raise NotStrict(f"{name} lists values that are objects or lists")
        letters = sum(len(str(value)) for value in values)
        self._size.update(values=len(values), characters=letters)
        if "values" in self._rules.per_schema and len(values) > LONG_ENUM and letters > MAX_LONG_ENUM:
            raise NotStrict(f"{name} lists more than {MAX_LONG_ENUM} characters")
        declared = part.get("type", sorted({JSON_TYPES[type(value)] for value in values}))
        types = declared if isinstance(declared, list) else [declared]
        if not types:
            raise NotStrict(f"{name} takes any value")
        self.needs["unions"] += 1 if len(types) > 1 else 0
        form["type"] = types if len(types) > 1 else types[0]
        if "object" in types:
            form |= self._object(part, name, depth + 1, refs)
        if "array" in types:
            form["items"] = self._part(part.get("items"), f"each of {name}", depth, refs)
        return form

    def _object(self, part: Schema, name: str, depth: int, refs: tuple[str, ...]) -> Schema:
        if self._rules.max_depth is not None and depth > self._rules.max_depth:
            raise NotStrict(f"it has objects more than {self._rules.max_depth} levels deep")
        others = part.get("additionalProperties", None if "properties" in part else True)
        if others not in (None, False):
            raise NotStrict(f"{name} takes properties of any name")
        properties, required = part.get("properties", {}), part.get("required", ())
        if unknown := {*required} - properties.keys():
            raise NotStrict(f"{name} requires {min(unknown)!r}, which it does not describe")
        self._size["characters"] += sum(map(len, properties))
        fields = {field: self._part(schema, repr(field), depth, refs) for field, schema in properties.items()}
        names = [field for field in properties if field in required or self._is_required(properties[field], field)]
        self.needs["optional"] += len(properties) - len(names)
        return {"properties": fields, "required": names, "additionalProperties": False}

    def _is_required(self, part: Any, field: str) -> bool:
        """Whether an optional property becomes required; raise NotStrict if it must, but null cannot leave it out."""
        if not self._rules.requires_all:
            return False
        # Another optional property must not take null for "left out": the tool's model would reject the null, or take
        # it for a value of its own.
        if part.get("default", ...) is None and any(_is_null(option) for option in [part, *part.get("anyOf", ())]):
            return True
        raise NotStrict(f"{field!r} may be left out")

    def _described(self, part: Schema) -> Schema:
        """The title, the description and the limits of a part; the description contains what is not enforced."""
        kept = {name: value for name, value in part.items() if name in ABOUT or self._is_enforced(name, value)}
        noted = [
            f"{name}: {json.dumps(value)}"
            for name, value in part.items()
            if name in LIMITS and name not in kept and (name, value) != ("default", None)
        ]
        lines = [*filter(None, [kept.get("description")]), *([f"({', '.join(noted)})"] if noted else [])]
        return {**kept, "description": " ".join(lines)} if lines else kept

    def _is_enforced(self, name: str, value: Any) -> bool:
        match name:
            case "format":
                return value in self._rules.formats
            case "pattern":
                return name in self._rules.limits and not UNSUPPORTED_REGEX.search(value)
            case "minItems" if value in (0, 1):
                return True
            case _:
                return name in self._rules.limits


def _is_null(part: Any) -> bool:
    return isinstance(part, dict) and (part.get("type") == "null" or "null" in part.get("type", ()))
