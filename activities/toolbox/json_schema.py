"""Checks a JSON schema that a user, a model or a foreign server wrote, and validates values against it in bounded time.

A user's or model's schema must be one that every model provider takes, and is rejected with the reason if it is not.
The schema of a server is read by the draft of JSON Schema in which it is written, without what cannot be checked.
"""

import re
from collections.abc import Mapping
from copy import deepcopy
from functools import cached_property
from itertools import islice
from typing import Any

from pydantic import JsonValue

from activities.toolbox.schemas.bounded import MAX_WORK, UNEVALUATED, WORK, bounded, pattern_of, size
from activities.toolbox.schemas.drafts import (
    NEWEST,
    REFERENCE_ALONE,
    BadSchema,
    address_of,
    inner_resolver,
    pointer_part,
    registry_of,
    relocated,
    schemas,
    target,
    validator_class,
)
from activities.toolbox.schemas.reading import DYNAMIC, MAX_WORDS, SchemaReader, require_bounded
from workflows.json_values import canonical

MAX_SCHEMA = 32 * 1024
"""The most bytes of a user's or model's schema."""
MAX_NAMED = 5  # errors that a message reports
NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")  # a property's name that every model provider accepts
UNBOUNDED = ("patternProperties", *DYNAMIC)
"""JSON Schema keywords that are rejected in the schema of a user or a model: providers do not take them."""
OUTER = ("$schema", "$id")
COMBINED = ("anyOf", "oneOf", "allOf", "not", "enum", "const", "$ref")
MAX_CHAIN = 12
"""How many references may stand one behind the other at the root of a schema."""
VALUE = "value"


class JsonSchema:
    """A checked JSON schema, which can validate values."""

    draft = NEWEST
    """The draft by which the schema is read, a key of `DRAFTS`."""
    unchecked: tuple[str, ...] = ()
    """The places in a server's schema that are not checked, such as `properties.a.pattern`."""

    def __init__(self, schema: Mapping[str, JsonValue]) -> None:
        """Check the `schema` of a user or a model.

        Raises:
            BadSchema: `schema` violates the JSON Schema standard or a rule of a model provider, is too large, has a
                reference that leads nowhere, or has a keyword or pattern that cannot be checked in bounded time.
        """
        self._schema: dict[str, Any] = {
            name: part for name, part in deepcopy(dict(schema)).items() if name not in OUTER
        }
        if len(canonical(self._schema).encode()) > MAX_SCHEMA:
            raise BadSchema(f"it has more than {MAX_SCHEMA} bytes")
        # Imported where they are used, here and below: they take 3 MB, and most workers never see a schema.
        from jsonschema import SchemaError  # type: ignore[import-untyped]  # ships no types

        try:
            validator_class(NEWEST).check_schema(self._schema)
        except SchemaError as error:
            where = ".".join(map(str, error.absolute_path)) or "the whole"
            raise BadSchema(f"{where}: {error.message[:MAX_WORDS]}") from error
        for part in schemas(self._schema):
            part.pop("$schema", None)  # by which jsonschema would validate without the limits of this module
            for name, value in part.items():
                if wrong := self._wrong(name, value):
                    raise BadSchema(wrong)

    @classmethod
    def part_of_checked(cls, part: Mapping[str, Any]) -> "JsonSchema":
        """Make a JsonSchema of a part of a schema that was checked before; the part is not checked again."""
        made = cls.__new__(cls)
        made._schema = dict(part)
        return made

    @classmethod
    def foreign(cls, schema: Mapping[str, Any]) -> "JsonSchema":
        """Read the schema of a server by its draft, without what cannot be checked: it allows the same values, or more.

        Left out are keywords whose values violate the draft, patterns that need backtracking, dynamic references, and
        references to other documents; then also the rules that would allow less because of that.

        Raises:
            BadSchema: `schema` is too large or nested too deeply, has a reference that leads nowhere, or has no type.
        """
        made = cls.__new__(cls)
        try:
            made._schema = deepcopy(dict(schema))
            require_bounded(made._schema)
            made.draft, made.unchecked = SchemaReader(made._schema).read(str(schema.get("$schema")))
        except RecursionError:
            raise BadSchema("it is nested too deeply") from None
        return made

    def of_property(self, name: str) -> "JsonSchema":
        """The schema of one of `properties`."""
        made = type(self).__new__(type(self))
        made.draft, made._registry = self.draft, self._registry
        address = address_of(self.draft, self._schema)
        made._schema = {"$ref": f"{address}{self._root[0]}/properties/{pointer_part(name)}"}
        return made

    @property
    def properties(self) -> Mapping[str, Any]:
        """The properties at the root of the schema. Raises BadSchema if a `$ref` there has no end."""
        found: Mapping[str, Any] = self.root.get("properties", {})
        return found

    @property
    def root(self) -> Mapping[str, Any]:
        """The schema, or that to which a `$ref` leads that stands in its place. Raises BadSchema without an end."""
        return self._root[1]

    @cached_property
    def _root(self) -> tuple[str, Mapping[str, Any]]:
        """The pointer to `root`, and `root`."""
        pointer, part = "#", self._schema
        for _ in range(MAX_CHAIN):
            reference = part.get("$ref", "")
            is_beside = "properties" in part and self.draft not in REFERENCE_ALONE
            if is_beside or reference[:2] not in ("#", "#/") or (pointer != "#" and "$id" in part):
                return pointer, part
            found = target(self.resolver, reference)
            pointer, part = reference, found.contents if isinstance(found.contents, dict) else {}
        raise BadSchema("it refers to itself without end")

    @property
    def schema(self) -> Mapping[str, Any]:
        return self._schema

    @cached_property
    def resolver(self) -> Any:
        """The resolver of the references in the root of the schema, as `referencing` has them."""
        return self._registry.resolver(address_of(self.draft, self._schema))

    def inner_resolver(self, resolver: Any, part: Any) -> Any:
        """The resolver of the references in `part`, which stands in a part of the schema that has `resolver`."""
        return inner_resolver(self.draft, resolver, part)

    @cached_property
    def _registry(self) -> Any:
        return registry_of(self.draft, self._schema)

    def _wrong(self, name: str, part: Any) -> str | None:
        """Why a keyword `name` with the value `part` is not allowed in a schema; None if it is allowed."""
        if name == "$ref" and isinstance(part, str):
            leads = part.startswith("#") and target(self.resolver, part)
            return None if leads else f"$ref {part[:80]!r} leads nowhere in it"
        if name == "pattern" and isinstance(part, str) and pattern_of(part) is None:
            return f"the pattern {part[:80]!r} cannot be checked: write it without looking around and back"
        if name in UNBOUNDED and not isinstance(part, bool):
            return f"{name} is not taken: name the properties, and refer with $ref"
        names = part if name == "properties" and isinstance(part, dict) else ()
        odd = next((property_name for property_name in names if not NAME.fullmatch(property_name)), None)
        return (
            None if odd is None else f"the property {odd[:80]!r} is no name of letters, digits, '_', '.' and '-' alone"
        )

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
        from jsonschema.exceptions import UnknownType  # type: ignore[import-untyped]  # ships no types
        from referencing.exceptions import Unresolvable

        work = WORK.set([MAX_WORK + 2 * size(value)])
        try:
            return list(islice(self._validator.iter_errors(value), MAX_NAMED))
        except (RecursionError, Unresolvable) as error:
            raise BadSchema("it refers to itself without end, is nested too deeply, or has too many choices") from error
        except (UnknownType, TypeError, AttributeError, ArithmeticError) as error:
            # Of a mistake where no draft has a schema, and a reference leads to; or of a number that is too large.
            raise BadSchema("a rule in it cannot be applied") from error
        finally:
            WORK.reset(work)

    @cached_property
    def _validator(self) -> Any:
        validators = bounded(self.draft)
        return validators(self._schema, registry=self._registry, format_checker=validators.FORMAT_CHECKER)


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
        inner = "; ".join(f"{_path(each)} {_rule(each)}".strip() for each in _closest(misfit)[:MAX_NAMED])
        return f"does not fit {rule} of its schema" + (f" ({inner})" if inner else "")
    if rule in ("additionalProperties", *UNEVALUATED):
        return "has a name that is not declared"
    return f"must fit {rule} {canonical(wanted)}"


def _closest(misfit: Any) -> list[Any]:
    """The errors of the branch that a value fits best, if it fits none: one that it chose by a constant, if any."""
    branches = dict[Any, list[Any]]()
    for error in misfit.context:
        branches.setdefault(error.relative_schema_path[0], []).append(error)
    found = sorted(branches.values(), key=lambda errors: (any(map(_is_chosen_otherwise, errors)), len(errors)))
    return found[0] if found else []


def _is_chosen_otherwise(error: Any) -> bool:
    return error.validator in ("const", "enum")


def _path(misfit: Any) -> str:
    return str(misfit.json_path).lstrip("$.")
