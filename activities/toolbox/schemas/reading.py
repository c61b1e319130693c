"""Reads the schema of a foreign server by the draft in which it is written, without what cannot be checked."""

import re
from contextlib import suppress
from itertools import count, islice
from typing import Any
from urllib.parse import urlsplit

from activities.toolbox.schemas.bounded import UNEVALUATED, pattern_of, size
from activities.toolbox.schemas.drafts import (
    DATA,
    DRAFTS,
    NAMED,
    NEWEST,
    BadSchema,
    address_of,
    inner_resolver,
    registry_of,
    schemas,
    schemas_in,
    target,
    validator_class,
)
from workflows.json_values import canonical
from workflows.text import stream_safe

MAX_FOREIGN, MAX_FOREIGN_PARTS = 1024 * 1024, 20_000
"""The most bytes of a server's schema, and the most objects, lists and other values in it. To read a schema takes some
100 us for each part that is a schema itself."""
MAX_WORDS = 200
"""The most characters of a mistake that a message has."""
DYNAMIC = ("$dynamicRef", "$recursiveRef")
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
OUTER_IDS = frozenset({"$id", "id"})
REFERENCES = frozenset({"$ref", *DYNAMIC})
MAX_MISTAKES, MAX_ROUNDS = 100, 10
"""How many violations of a draft are found at once in a server's schema, and how often they are removed."""
_QUANTIFIER = re.compile(r"[*+?{]")


def require_bounded(schema: dict[str, Any]) -> None:
    """Raise BadSchema for a server's schema that is too large."""
    if len(canonical(schema).encode(errors="replace")) > MAX_FOREIGN:
        raise BadSchema(f"it has more than {MAX_FOREIGN} bytes")
    if size(schema) > MAX_FOREIGN_PARTS:
        raise BadSchema(f"it has more than {MAX_FOREIGN_PARTS} parts")


class SchemaReader:
    """Reads a server's schema: removes from it, in place, what cannot be checked."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self._schema = schema
        self._draft = NEWEST
        self._looser = set[int]()
        """The ids of the schemas from which a mistake was removed."""
        self._unchecked = list[str]()

    def read(self, dialect: str) -> tuple[str, tuple[str, ...]]:
        """Return the draft, by the `$schema` in `dialect` if that is known, and the places that are left out."""
        for part in schemas(self._schema):
            if wrong := _normalise(part):
                self._looser.add(id(part))
                self._unchecked += wrong
        self._draft = self._draft_of(dialect)
        self._remove_mistakes()
        patterns = [pattern for part in schemas(self._schema) for pattern in part.get("patternProperties", ())]
        self._are_patterns_plain = all(map(_is_plain, patterns))
        resolver = registry_of(self._draft, self._schema).resolver(address_of(self._draft, self._schema))
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
        plain = validator_class(draft)
        return list(islice(plain(plain.META_SCHEMA).iter_errors(self._schema), MAX_MISTAKES))

    def _remove_mistakes(self) -> None:
        """Remove each keyword whose value violates the draft. Raises BadSchema for the type of the whole schema."""
        from jsonschema.exceptions import best_match  # type: ignore[import-untyped]  # ships no types

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

    def _loosen(self, part: dict[str, Any], resolver: Any, path: str, *, is_changed: bool) -> bool:
        """Remove what cannot be checked from a schema at `path`; returns whether it may allow more than before.

        `is_changed`: something is left out somewhere, perhaps where a `$ref` leads to.
        """
        resolver = inner_resolver(self._draft, resolver, part)
        lost = [name for name, value in part.items() if self._is_uncheckable(name, value, resolver, is_changed)]
        for name in lost:
            self._leave_out(part, name, path)
        patterns = part.get("patternProperties")
        odd = [name for name in patterns if pattern_of(name) is None] if isinstance(patterns, dict) else []
        for name in odd:
            self._leave_out(part["patternProperties"], name, f"{path}patternProperties.")
        if odd or (not path and REFERENCES & {*lost}):
            part["additionalProperties"] = True  # also of names that nobody knows now
        is_looser = bool(lost or odd) or id(part) in self._looser or (is_changed and "$ref" in part)
        for name, value in [*part.items()]:
            inner = [
                self._loosen(found, resolver, f"{path}{name}{key}.", is_changed=is_changed)
                for key, found in schemas_in(name, value)
            ]
            is_looser = is_looser or any(inner)
            if any(inner) and name in TURNING:
                self._leave_out(part, name, path)
        return is_looser

    def _leave_out(self, part: dict[str, Any], name: str, path: str) -> None:
        del part[name]
        self._unchecked.append(f"{path}{name}")

    def _is_uncheckable(self, name: str, value: Any, resolver: Any, is_changed: bool) -> bool:
        """Whether a keyword cannot be checked. Raises BadSchema for a pointer that leads nowhere."""
        if name == "$ref" and isinstance(value, str) and not target(resolver, value) and value[:2] in ("#", "#/"):
            raise BadSchema(f"$ref {value[:80]!r} leads nowhere in it")
        if name == "$ref":
            return not (isinstance(value, str) and target(resolver, value))
        if name == "pattern":
            return isinstance(value, str) and pattern_of(value) is None
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
