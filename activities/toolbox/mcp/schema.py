"""Pydantic models for the JSON schemas of a foreign server's tools: of their arguments, and of their results.

Values are validated by the server's own schema. Names, types and paths are read from a plain form without `$ref`.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, TypeVar

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
)
from pydantic_core import PydanticCustomError
from pydantic_core.core_schema import CoreSchema

from activities.borders.validation import RULE
from activities.toolbox.json_schema import BadSchema, JsonSchema, checkable, relocated

MAX_PARTS = 2_000
"""The most objects, lists and other values of a schema whose references are replaced by what they refer to."""
MAX_DEPTH = 12
"""The depth below which a schema allows any value: a schema that refers to itself has no end."""
DEFINITIONS = ("$defs", "definitions")
LEFT_OUT = (*DEFINITIONS, "$schema", "$id")
ANSWERS = "replan_answers"
"""The argument with a person's answers to the questions of a server; no plan may have this argument."""
RESERVED = frozenset({*dir(BaseModel), "as_sent", "answers", "form", ANSWERS})
"""Names that pydantic does not take for fields."""

_CHECKED = object()
"""The validation context that marks a value as checked before, so that it is not checked again."""


class ForeignArgs(BaseModel):
    """The arguments of a foreign tool."""

    model_config = ConfigDict(protected_namespaces=(), extra="forbid")
    form: ClassVar[dict[str, Any] | None] = None
    """The JSON schema that the server declares; None for the schema of the fields."""

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return handler(core) if cls.form is None else cls.form

    @property
    def answers(self) -> dict[str, JsonValue]:
        """A person's answers to the server's questions: by the name of a question, the fields of its form."""
        return getattr(self, ANSWERS, None) or {}

    def as_sent(self) -> dict[str, JsonValue]:
        """The arguments that were given, by the server's names."""
        given = self._named(name for name in type(self).model_fields if name in self.model_fields_set)
        return {name: value for name, value in given.items() if name != ANSWERS}

    def _named(self, fields: Iterable[str]) -> dict[str, Any]:
        """The values of these fields and of undeclared ones, by the server's names."""
        declared = type(self).model_fields
        return {**{declared[name].alias or name: getattr(self, name) for name in fields}, **(self.model_extra or {})}

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


def arguments_of(tool: str, schema: Mapping[str, Any], *, left_out: Collection[str] = ()) -> type[ForeignArgs]:
    """Make a model of a tool's arguments but `left_out`, which Replan fills in; raises BadSchema with the reason."""
    schema, plain = _checked(schema)
    if plain.get("type", "object") != "object":
        raise BadSchema("its arguments are no object")
    properties = {name: part for name, part in plain.get("properties", {}).items() if name not in left_out}
    if ANSWERS in properties:
        raise BadSchema(f"it has an argument {ANSWERS}, which Replan uses itself")
    required = [name for name in plain.get("required", ()) if name not in left_out]
    # Unlike in the standard, what is not declared is not taken, unless the schema itself says so.
    is_open = bool(plain.get("additionalProperties"))
    form = {**plain, "type": "object", "properties": properties, "required": required, "additionalProperties": is_open}
    more: dict[str, Any] = {ANSWERS: (dict[str, JsonValue] | None, None)}
    return _model(OpenArgs if is_open else ForeignArgs, tool, schema, form, more)


def result_of(tool: str, schema: Mapping[str, Any]) -> type[ForeignResult]:
    """Make a model of a tool's structured result. Raises BadSchema as `arguments_of`."""
    schema, plain = _checked(schema)
    form = {**plain, "type": "object", "additionalProperties": True}
    return _model(ForeignResult, tool, schema, form)


def misfit(schema: JsonSchema) -> Callable[[Any, ValidationInfo], Any]:
    """Make a validator of pydantic for a JSON schema; its errors name the rule, and never the value."""

    def check(value: Any, info: ValidationInfo) -> Any:
        if info.context is _CHECKED:
            return value
        try:
            wrong = schema.broken_rules(value)
        except BadSchema as bad:
            raise PydanticCustomError(RULE, "cannot be checked, since {why}", {"why": str(bad)}) from None
        if wrong:
            raise PydanticCustomError(RULE, "{rules}", {"rules": "; ".join(wrong)})
        return value

    return check


def _model(
    base: type[Args],
    tool: str,
    schema: Mapping[str, Any],
    form: Mapping[str, Any],
    more: Mapping[str, Any] = MappingProxyType({}),
) -> type[Args]:
    """Make a model that validates by `schema`; its fields are `more`, and those of `form`: `schema` without `$ref`."""
    whole = {"whole": relocated(schema, "#/$defs/whole")}  # a rule may refer to any place of the schema
    names, required = form.get("properties", {}), form.get("required", ())
    fields = dict(more)
    for number, name in enumerate(names):
        own = {"$ref": f"#/$defs/whole/properties/{name}", "$defs": whole}
        checked = Annotated[Any, AfterValidator(misfit(JsonSchema.part_of_checked(own)))]
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


def _checked(foreign: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The part of a schema that can be checked, and the same without references and definitions.

    Raises BadSchema for a schema that is too large or deep, or has a reference that leads nowhere or has no end.
    """
    try:
        schema: dict[str, Any] = checkable(foreign)
        JsonSchema(schema)  # refuses what is too large, or leads nowhere
        schema = _without_reference(schema)
    except RecursionError:
        raise BadSchema("it is nested too deeply") from None
    left = MAX_PARTS

    def walk(value: Any, depth: int, *, is_names: bool = False) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise BadSchema(f"it has more than {MAX_PARTS} parts")
        if isinstance(value, list):
            return [walk(item, depth + 1) for item in value]
        if not isinstance(value, Mapping):
            return value
        if is_names:
            return {name: walk(part, depth + 1) for name, part in value.items()}
        if depth > MAX_DEPTH:
            return {}
        if isinstance(reference := value.get("$ref"), str):
            others = {name: part for name, part in value.items() if name != "$ref"}
            return {**walk(_at(schema, reference), depth + 1), **walk(others, depth)}
        return {
            name: walk(part, depth + 1, is_names=name == "properties")
            for name, part in value.items()
            if name not in LEFT_OUT
        }

    return schema, walk(schema, 0)


def _without_reference(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema, with a reference of the whole schema replaced by its target. Raises BadSchema if there is no end."""
    for _ in range(MAX_DEPTH):
        if not isinstance(reference := schema.get("$ref"), str):
            return schema
        schema = {**_at(schema, reference), **{name: part for name, part in schema.items() if name != "$ref"}}
    raise BadSchema("it refers to itself without end")


def _at(schema: Any, reference: str) -> Any:
    for part in reference.removeprefix("#").split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        schema = schema[int(name)] if isinstance(schema, list) else schema[name]
    return schema if isinstance(schema, Mapping) else {}
