"""Pydantic models for the JSON schemas of a foreign server's tools: of their arguments, and of their results.

Values are validated by the server's own schema, in the draft of JSON Schema in which it is written. Names, types and
paths are read from a plain form in the newest draft, without `$ref`, and with all arguments in one list of properties.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    JsonValue,
    ValidationInfo,
    create_model,
    model_serializer,
    model_validator,
)
from pydantic_core import PydanticCustomError
from pydantic_core.core_schema import CoreSchema

from activities.borders.validation import MAX_NAME, RULE
from activities.toolbox.json_schema import JsonSchema
from activities.toolbox.schemas.bounded import matches, size
from activities.toolbox.schemas.drafts import NAMED, REFERENCE_ALONE, BadSchema, target
from activities.toolbox.schemas.reading import DYNAMIC, INNER, LISTED
from workflows.json_values import canonical, items

MAX_PARTS = 2_000
"""The most objects, lists and other values of a plain form, or twice those of the server's schema if that are more."""
MAX_DEPTHS = (12, 8, 6, 4, 2)
"""The depths below which a plain form may allow any value: a schema that refers to itself has no end. The first counts
with which the form is small enough."""
LEFT_OUT = ("$defs", "definitions", "id", "$id", "$anchor", "$dynamicAnchor", "$recursiveAnchor", *DYNAMIC)
"""Keywords that a plain form does not need."""
COMPOSED = (
    *("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "const", "enum", "dependentSchemas", "dependentRequired"),
    *("patternProperties", "propertyNames", "minProperties", "maxProperties", "unevaluatedProperties"),
)
"""Keywords about all arguments together. Providers take few of them at the root of a schema, so the plain form has
their text."""
BOOLEANS: Mapping[bool, dict[str, Any]] = {True: {}, False: {"not": {}}}
"""The schemas that mean the same as the schemas `true` and `false`."""
SCHEMAS = frozenset({*NAMED, *LISTED, *INNER})
"""Keywords that have schemas in them; all others have values."""
OTHERS = ("additionalProperties", "unevaluatedProperties")
ABOUT = ("title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly")
"""Keywords that say something about a value, and allow or forbid none."""
MAX_UNREAD = 200
"""The most arguments that are known of a schema that cannot be read."""
MAX_COMPOSED = 2_000
"""The most characters of this text."""
ANSWERS = "replan_answers"
"""The argument with a person's answers to the questions of a server; no plan may have this argument."""

_CHECKED = object()
"""The validation context that marks a value as checked before, so that it is not checked again."""


class ForeignArgs(BaseModel):
    """The arguments of a foreign tool."""

    model_config = ConfigDict(protected_namespaces=(), extra="forbid")
    form: ClassVar[dict[str, Any] | None] = None
    """The plain form of the schema that the server declares; None for the schema of the fields."""
    names: ClassVar[tuple[str, ...]] = ()
    """The names of all arguments of which the server's schema speaks."""
    unchecked: ClassVar[tuple[str, ...]] = ()
    """The places in the server's schema that are not checked."""
    together: ClassVar["Together | None"] = None
    """What the arguments must fit together; None if each is checked alone."""

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return handler(core) if cls.form is None else cls.form

    @property
    def answers(self) -> dict[str, JsonValue]:
        """A person's answers to the server's questions: by the name of a question, the fields of its form."""
        return getattr(self, ANSWERS, None) or {}

    def as_sent(self) -> dict[str, JsonValue]:
        """The arguments that were given, by the server's names."""
        present = self._named(name for name in type(self).model_fields if name in self.model_fields_set)
        return {name: value for name, value in present.items() if name != ANSWERS}

    def _named(self, fields: Iterable[str]) -> dict[str, Any]:
        """The values of these fields and of undeclared ones, by the server's names."""
        declared = type(self).model_fields
        aliases = {name: declared[name].alias for name in fields}
        named = {name if alias is None else alias: getattr(self, name) for name, alias in aliases.items()}
        return {**named, **(self.model_extra or {})}

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if self.together is not None:
            self.together.check(self.as_sent())
        return self

    @model_serializer
    def _all(self) -> dict[str, Any]:
        """All fields by the server's names, even if pydantic is asked for other names: conditions use these names."""
        return self._named(type(self).model_fields)


Args = TypeVar("Args", bound=ForeignArgs)


class OpenArgs(ForeignArgs):
    """The arguments of a foreign tool that takes more than it declares."""

    model_config = ConfigDict(extra="allow")


class ForeignResult(OpenArgs):
    """The result of a foreign tool; a server may return more than it has declared."""

    @classmethod
    def of_checked(cls, value: Mapping[str, Any]) -> "ForeignResult":
        """Make the result of JSON that the connection has checked: to check 100 kB again would take 0.1 s."""
        return cls.model_validate(value, context=_CHECKED)

    @model_serializer
    def _all(self) -> dict[str, Any]:
        return self.as_sent()


RESERVED = frozenset({*dir(ForeignResult), ANSWERS})
"""Names that pydantic does not take for fields."""


@dataclass(frozen=True)
class Together:
    """What a server's schema demands of all arguments together."""

    schema: JsonSchema
    declared: Collection[str]
    patterns: Collection[str]
    """If no other undeclared arguments are taken, the patterns of the names of those that are; else empty."""

    def check(self, args: dict[str, JsonValue]) -> None:
        """Raise pydantic's error for arguments that do not fit."""
        others = [name for name in args if name not in self.declared] if self.patterns else []
        if unknown := [name for name in others if not any(matches(pattern, name) for pattern in self.patterns)]:
            raise PydanticCustomError(RULE, "{rules}", {"rules": f"has no argument {unknown[0][:MAX_NAME]!r}"})
        require_fit(self.schema, args)


@dataclass
class _Declared:
    """The arguments of which a plain form speaks, at its root and in the branches there."""

    parts: dict[str, list[Any]] = field(default_factory=dict)
    """For each name the different schemas that it has in the branches."""
    required: list[str] = field(default_factory=list)
    patterns: dict[str, Any] = field(default_factory=dict)
    is_open: bool = False
    """Whether the schema says that it takes undeclared arguments."""

    @classmethod
    def of(cls, form: Any) -> "_Declared":
        if not isinstance(form, Mapping):
            return cls()
        named = {name: [part] for name, part in form.get("properties", {}).items()}
        found = cls(named, [*form.get("required", ())], dict(form.get("patternProperties", {})))
        found.is_open = any(form.get(name, False) is not False for name in OTHERS)
        choices = [[cls.of(branch) for branch in form.get(name, ())] for name in ("anyOf", "oneOf")]
        dependent = [cls.of(part) for part in form.get("dependentSchemas", {}).values()]
        always = [cls.of(branch) for branch in form.get("allOf", ())]
        conditional = [cls.of(form.get(name)) for name in ("then", "else", "if")]
        found.required += [name for branch in always for name in branch.required]
        for branches in filter(None, choices):
            found.required += [name for name in branches[0].required if all(name in each.required for each in branches)]
        for group in (always, [branch for branches in choices for branch in branches], dependent, conditional):
            found._add(group)
        if form.get("additionalProperties") is False:  # which knows nothing of what the branches declare
            found.parts = {name: found.parts[name] for name in form.get("properties", {})}
            found.patterns, found.is_open = dict(form.get("patternProperties", {})), False
        return found

    def _add(self, branches: Iterable["_Declared"]) -> None:
        """Add what branches declare; what is known of a name already counts before them."""
        known = {*self.parts}
        for branch in branches:
            self.patterns |= branch.patterns
            self.is_open |= branch.is_open
            for name, parts in branch.parts.items():
                if name not in known:
                    mine = self.parts.setdefault(name, [])
                    mine += [part for part in parts if part not in mine]

    @property
    def properties(self) -> dict[str, Any]:
        found = {name: parts[0] if len(parts) == 1 else {"anyOf": parts} for name, parts in self.parts.items()}
        return {**found, **{name: {} for name in self.required if name not in found}}


def arguments_of(tool: str, schema: Mapping[str, Any], *, left_out: Collection[str] = ()) -> type[ForeignArgs]:
    """Make a model of a tool's arguments but `left_out`, which Replan fills in; raises BadSchema with the reason."""
    read, plain = _read(schema)
    if plain.get("type", "object") != "object" and "object" not in plain["type"]:
        raise BadSchema("its arguments are no object")
    declared = _Declared.of(plain)
    every = declared.properties
    if ANSWERS in every:
        raise BadSchema(f"it has an argument {ANSWERS}, which Replan uses itself")
    properties = {name: part for name, part in every.items() if name not in left_out}
    required = [name for name in dict.fromkeys(declared.required) if name not in left_out]
    # Unlike in the standard, what is not declared is not taken, unless the schema itself says so.
    is_open = declared.is_open or bool(declared.patterns)
    form = {name: part for name, part in plain.items() if name not in COMPOSED}
    form |= {"type": "object", "properties": properties, "required": required, "additionalProperties": is_open}
    composed = {name: part for name, part in plain.items() if name in COMPOSED}
    if composed:
        text = f"All arguments together must fit this JSON schema: {canonical(composed)}"
        form["description"] = " ".join(filter(None, [plain.get("description"), text[:MAX_COMPOSED]]))
    more: dict[str, Any] = {ANSWERS: (dict[str, JsonValue] | None, None)}
    made = _model(OpenArgs if is_open else ForeignArgs, tool, read, form, more)
    made.names, made.unchecked = tuple(every), read.unchecked
    # Of arguments that are filled in later, nothing is known yet.
    is_apart = every.keys() <= read.properties.keys() and not composed and "$ref" not in read.root
    if not left_out and not (is_apart and isinstance(plain.get("additionalProperties", True), bool)):
        made.together = Together(read, every, () if declared.is_open else tuple(declared.patterns))
    return made


def unread_arguments(tool: str, schema: Mapping[str, Any], *, left_out: Collection[str] = ()) -> type[ForeignArgs]:
    """Make a model that takes any arguments, for a schema that cannot be read; it knows their names if it has some."""
    found = schema.get("properties")
    names = [name for name in found if isinstance(name, str) and name != ANSWERS] if isinstance(found, Mapping) else []
    open_schema = {"properties": dict.fromkeys(names[:MAX_UNREAD], True), "additionalProperties": True}
    return arguments_of(tool, open_schema, left_out=left_out)


def result_of(tool: str, schema: Mapping[str, Any]) -> type[ForeignResult]:
    """Make a model of a tool's structured result. Raises BadSchema as `arguments_of`."""
    read, plain = _read(schema)
    form = {**plain, "type": "object", "additionalProperties": True}
    return _model(ForeignResult, tool, read, form)


def misfit(schema: JsonSchema) -> Callable[[Any, ValidationInfo], Any]:
    """Make a validator of pydantic for a JSON schema; its errors name the rule, and never the value."""

    def check(value: Any, info: ValidationInfo) -> Any:
        if info.context is not _CHECKED:
            require_fit(schema, value)
        return value

    return check


def require_fit(schema: JsonSchema, value: Any) -> None:
    """Raise pydantic's error for a value that does not fit a schema; it names the rule, and never the value."""
    try:
        wrong = schema.broken_rules(value)
    except BadSchema as bad:
        raise PydanticCustomError(RULE, "cannot be checked, since {why}", {"why": str(bad)}) from None
    if wrong:
        raise PydanticCustomError(RULE, "{rules}", {"rules": "; ".join(wrong)})


def _model(
    base: type[Args],
    tool: str,
    schema: JsonSchema,
    form: Mapping[str, Any],
    more: Mapping[str, Any] = MappingProxyType({}),
) -> type[Args]:
    """Make a model that validates by `schema`; its fields are `more`, and those of `form`: `schema` without `$ref`."""
    names, required = form.get("properties", {}), form.get("required", ())
    own = schema.properties
    fields = dict(more)
    for number, name in enumerate(names):
        checked: Any = Annotated[Any, AfterValidator(misfit(schema.of_property(name)))] if name in own else Any
        is_plain = name.isidentifier() and not name.startswith(("_", "replan_")) and name not in RESERVED
        default = ... if name in required else None
        if is_plain:
            fields[name] = (checked, Field(default))
        else:
            fields[f"replan_field_{number}"] = (checked, Field(default, alias=name))
    # `ShopOrder` for the tool `shop.order`
    title = "".join(part.capitalize() for part in tool.replace(".", "_").replace("-", "_").split("_")) or "Tool"
    made = create_model(title, __base__=base, __doc__=base.__doc__, **fields)
    made.form = {"title": made.__name__, **form}
    return made


def _read(foreign: Mapping[str, Any]) -> tuple[JsonSchema, dict[str, Any]]:
    """A server's schema, and its plain form. Raises BadSchema for a schema that is too large or cannot be read."""
    read = JsonSchema.foreign(foreign)
    most = max(MAX_PARTS, 2 * size(dict(read.schema)))
    for depth in MAX_DEPTHS if read.properties is not None else ():
        with suppress(_FormTooLarge):
            form: dict[str, Any] = _PlainForm(read, most, depth).of(read.schema, read.resolver, 0)
            return read, form
    raise BadSchema(f"it has more than {most} parts")


class _FormTooLarge(Exception):
    """A plain form has too many parts."""


class _PlainForm:
    """Makes the plain form of a schema, in which each `$ref` is replaced by what it refers to."""

    def __init__(self, schema: JsonSchema, most: int, max_depth: int) -> None:
        self._schema, self._left, self._max_depth = schema, most, max_depth

    def of(self, value: Any, resolver: Any, depth: int) -> Any:
        """The plain form of a schema, or of a list of schemas; raises _FormTooLarge."""
        self._spend(1)
        if isinstance(value, list):
            return [self.of(item, resolver, depth + 1) for item in value]
        if not isinstance(value, Mapping):
            return value
        if depth > self._max_depth:
            return {}
        resolver = self._schema.inner_resolver(resolver, value)
        if isinstance(reference := value.get("$ref"), str):
            return self._referred(reference, value, resolver, depth)
        return {
            name: self._keyword(name, part, resolver, depth + 1)
            for name, part in _modern(value).items()
            if name not in LEFT_OUT and (name in SCHEMAS or not _has_reference(part))
        }

    def _referred(self, reference: str, value: Mapping[str, Any], resolver: Any, depth: int) -> Any:
        is_alone = self._schema.draft in REFERENCE_ALONE
        beside = {name: part for name, part in value.items() if name in ABOUT or not (is_alone or name == "$ref")}
        others = self.of(beside, resolver, depth)
        found = target(resolver, reference)
        referred = self.of(found.contents, found.resolver, depth + 1)
        if not isinstance(referred, Mapping):
            return {**others, "not": {}} if referred is False else others
        if referred.keys() & others.keys() <= {*ABOUT}:
            return {**referred, **others}
        return {**others, "allOf": [referred, *others.get("allOf", ())]}

    def _keyword(self, name: str, part: Any, resolver: Any, depth: int) -> Any:
        if name not in SCHEMAS:
            self._spend(size(part))
            return part
        if name in NAMED:
            self._spend(1)
            # As objects, since providers take no booleans there.
            named = {key: BOOLEANS[inner] if isinstance(inner, bool) else inner for key, inner in part.items()}
            return {key: self.of(inner, resolver, depth + 1) for key, inner in named.items()}
        return self.of(part, resolver, depth)

    def _spend(self, parts: int) -> None:
        self._left -= parts
        if self._left < 0:
            raise _FormTooLarge


def _has_reference(value: Any) -> bool:
    """Whether pydantic would take a value, or a part of it, for a reference or for definitions."""
    return (isinstance(value, Mapping) and not value.keys().isdisjoint(("$ref", "$defs"))) or any(
        map(_has_reference, items(value))
    )


def _modern(part: Mapping[str, Any]) -> dict[str, Any]:
    """A schema with the newest draft's keywords for tuples, exclusive limits and dependencies."""
    made = dict(part)
    rest = made.pop("additionalItems", True)
    if isinstance(first := made.get("items"), list):
        made |= {"prefixItems": first, "items": rest if isinstance(rest, Mapping) else {}}
        if rest is False:
            made["maxItems"] = min(len(first), made.get("maxItems", len(first)))
    for limit, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if isinstance(is_exclusive := made.get(exclusive), bool):
            del made[exclusive]
            if is_exclusive and limit in made:
                made[exclusive] = made.pop(limit)
    for name, needed in made.pop("dependencies", {}).items():
        keyword = "dependentRequired" if isinstance(needed, list) else "dependentSchemas"
        made[keyword] = {**made.get(keyword, {}), name: needed}
    return made
