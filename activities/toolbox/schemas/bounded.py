"""Validates a value by the rules of a draft in bounded time: jsonschema itself has no limit."""

from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from functools import cache, lru_cache
from typing import Any

from pydantic import JsonValue
from pydantic_core import SchemaError as PatternError, SchemaValidator, ValidationError, core_schema

from activities.toolbox.schemas.drafts import REFERENCE_ALONE, validator_class
from workflows.json_values import items

MAX_WORK = 200_000
"""The most work of one validation beyond two units for each part of the value. A unit takes some 5 us. Without this
limit a small schema could take exponential time: each of its definitions can refer twice to the next definition."""
WORK_OF_REFERENCE = 4
"""The units of work to follow a reference, beside those for the schema to which it leads."""
UNEVALUATED = ("unevaluatedItems", "unevaluatedProperties")
"""JSON Schema keywords by which a schema may allow less if any other keyword is left out."""


def size(value: JsonValue) -> int:
    """The number of objects, lists and other values in a JSON value, itself included."""
    count, waiting = 0, [value]
    while waiting:
        count += 1
        waiting.extend(items(waiting.pop()))
    return count


@lru_cache(maxsize=256)
def pattern_of(written: str) -> SchemaValidator | None:
    """A validator that matches a regular expression in linear time; None if the expression is not supported."""
    try:
        return SchemaValidator(core_schema.str_schema(pattern=written, regex_engine="rust-regex"))
    except PatternError:
        return None


def matches(pattern: str, text: str) -> bool:
    """Whether a text matches a pattern, which is true of all texts if the pattern is not supported."""
    if (known := pattern_of(pattern)) is None:
        return True
    try:
        known.validate_python(text)
    except ValidationError:
        return False
    return True


WORK: ContextVar[list[int] | None] = ContextVar("replan_schema_work", default=None)
"""A list with the units of work that are left to validate one value."""


def _spend(units: int) -> None:
    """Count units of work; raises RecursionError if none are left."""
    if (left := WORK.get()) is not None:
        left[0] -= units
        if left[0] < 0:
            raise RecursionError


@cache
def bounded(draft: str) -> Any:
    """Make the class of the validators by a draft, with the limits of this module; this takes a millisecond."""
    from jsonschema import validators  # type: ignore[import-untyped]  # ships no types

    plain = validator_class(draft)
    # jsonschema itself counts nothing, matches patterns with Python's `re`, whose time has no bound, and compares each
    # item of a list with each other.
    own = {
        "pattern": _match,
        "patternProperties": _match_names,
        "additionalProperties": _additional(plain.VALIDATORS["additionalProperties"]),
        "enum": _among(plain.VALIDATORS["enum"]),
        "uniqueItems": _distinct,
        **{name: _squared(plain.VALIDATORS[name]) for name in UNEVALUATED if name in plain.VALIDATORS},
    }
    return validators.create(
        plain.META_SCHEMA,
        {**plain.VALIDATORS, **own},
        type_checker=plain.TYPE_CHECKER,
        format_checker=plain.FORMAT_CHECKER,
        id_of=plain.ID_OF,
        applicable_validators=_applied_alone if draft in REFERENCE_ALONE else _applied,
    )


def _applied(schema: Mapping[str, Any]) -> Any:
    """The keywords of a schema that jsonschema applies to a value; counts the work for the schema."""
    parts = sum(len(value) for value in schema.values() if isinstance(value, dict | list))
    _spend(1 + parts // 16 + (WORK_OF_REFERENCE if "$ref" in schema else 0))
    return schema.items()


def _applied_alone(schema: Mapping[str, Any]) -> Any:
    """As `_applied`, in the drafts of REFERENCE_ALONE."""
    found = _applied(schema)
    return [("$ref", schema["$ref"])] if "$ref" in schema else found


def _squared(rule: Callable[..., Any]) -> Callable[..., Iterator[Any]]:
    """Wrap a rule whose time grows with the square of the size of the value, to count its work."""

    def validate(validator: Any, wanted: Any, value: Any, part: Any) -> Iterator[Any]:
        if isinstance(value, dict | list):
            _spend(len(value) ** 2 // 256)
        yield from rule(validator, wanted, value, part) or ()

    return validate


def _among(plain: Callable[..., Any]) -> Callable[..., Iterator[Any]]:
    """Wrap the rule for `enum`, to count the work of comparing objects and lists."""

    def validate(validator: Any, wanted: Any, value: Any, part: Any) -> Iterator[Any]:
        if isinstance(value, dict | list):
            _spend(len(wanted) * size(value) // 4)
        yield from plain(validator, wanted, value, part) or ()

    return validate


def _match_names(validator: Any, patterns: Mapping[str, Any], value: Any, _part: Any) -> Iterator[Any]:
    """Check `patternProperties`, with each pattern in linear time."""
    if not isinstance(value, dict):
        return
    _spend(len(patterns) * len(value) // 4)
    for pattern, inner in patterns.items():
        for name in value:
            if matches(pattern, name):
                yield from validator.descend(value[name], inner, path=name, schema_path=pattern)


def _additional(plain: Callable[..., Any]) -> Callable[..., Iterator[Any]]:
    """Make the rule for `additionalProperties` of that of jsonschema, which uses Python's `re` beside patterns."""

    def validate(validator: Any, inner: Any, value: Any, part: Any) -> Iterator[Any]:
        if "patternProperties" not in part or not isinstance(value, dict):
            yield from plain(validator, inner, value, part) or ()
            return
        patterns = part["patternProperties"]
        _spend(len(patterns) * len(value) // 4)
        for name in value.keys() - part.get("properties", {}).keys():
            if not any(matches(pattern, name) for pattern in patterns):
                yield from validator.descend(value[name], inner, path=name)

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

    if validator.is_type(value, "string") and not matches(pattern, value):
        yield Misfit(f"{value!r} does not match {pattern!r}")
