"""The fields of a form for the arguments of a call: one line for a number, a date, a choice or a short text."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import JsonValue

from client import document
from client.problem import Problem
from workflows.people.requests import CUT, ProposedCall, is_secret, shown_args
from workflows.text import visible

SHORT = 80
"""The most characters of a text that is edited on one line."""
MAX_OPTIONS = 50
DATE, TIME = re.compile(r"\d{4}-\d\d-\d\d"), re.compile(r"\d\d:\d\d")
JSON_EXAMPLE = 'write texts in quotes, as in {"id": 7, "name": "ann"}'


class Field(NamedTuple):
    """An argument of a call in a form."""

    name: str
    form: str
    """How its text is read when the form comes back: a key of READERS."""
    type: str
    """`text`, `number`, `date`, `time` (one line), `select`, `area`, or `cut` (too long to be edited here)."""
    value: str
    hint: str = ""
    options: Sequence[tuple[str, str]] = ()
    """Of a select, each value with its words."""
    is_default: bool = False
    """Whether the plan leaves it out, and the tool adds it."""

    @property
    def is_json(self) -> bool:
        return self.form == "arg" and self.type == "area"


def fields_of(call: ProposedCall, schema: Mapping[str, Any] | None) -> list[Field]:
    """A field for each argument of a call, also of those that its tool adds.

    `schema` is that of all arguments; without it, the values alone decide.
    """
    whole = schema or {}
    known = whole.get("properties", {})
    return [
        _field(name, value, _plain(known.get(name, {}), whole))._replace(is_default=name not in (call.args or {}))
        for name, value in call.whole_args.items()
    ]


def with_defaults(call: ProposedCall, schema: Mapping[str, Any] | None) -> ProposedCall:
    """The call with the arguments that its tool adds; if no worker told them, those that its schema declares."""
    if call.args is None or call.defaults:
        return call
    known = (schema or {}).get("properties", {})
    defaults = {
        name: part["default"]
        for name, part in known.items()
        if name not in call.args and "default" in part and not is_secret(part)
    }
    return call.model_copy(update={"defaults": shown_args(defaults)}) if defaults else call


def is_text(value: JsonValue) -> bool:
    """Whether a value is shown as it is; all others are JSON, in which invisible characters are escaped."""
    return isinstance(value, str) and visible(value, kept="\n\t") == value


def value_text(value: JsonValue) -> str:
    return value if isinstance(value, str) and is_text(value) else document.written(value, indent=None)


def _plain(schema: Mapping[str, Any], whole: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of an argument without references; of one that may be null, with `nullable`."""
    found = dict(schema)
    if reference := found.pop("$ref", ""):
        target = whole.get("$defs", {}).get(str(reference).rpartition("/")[2], {})
        found = {**target, **found}
    others = [option for option in found.get("anyOf", ()) if option.get("type") != "null"]
    if len(others) == 1:
        rest = {name: value for name, value in found.items() if name != "anyOf"}
        return {**_plain(others[0], whole), **rest, "nullable": True}
    return found


def _field(name: str, value: JsonValue, schema: Mapping[str, Any]) -> Field:
    hint = str(schema.get("description", "")).partition("\n")[0]
    if isinstance(value, str) and value.endswith(CUT):
        return Field(name, "text", "cut", value, hint)
    if options := _options(value, schema):
        return Field(name, "arg", "select", _json_text(value), hint, options)
    kind = schema.get("type", "")
    if isinstance(value, int | float) and not isinstance(value, bool):
        return Field(name, "number", "number", _json_text(value), hint)
    # An argument may be null, or it was left out, which `null` stands for.
    if value is None and kind in ("number", "integer"):
        return Field(name, "number_or_null", "number", "", hint)
    if value is None and kind == "string":
        return Field(name, "text_or_null", "text", "", hint)
    if not (isinstance(value, str) and is_text(value)):
        return Field(name, "arg", "area", value_text(value), hint)
    for type, pattern in (("date", DATE), ("time", TIME)):
        if schema.get("format") == type and pattern.fullmatch(value):
            return Field(name, "text", type, value, hint)
    is_long = len(value) > SHORT or "\n" in value
    return Field(name, "text", "area" if is_long else "text", value, hint)


def _options(value: JsonValue, schema: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The values to choose from, each with its words; none if any other value may be right."""
    is_nothing = value is None and None not in schema.get("enum", ())
    nothing = [("null", "(nothing)")] if is_nothing or schema.get("nullable") else []
    if isinstance(value, bool) or (is_nothing and schema.get("type") == "boolean"):
        return [("true", "yes"), ("false", "no"), *nothing]
    choices = schema.get("enum", ())
    if not (is_nothing or value in choices) or not 2 <= len(choices) <= MAX_OPTIONS:
        return []
    return [*((_json_text(choice), value_text(choice)) for choice in choices), *nothing]


def _json_text(value: JsonValue) -> str:
    return document.written(value, indent=None)


# Reading a form


def arguments(form: Mapping[str, str]) -> dict[str, JsonValue]:
    """The arguments that a form has, by name.

    Raises:
        Problem: the text of a field cannot be read.
    """
    found = dict[str, JsonValue]()
    for field, text in form.items():
        how, dot, name = field.partition(".")
        if dot and how in READERS:
            found[name] = READERS[how](name, text)
    return found


def json_value(name: str, text: str) -> JsonValue:
    try:
        value: JsonValue = json.loads(text)
    except ValueError as error:
        raise Problem("usage", f"{name} is not JSON", JSON_EXAMPLE) from error
    return value


def _number(name: str, text: str) -> JsonValue:
    try:
        value = json.loads(text.strip())
    except ValueError:
        value = None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Problem("usage", f"{name} is not a number", "write digits, with a point before decimals, e.g. 12.50")
    return value


READERS: Mapping[str, Callable[[str, str], JsonValue]] = {
    "text": lambda _, text: text,
    "arg": json_value,
    "number": _number,
    "text_or_null": lambda _, text: text or None,
    "number_or_null": lambda name, text: _number(name, text) if text.strip() else None,
}
"""By the beginning of a field's name, how its text is read."""
