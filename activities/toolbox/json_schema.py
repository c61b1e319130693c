"""Checks a JSON schema that a user or a model wrote, and validates values against it in bounded time."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from functools import cache, cached_property, lru_cache
from itertools import count, islice
from typing import Any

from pydantic import JsonValue
from pydantic_core import SchemaError as PatternError, SchemaValidator, ValidationError, core_schema

from workflows.json_values import canonical

MAX_SCHEMA = 32 * 1024  # bytes
MAX_REFERENCES = 20_000
"""The most `$ref`s that are followed to validate a value. Without this limit a small schema could take exponential
time, because each of its definitions can refer twice to the next definition."""
MAX_BRANCHES = 30_000
"""The most branches of `anyOf` and `oneOf` that one validation may reach. Branches that are not tried in the end count,
too. A branch takes some 50 us."""
MAX_NAMED, MAX_WORDS = 5, 200  # errors that a message reports, and characters of each
NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")  # a property's name that every model provider accepts
UNBOUNDED = ("patternProperties", "$dynamicRef", "$recursiveRef")
"""JSON Schema keywords that are rejected, because Python's regular expressions (in `patternProperties`) and dynamic
references can take any amount of time."""
OUTER = ("$schema", "$id")
COMBINED = ("anyOf", "oneOf", "allOf", "not", "enum", "const", "$ref")
NAMED = ("$defs", "definitions", "dependentSchemas", "properties")
"""JSON Schema keywords that have a schema for each name of their own; such a name may be that of a keyword."""
TURNING = ("const", "contains", "enum", "if", "not", "oneOf")
"""JSON Schema keywords by which a schema may allow less if a part of it allows more, or is changed."""
UNEVALUATED = ("unevaluatedItems", "unevaluatedProperties")
"""JSON Schema keywords by which a schema may allow less if any other keyword is left out."""
VALUE = "value"


class BadSchema(ValueError):
    """A JSON schema cannot be used; the message gives the reason in words that fit into a longer sentence."""


class JsonSchema:
    """A checked JSON schema, which can validate values."""

    def __init__(self, schema: Mapping[str, JsonValue]) -> None:
        """Check `schema`.

        Raises:
            BadSchema: `schema` violates the JSON Schema standard or a rule of a model provider, is too large, has a
                reference that leads nowhere, or has a keyword or pattern that cannot be checked in bounded time.
        """
        self._schema: dict[str, Any] = {name: part for name, part in schema.items() if name not in OUTER}
        if len(canonical(self._schema).encode()) > MAX_SCHEMA:
            raise BadSchema(f"it has more than {MAX_SCHEMA} bytes")
        # Imported where they are used, here and below: they take 3 MB, and most workers never see a schema.
        from jsonschema import Draft202012Validator, SchemaError  # type: ignore[import-untyped]  # ships no types
        from referencing import Registry
        from referencing.jsonschema import DRAFT202012

        try:
            Draft202012Validator.check_schema(self._schema)
        except SchemaError as error:
            where = ".".join(map(str, error.absolute_path)) or "the whole"
            raise BadSchema(f"{where}: {error.message[:MAX_WORDS]}") from error
        resolver = Registry().with_resource("", DRAFT202012.create_resource(self._schema)).resolver()
        for name, part in _parts(self._schema):
            if wrong := _wrong(name, part, resolver):
                raise BadSchema(wrong)

    @classmethod
    def part_of_checked(cls, part: Mapping[str, Any]) -> "JsonSchema":
        """Make a JsonSchema of a part of a schema that was checked before; the part is not checked again."""
        made = cls.__new__(cls)
        made._schema = dict(part)
        return made

    @cached_property
    def is_object(self) -> bool:
        """Whether the schema has `"type": "object"`, as a call's arguments need, and no keyword of `COMBINED`."""
        return self._schema.get("type") == "object" and not any(name in self._schema for name in COMBINED)

    @property
    def arguments(self) -> dict[str, Any]:
        """The schema for a call's arguments: this schema if `is_object`, else an object with it as field `value`."""
        if self.is_object:
            return self._schema
        inner = relocated(self._schema, f"#/properties/{VALUE}")
        return {"type": "object", "properties": {VALUE: inner}, "required": [VALUE], "additionalProperties": False}

    def value(self, args: dict[str, JsonValue]) -> JsonValue:
        """The value to validate, from the `args` of a call: `args` itself if `is_object`, else its field `value`."""
        return args if self.is_object else args.get(VALUE, args)

    def misfits(self, value: JsonValue) -> list[str]:
        """At most `MAX_NAMED` errors of a value, each with its place; raises BadSchema beyond the limits of a check."""
        return [
            f"{misfit.json_path.lstrip('$.') or 'the whole'}: {misfit.message[:MAX_WORDS]}"
            for misfit in self._errors(value)
        ]

    def broken_rules(self, value: JsonValue) -> list[str]:
        """At most `MAX_NAMED` rules that a value breaks, in texts without the value. Raises BadSchema as `misfits`."""
        return [
            f"{misfit.json_path.lstrip('$.')} {_rule(misfit)}".strip()[:MAX_WORDS] for misfit in self._errors(value)
        ]

    def _errors(self, value: JsonValue) -> list[Any]:
        from referencing.exceptions import Unresolvable

        followed, tried = _FOLLOWED.set(count(1)), _TRIED.set(count(1))
        try:
            return list(islice(self._validator.iter_errors(value), MAX_NAMED))
        except (RecursionError, Unresolvable) as error:
            raise BadSchema("it refers to itself without end, is nested too deeply, or has too many choices") from error
        finally:
            _FOLLOWED.reset(followed)
            _TRIED.reset(tried)

    @cached_property
    def _validator(self) -> Any:
        from referencing import Registry

        bounded = _bounded()
        return bounded(self._schema, registry=Registry(), format_checker=bounded.FORMAT_CHECKER)


def _rule(misfit: Any) -> str:
    """What jsonschema's error `misfit` requires of the value, in words that do not show the value."""
    rule, wanted = misfit.validator, misfit.validator_value
    if rule is None:  # of the schema `false`
        return "is not allowed"
    if rule == "type":
        return f"must be of type {wanted if isinstance(wanted, str) else ' or '.join(wanted)}"
    if rule == "required":
        missing = [name for name in wanted if name not in misfit.instance]
        return f"lacks {', '.join(missing)}"
    if rule in ("anyOf", "oneOf", "allOf", "not", "if"):
        return f"does not fit {rule} of its schema"
    if rule == "additionalProperties":
        return "has a name that is not declared"
    return f"must fit {rule} {canonical(wanted)}"


def checkable(schema: Any) -> Any:
    """Copy a foreign schema without the rules that `JsonSchema` cannot check; the copy allows the same values, or more.

    Left out are the keywords of `UNBOUNDED`, patterns that need backtracking, and references to other documents; then
    also the rules that would allow less because of that.
    """
    copy, is_exact = _looser(schema, is_changed=False)
    return copy if is_exact else _looser(schema, is_changed=True)[0]


def _looser(schema: Any, *, is_changed: bool) -> tuple[Any, bool]:
    """The copy of `checkable`, and whether it allows the same values as `schema`.

    `is_changed`: something is left out somewhere, perhaps where a `$ref` leads to.
    """
    if isinstance(schema, list):
        parts = [_looser(part, is_changed=is_changed) for part in schema]
        return [part for part, _ in parts], all(is_exact for _, is_exact in parts)
    if not isinstance(schema, Mapping):
        return schema, True
    left_out = {name for name in schema if name in UNBOUNDED and not isinstance(schema[name], bool)}
    if "patternProperties" in left_out:
        left_out.add("additionalProperties")
    if isinstance(pattern := schema.get("pattern"), str) and _pattern(pattern) is None:
        left_out.add("pattern")
    if isinstance(reference := schema.get("$ref"), str) and not (reference == "#" or reference.startswith("#/")):
        left_out.add("$ref")
    if is_changed:
        left_out.update(UNEVALUATED)
    copy = dict[str, Any]()
    is_exact = left_out.isdisjoint(schema) and not (is_changed and "$ref" in schema)
    for name, part in schema.items():
        if name in left_out:
            continue
        if name in NAMED and isinstance(part, Mapping):
            named = {key: _looser(value, is_changed=is_changed) for key, value in part.items()}
            copy[name], is_same = (
                {key: value for key, (value, _) in named.items()},
                all(same for _, same in named.values()),
            )
        else:
            looser, is_same = _looser(part, is_changed=is_changed)
            if is_same or name not in TURNING:
                copy[name] = looser
        is_exact = is_exact and is_same
    return copy, is_exact


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """All pairs of key and value in the objects of a JSON value, at any depth."""
    if isinstance(value, dict):
        yield from value.items()
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _parts(item)


def _wrong(name: str, part: Any, resolver: Any) -> str | None:
    """Why a keyword `name` with the value `part` is not allowed in a schema; None if it is allowed."""
    if name == "$ref" and isinstance(part, str):
        return None if part.startswith("#") and _resolves(part, resolver) else f"$ref {part[:80]!r} leads nowhere in it"
    if name == "pattern" and isinstance(part, str) and _pattern(part) is None:
        return f"the pattern {part[:80]!r} cannot be checked: write it without looking around and back"
    if name in UNBOUNDED and not isinstance(part, bool):
        return f"{name} is not taken: name the properties, and refer with $ref"
    names = part if name == "properties" and isinstance(part, dict) else ()
    odd = next((property_name for property_name in names if not NAME.fullmatch(property_name)), None)
    return None if odd is None else f"the property {odd[:80]!r} is no name of letters, digits, '_', '.' and '-' alone"


def _resolves(reference: str, resolver: Any) -> bool:
    from referencing.exceptions import Unresolvable

    try:
        resolver.lookup(reference)
    except Unresolvable:
        return False
    return True


@lru_cache(maxsize=256)
def _pattern(written: str) -> SchemaValidator | None:
    """A validator that matches a regular expression in linear time; None if the expression is not supported."""
    try:
        return SchemaValidator(core_schema.str_schema(pattern=written, regex_engine="rust-regex"))
    except PatternError:
        return None


def relocated(value: Any, below: str) -> Any:
    """Copy a schema for use at the place `below` in another schema: each reference in the copy begins with `below`."""
    if isinstance(value, list):
        return [relocated(item, below) for item in value]
    if not isinstance(value, dict):
        return value
    moved = {name: relocated(part, below) for name, part in value.items()}
    return moved | {"$ref": below + value["$ref"][1:]} if isinstance(value.get("$ref"), str) else moved


_FOLLOWED: ContextVar[Iterator[int]] = ContextVar("replan_followed")
"""Counts the references that are followed to validate one value."""
_TRIED: ContextVar[Iterator[int]] = ContextVar("replan_tried")
"""Counts the branches that a validation reaches."""


@cache
def _bounded() -> Any:
    """Make the class of the validators, which enforce the limits of this module; this takes a millisecond."""
    from jsonschema import Draft202012Validator, validators

    plain = Draft202012Validator.VALIDATORS["$ref"]

    def follow(validator: Any, reference: str, value: Any, part: Any) -> Iterator[Any]:
        if next(_FOLLOWED.get()) > MAX_REFERENCES:
            raise RecursionError
        yield from plain(validator, reference, value, part) or ()

    # jsonschema itself counts no references, matches patterns with Python's `re`, whose time has no bound, and compares
    # each item of a list with each other.
    choices = {name: _counted(Draft202012Validator.VALIDATORS[name]) for name in ("anyOf", "oneOf")}
    rules = {"$ref": follow, "pattern": _match, "uniqueItems": _distinct, **choices}
    return validators.extend(Draft202012Validator, rules)


def _counted(rule: Callable[..., Any]) -> Callable[..., Iterator[Any]]:
    """Wrap the rule for `anyOf` or `oneOf`, to raise RecursionError after `MAX_BRANCHES` branches of one validation."""

    def validate(validator: Any, branches: Any, value: Any, part: Any) -> Iterator[Any]:
        if not isinstance(branches, list):
            return
        for _ in branches:
            if next(_TRIED.get()) > MAX_BRANCHES:
                raise RecursionError
        yield from rule(validator, branches, value, part) or ()

    return validate


def _distinct(_validator: Any, is_wanted: bool, value: Any, _part: Any) -> Iterator[Any]:
    """Check `uniqueItems` in linear time; yields an error if two items are equal."""
    from jsonschema import ValidationError as Misfit

    if is_wanted and isinstance(value, list) and len({_hashable(item) for item in value}) < len(value):
        yield Misfit(f"{value!r} has non-unique elements")


def _hashable(value: Any) -> Any:
    """A hashable form of a JSON value. Equal values have equal forms: 1 is equal to 1.0, but not to true."""
    match value:
        case bool():
            return bool, value
        case list():
            return list, *map(_hashable, value)
        case dict():
            return dict, frozenset((name, _hashable(item)) for name, item in value.items())
    return value


def _match(validator: Any, pattern: str, value: Any, _part: Any) -> Iterator[Any]:
    """Check `pattern` in linear time; yields an error if the value does not match."""
    from jsonschema import ValidationError as Misfit

    known = _pattern(pattern)
    if known is None or not validator.is_type(value, "string"):
        return
    try:
        known.validate_python(value)
    except ValidationError:
        yield Misfit(f"{value!r} does not match {pattern!r}")
