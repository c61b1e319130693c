"""Checks a JSON schema that a user, a model or a foreign server wrote, and validates values against it in bounded time.

A user's or model's schema must be one that every model provider takes, and is rejected with the reason if it is not.
The schema of a server is read by the draft of JSON Schema in which it is written, without what cannot be checked.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from contextvars import ContextVar
from copy import deepcopy
from functools import cache, cached_property, lru_cache
from itertools import count, islice
from typing import Any
from urllib.parse import quote, urlsplit

from pydantic import JsonValue
from pydantic_core import SchemaError as PatternError, SchemaValidator, ValidationError, core_schema

from workflows.json_values import canonical, items
from workflows.text import stream_safe

MAX_SCHEMA = 32 * 1024
"""The most bytes of a user's or model's schema."""
MAX_FOREIGN, MAX_FOREIGN_PARTS = 1024 * 1024, 20_000
"""The most bytes of a server's schema, and the most objects, lists and other values in it. To read a schema takes some
100 us for each part that is a schema itself."""
MAX_WORK = 200_000
"""The most work of one validation beyond two units for each part of the value. A unit takes some 5 us. Without this
limit a small schema could take exponential time: each of its definitions can refer twice to the next definition."""
WORK_OF_REFERENCE = 4
"""The units of work to follow a reference, beside those for the schema to which it leads."""
MAX_NAMED, MAX_WORDS = 5, 200  # errors that a message reports, and characters of each
NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")  # a property's name that every model provider accepts
DYNAMIC = ("$dynamicRef", "$recursiveRef")
UNBOUNDED = ("patternProperties", *DYNAMIC)
"""JSON Schema keywords that are rejected in the schema of a user or a model: providers do not take them."""
OUTER = ("$schema", "$id")
COMBINED = ("anyOf", "oneOf", "allOf", "not", "enum", "const", "$ref")
DATA = ("const", "default", "enum", "example", "examples")
"""Keywords that have values, not schemas; a `$ref` in a value is no reference."""
NAMED = frozenset({"$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"})
"""JSON Schema keywords that have a schema for each name of their own; such a name may be that of a keyword."""
LISTED = ("allOf", "anyOf", "oneOf", "prefixItems")
"""Keywords that have a list of schemas."""
INNER = (
    *("additionalItems", "additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then"),
    *("unevaluatedItems", "unevaluatedProperties"),
)
"""Keywords that have one schema; `items` may have a list."""
TEXTS = ("$anchor", "$dynamicRef", "$id", "$ref", "description", "format", "id", "pattern", "title")
TURNING = ("contains", "if", "not", "oneOf")
"""JSON Schema keywords by which a schema may allow less if a part of it allows more."""
UNEVALUATED = ("unevaluatedItems", "unevaluatedProperties")
"""JSON Schema keywords by which a schema may allow less if any other keyword is left out."""
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
MAX_CHAIN = 12
"""How many references may stand one behind the other at the root of a schema."""
VALUE = "value"
WHOLE = "urn:replan:schema"
"""The address of a whole schema without an id, for references into it."""
OUTER_IDS = frozenset({"$id", "id"})
REFERENCES = frozenset({"$ref", *DYNAMIC})
MAX_MISTAKES, MAX_ROUNDS = 100, 10
"""How many violations of a draft are found at once in a server's schema, and how often they are removed."""
_QUANTIFIER = re.compile(r"[*+?{]")


class BadSchema(ValueError):
    """A JSON schema cannot be used; the message gives the reason in words that fit into a longer sentence."""


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
            _validator_class(NEWEST).check_schema(self._schema)
        except SchemaError as error:
            where = ".".join(map(str, error.absolute_path)) or "the whole"
            raise BadSchema(f"{where}: {error.message[:MAX_WORDS]}") from error
        for part in _schemas(self._schema):
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
            _require_bounded(made._schema)
            made.draft, made.unchecked = _Reading(made._schema).read(str(schema.get("$schema")))
        except RecursionError:
            raise BadSchema("it is nested too deeply") from None
        return made

    def of_property(self, name: str) -> "JsonSchema":
        """The schema of one of `properties`."""
        made = type(self).__new__(type(self))
        made.draft, made._registry = self.draft, self._registry
        address = _address(self.draft, self._schema)
        made._schema = {"$ref": f"{address}{self._root[0]}/properties/{_pointer(name)}"}
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
        return self._registry.resolver(_address(self.draft, self._schema))

    def inner_resolver(self, resolver: Any, part: Any) -> Any:
        """The resolver of the references in `part`, which stands in a part of the schema that has `resolver`."""
        return _inner_resolver(self.draft, resolver, part)

    @cached_property
    def _registry(self) -> Any:
        return _registry(self.draft, self._schema)

    def _wrong(self, name: str, part: Any) -> str | None:
        """Why a keyword `name` with the value `part` is not allowed in a schema; None if it is allowed."""
        if name == "$ref" and isinstance(part, str):
            leads = part.startswith("#") and target(self.resolver, part)
            return None if leads else f"$ref {part[:80]!r} leads nowhere in it"
        if name == "pattern" and isinstance(part, str) and _pattern(part) is None:
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
        inner = _relocated(self._schema, f"#/properties/{VALUE}")
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

        work = _WORK.set([MAX_WORK + 2 * size(value)])
        try:
            return list(islice(self._validator.iter_errors(value), MAX_NAMED))
        except (RecursionError, Unresolvable) as error:
            raise BadSchema("it refers to itself without end, is nested too deeply, or has too many choices") from error
        except (UnknownType, TypeError, AttributeError, ArithmeticError) as error:
            # Of a mistake where no draft has a schema, and a reference leads to; or of a number that is too large.
            raise BadSchema("a rule in it cannot be applied") from error
        finally:
            _WORK.reset(work)

    @cached_property
    def _validator(self) -> Any:
        bounded = _bounded(self.draft)
        return bounded(self._schema, registry=self._registry, format_checker=bounded.FORMAT_CHECKER)


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
        inner = "; ".join(f"{_place(each)} {_rule(each)}".strip() for each in _closest(misfit)[:MAX_NAMED])
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


def _place(misfit: Any) -> str:
    return str(misfit.json_path).lstrip("$.")


def target(resolver: Any, reference: str) -> Any:
    """The schema to which a reference leads, as `referencing` resolves it; None if it leads to no schema."""
    from referencing.exceptions import Unresolvable

    try:
        found = resolver.lookup(reference)
    except (Unresolvable, ValueError, TypeError, AttributeError):  # of an address or a pointer that is none
        return None
    return found if isinstance(found.contents, dict | bool) else None


def _pointer(name: str) -> str:
    """A name as a part of a JSON pointer in the fragment of an address."""
    return quote(name.replace("~", "~0").replace("/", "~1"), safe="", errors="surrogatepass")


def _schemas(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The schema and all schemas in it, at any depth; a schema comes before those in it."""
    yield schema
    for keyword, value in schema.items():
        for _, part in _schemas_in(keyword, value):
            yield from _schemas(part)


def _schemas_in(keyword: str, value: Any) -> list[tuple[str, dict[str, Any]]]:
    """The schemas that are directly in the value of a keyword, each with its place in it. Booleans are left out."""
    if keyword in DATA or keyword.startswith("x-"):
        return []
    if isinstance(value, dict):
        parts = [(f".{name}", part) for name, part in value.items()] if keyword in NAMED else [("", value)]
    else:
        parts = [(f".{number}", part) for number, part in enumerate(value)] if isinstance(value, list) else []
    return [(place, part) for place, part in parts if isinstance(part, dict)]


def _require_bounded(schema: dict[str, Any]) -> None:
    """Raise BadSchema for a server's schema that is too large."""
    if len(canonical(schema).encode(errors="replace")) > MAX_FOREIGN:
        raise BadSchema(f"it has more than {MAX_FOREIGN} bytes")
    if size(schema) > MAX_FOREIGN_PARTS:
        raise BadSchema(f"it has more than {MAX_FOREIGN_PARTS} parts")


def size(value: JsonValue) -> int:
    """The number of objects, lists and other values in a JSON value, itself included."""
    count, waiting = 0, [value]
    while waiting:
        count += 1
        waiting.extend(items(waiting.pop()))
    return count


class _Reading:
    """Reads a server's schema: removes from it, in place, what cannot be checked."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self._schema = schema
        self._draft = NEWEST
        self._looser = set[int]()
        """The ids of the schemas from which a mistake was removed."""
        self._unchecked = list[str]()

    def read(self, dialect: str) -> tuple[str, tuple[str, ...]]:
        """Return the draft, by the `$schema` in `dialect` if that is known, and the places that are left out."""
        for part in _schemas(self._schema):
            if wrong := _normalise(part):
                self._looser.add(id(part))
                self._unchecked += wrong
        self._draft = self._draft_of(dialect)
        self._remove_mistakes()
        patterns = [pattern for part in _schemas(self._schema) for pattern in part.get("patternProperties", ())]
        self._are_patterns_plain = all(map(_is_plain, patterns))
        resolver = _registry(self._draft, self._schema).resolver(_address(self._draft, self._schema))
        if self._loosen(self._schema, resolver, "", is_changed=False):
            self._loosen(self._schema, resolver, "", is_changed=True)
        return self._draft, tuple(dict.fromkeys(self._unchecked))

    def _draft_of(self, dialect: str) -> str:
        """The draft that `dialect` names, unless the schema fits another one better; keeps the mistakes by it."""
        named = next((draft for draft in DRAFTS if draft in dialect), NEWEST)
        best, self._mistakes = named, self._find_mistakes(named)
        for draft in DRAFTS:
            if self._mistakes and len(found := self._find_mistakes(draft)) < len(self._mistakes):
                best, self._mistakes = draft, found
        return best

    def _find_mistakes(self, draft: str) -> list[Any]:
        """At most MAX_MISTAKES violations of a draft in the schema."""
        plain = _validator_class(draft)
        return list(islice(plain(plain.META_SCHEMA).iter_errors(self._schema), MAX_MISTAKES))

    def _remove_mistakes(self) -> None:
        """Remove each keyword whose value violates the draft. Raises BadSchema for the type of the whole schema."""
        from jsonschema.exceptions import best_match

        rounds = count()
        while self._mistakes:
            if next(rounds) == MAX_ROUNDS:
                raise BadSchema(f"it has too many mistakes, e.g. {self._mistakes[0].message[:MAX_WORDS]}")
            for mistake in self._mistakes:
                self._remove([*best_match([mistake]).absolute_path], mistake.message)
            self._mistakes = self._find_mistakes(self._draft)

    def _remove(self, path: list[str | int], why: str) -> None:
        """Remove the innermost keyword on the path of a mistake; a name keeps its place, and allows any value."""
        if path in ([], ["type"]):
            raise BadSchema(f"{'.'.join(map(str, path)) or 'the whole'}: {why[:MAX_WORDS]}")
        at: Any = self._schema
        holder, owner, key, are_names, is_name = at, at, path[0], False, False
        with suppress(LookupError, TypeError):  # it was removed with an earlier mistake
            for step in path:
                if isinstance(at, dict):
                    holder, owner, key = holder if are_names else at, at, step
                    is_name, are_names = are_names, not are_names and step in NAMED
                at = at[step]
            self._looser.add(id(holder))
            self._unchecked.append(".".join(map(str, path)))
            if is_name:
                owner[key] = {}
            else:
                del owner[key]

    def _loosen(self, part: dict[str, Any], resolver: Any, place: str, *, is_changed: bool) -> bool:
        """Remove what cannot be checked from a schema at `place`; returns whether it may allow more than before.

        `is_changed`: something is left out somewhere, perhaps where a `$ref` leads to.
        """
        resolver = _inner_resolver(self._draft, resolver, part)
        lost = [name for name, value in part.items() if self._is_uncheckable(name, value, resolver, is_changed)]
        for name in lost:
            self._leave_out(part, name, place)
        patterns = part.get("patternProperties")
        odd = [name for name in patterns if _pattern(name) is None] if isinstance(patterns, dict) else []
        for name in odd:
            self._leave_out(part["patternProperties"], name, f"{place}patternProperties.")
        if odd or (not place and REFERENCES & {*lost}):
            part["additionalProperties"] = True  # also of names that nobody knows now
        is_looser = bool(lost or odd) or id(part) in self._looser or (is_changed and "$ref" in part)
        for name, value in [*part.items()]:
            inner = [
                self._loosen(found, resolver, f"{place}{name}{key}.", is_changed=is_changed)
                for key, found in _schemas_in(name, value)
            ]
            is_looser = is_looser or any(inner)
            if any(inner) and name in TURNING:
                self._leave_out(part, name, place)
        return is_looser

    def _leave_out(self, part: dict[str, Any], name: str, place: str) -> None:
        del part[name]
        self._unchecked.append(f"{place}{name}")

    def _is_uncheckable(self, name: str, value: Any, resolver: Any, is_changed: bool) -> bool:
        """Whether a keyword cannot be checked. Raises BadSchema for a pointer that leads nowhere."""
        if name == "$ref" and isinstance(value, str) and not target(resolver, value) and value[:2] in ("#", "#/"):
            raise BadSchema(f"$ref {value[:80]!r} leads nowhere in it")
        if name == "$ref":
            return not (isinstance(value, str) and target(resolver, value))
        if name == "pattern":
            return isinstance(value, str) and _pattern(value) is None
        return name in DYNAMIC or (name in UNEVALUATED and (is_changed or not self._are_patterns_plain))


def _normalise(part: dict[str, Any]) -> list[str]:
    """Remove what means nothing in any draft, and return the keywords that were removed for their values."""
    part.pop("$schema", None)  # by which jsonschema would validate without the limits of this module
    if part.get("required") == []:  # which draft-04 does not take
        del part["required"]
    for name in [name for name, value in part.items() if value is None and name not in DATA]:
        del part[name]
    wrong = [name for name, value in part.items() if not _has_shape(name, value)]
    for name in wrong:
        del part[name]
    for name in NAMED & part.keys():
        part[name] = {key: inner if _is_schema(inner, name) else {} for key, inner in part[name].items()}
    needs = part.get("dependencies", {})
    if any(isinstance(need, dict) for need in needs.values()):  # `referencing` takes no lists beside schemas
        part["dependencies"] = {
            key: {"required": need} if isinstance(need, list) else need for key, need in needs.items()
        }
    if part.get("nullable") is True and isinstance(part.get("type"), str):  # of OpenAPI
        part["type"] = [part["type"], "null"]
    return wrong


def _has_shape(keyword: str, value: Any) -> bool:
    """Whether a value is of a type that the keyword has in some draft: no draft says it of the keywords of others."""
    if keyword in NAMED or keyword == "dependentRequired":
        return isinstance(value, dict)
    if keyword in LISTED or (keyword == "items" and isinstance(value, list)):
        return isinstance(value, list) and all(isinstance(inner, dict | bool) for inner in value)
    if keyword in INNER:
        return isinstance(value, dict | bool)
    if keyword in TEXTS:
        return isinstance(value, str) and (keyword not in OUTER_IDS or _is_address(value))
    return keyword not in ("enum", "required") or isinstance(value, list)


def _is_schema(value: Any, keyword: str) -> bool:
    return isinstance(value, dict | bool) or (keyword == "dependencies" and isinstance(value, list))


def _is_address(text: str) -> bool:
    with suppress(ValueError):
        return bool(urlsplit(stream_safe(text)) or True)
    return False


def _is_plain(pattern: str) -> bool:
    """Whether Python's `re`, with which jsonschema matches names for UNEVALUATED, takes a short time for a pattern."""
    repeats = len(_QUANTIFIER.findall(pattern))
    with suppress(re.error, OverflowError):
        re.compile(pattern)
        return not repeats or (repeats == 1 and pattern.startswith("^") and "|" not in pattern)
    return False


@lru_cache(maxsize=256)
def _pattern(written: str) -> SchemaValidator | None:
    """A validator that matches a regular expression in linear time; None if the expression is not supported."""
    try:
        return SchemaValidator(core_schema.str_schema(pattern=written, regex_engine="rust-regex"))
    except PatternError:
        return None


def matches(pattern: str, text: str) -> bool:
    """Whether a text matches a pattern, which is true of all texts if the pattern is not supported."""
    if (known := _pattern(pattern)) is None:
        return True
    try:
        known.validate_python(text)
    except ValidationError:
        return False
    return True


def _relocated(schema: dict[str, Any], below: str) -> dict[str, Any]:
    """Copy a schema for use at the place `below` in another schema: each pointer in the copy begins with `below`."""
    moved = deepcopy(schema)
    for part in _schemas(moved):
        if isinstance(reference := part.get("$ref"), str) and reference[:2] in ("#", "#/"):
            part["$ref"] = below + reference[1:]
    return moved


def _validator_class(draft: str) -> Any:
    import jsonschema

    return getattr(jsonschema, DRAFTS[draft])


def _specification(draft: str) -> Any:
    from referencing.jsonschema import specification_with

    plain = _validator_class(draft)
    return specification_with(plain.ID_OF(plain.META_SCHEMA))


def _registry(draft: str, schema: Mapping[str, Any]) -> Any:
    """A registry of `referencing` with a schema at its address."""
    from referencing import Registry

    return Registry().with_resource(_address(draft, schema), _specification(draft).create_resource(schema)).crawl()


def _address(draft: str, schema: Mapping[str, Any]) -> str:
    """The address of a whole schema, which is its id if it has one."""
    return _specification(draft).create_resource(schema).id() or WHOLE


def _inner_resolver(draft: str, resolver: Any, part: Any) -> Any:
    return resolver.in_subresource(_specification(draft).create_resource(part))


_WORK: ContextVar[list[int] | None] = ContextVar("replan_schema_work", default=None)
"""A list with the units of work that are left to validate one value."""


def _spend(units: int) -> None:
    """Count units of work; raises RecursionError if none are left."""
    if (left := _WORK.get()) is not None:
        left[0] -= units
        if left[0] < 0:
            raise RecursionError


@cache
def _bounded(draft: str) -> Any:
    """Make the class of the validators by a draft, with the limits of this module; this takes a millisecond."""
    from jsonschema import validators

    plain = _validator_class(draft)
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
