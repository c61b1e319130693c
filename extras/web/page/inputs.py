"""Forms for the arguments of a call: their fields, the check of values by a schema, and refused forms."""

import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

from markupsafe import Markup
from pydantic import JsonValue

from client import document
from client.problem import Problem
from client.remedy import render
from client.schemas import NUMBER, decimal_part, plain
from extras.web.remedies import on_page
from runtime.validation import expected
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
    """For a `select`: each value with its label."""
    is_default: bool = False
    """Whether the plan leaves the argument out, and the tool adds it."""

    @property
    def is_json(self) -> bool:
        return self.form == "arg" and self.type == "area"


def fields_of(call: ProposedCall, schema: Mapping[str, Any] | None) -> list[Field]:
    """A form field for each argument of a call, also for the arguments that its tool adds.

    `schema` is the schema of all arguments; without it, the values alone decide on the types of the fields.
    """
    whole = schema or {}
    known = whole.get("properties", {})
    return [
        _field(name, value, plain(known.get(name, {}), whole))._replace(is_default=name not in (call.args or {}))
        for name, value in call.whole_args.items()
    ]


def with_defaults(call: ProposedCall, schema: Mapping[str, Any] | None) -> ProposedCall:
    """The call with the arguments that its tool adds; if no worker told them, with the defaults in the schema."""
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
    """Whether a value is shown as it is; other values are shown as JSON, which escapes invisible characters."""
    return isinstance(value, str) and visible(value, kept="\n\t") == value


def value_text(value: JsonValue) -> str:
    """A value as the page shows it: a plain text as it is, any other value as JSON."""
    return value if isinstance(value, str) and is_text(value) else document.written(value, indent=None)


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
    if decimal_part(schema) and NUMBER.fullmatch(value):
        return Field(name, "decimal", "number", value, hint)
    for type, pattern in (("date", DATE), ("time", TIME)):
        if schema.get("format") == type and pattern.fullmatch(value):
            return Field(name, "text", type, value, hint)
    is_long = len(value) > SHORT or "\n" in value
    return Field(name, "text", "area" if is_long else "text", value, hint)


def _options(value: JsonValue, schema: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The values to choose from, each with its label; empty if other values may be right, too."""
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


class Mistakes(Problem):
    """Fields of a form that cannot be read, or have a value that they cannot have."""

    def __init__(self, fields: Mapping[str, str]) -> None:
        """`fields` has a sentence about each wrong field, by the name of the field."""
        super().__init__("usage", " ".join(fields.values()), "correct it")
        self.fields_of_form = fields


class RejectedForm(NamedTuple):
    """A form that was not accepted: it is shown again as it was sent."""

    about: str
    """The id of the request; empty for a form that answers none."""
    choice: str
    form: Mapping[str, str]
    mistakes: Mapping[str, str]
    """By the name of a field, what is wrong with it."""

    @classmethod
    def of(cls, problem: Problem, about: str, choice: str, form: Mapping[str, str]) -> "RejectedForm":
        """The form that was refused because of `problem`, with the mistakes that the problem names."""
        found: Mapping[str, str] = {}
        if isinstance(problem, Mistakes):
            found = problem.fields_of_form
        elif problem.argument:
            found = {problem.argument: f"{render(problem.reason, on_page)}."}
        return cls(about, choice, form, found)

    def is_of(self, about: str, choice: str) -> bool:
        """Whether this is the form for the answer `choice` to the request `about`."""
        return (self.about, self.choice) == (about, choice)

    def value(self, name: str, otherwise: str = "") -> str:
        """The text of a field as it was sent; `otherwise` if the form had no such field."""
        return self.form.get(name, otherwise)

    def element_id(self, name: str) -> str:
        """The id of the HTML element of a wrong field."""
        return f"mistake-{[*self.mistakes].index(name) + 1}"

    def attributes(self, name: str) -> Markup:
        """The HTML attributes of a wrong field, with the focus on the first such field; empty for a right field."""
        if name not in self.mistakes:
            return Markup()
        markup = Markup(' id="{0}" aria-invalid="true" aria-describedby="{0}-words"').format(self.element_id(name))
        return markup + Markup(" autofocus") if name == next(iter(self.mistakes)) else markup


def arguments(form: Mapping[str, str]) -> dict[str, JsonValue]:
    """The arguments that a form has, by name. Raises Mistakes if the texts of fields cannot be read."""
    found, wrong = dict[str, JsonValue](), dict[str, str]()
    for field, name in argument_fields(form).items():
        try:
            found[name] = READERS[field.partition(".")[0]](name, form[field])
        except Problem as problem:
            wrong[field] = str(problem)
    if wrong:
        raise Mistakes(wrong)
    return found


def argument_fields(form: Mapping[str, str]) -> dict[str, str]:
    """By the name of a form's field, the name of the argument in it; other fields are left out."""
    parts = ((field, *field.partition(".")) for field in form)
    return {field: name for field, how, dot, name in parts if dot and how in READERS}


def json_value(field: str, name: str, text: str) -> JsonValue:
    """The value of a field with JSON; `name` is what the page calls the field. Raises Mistakes for other texts."""
    try:
        return _read_json(name, text)
    except Problem as problem:
        raise Mistakes({field: str(problem)}) from problem


def _read_json(name: str, text: str) -> JsonValue:
    try:
        return document.parsed(text)
    except RecursionError as error:
        raise Problem("usage", f"{name} is nested too deeply", "make it flatter") from error
    except ValueError as error:
        raise Problem("usage", f"{name} is not JSON", JSON_EXAMPLE) from error


def _read_number(name: str, text: str) -> JsonValue:
    try:
        value = document.parsed(text.strip())
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _no_number(name)
    return value


def _read_decimal(name: str, text: str) -> JsonValue:
    """Return a number as a text, so that no digit is lost. Raises Problem if the text is no number."""
    if not NUMBER.fullmatch(text.strip()):
        raise _no_number(name)
    return text.strip()


def _no_number(name: str) -> Problem:
    return Problem("usage", f"{name} is not a number", "write digits, with a point before decimals, e.g. 12.50")


READERS: Mapping[str, Callable[[str, str], JsonValue]] = {
    "text": lambda _, text: text,
    "arg": _read_json,
    "number": _read_number,
    "decimal": _read_decimal,
    "text_or_null": lambda _, text: text or None,
    "number_or_null": lambda name, text: _read_number(name, text) if text.strip() else None,
}
"""By the beginning of a field's name (`Field.form`), the function that reads the field's text."""


# What a schema says of a value

BOUNDS: Mapping[str, tuple[str, str, Callable[[Decimal, Decimal], bool]]] = {
    "minimum": ("greater_than_equal", "ge", Decimal.__ge__),
    "exclusiveMinimum": ("greater_than", "gt", Decimal.__gt__),
    "maximum": ("less_than_equal", "le", Decimal.__le__),
    "exclusiveMaximum": ("less_than", "lt", Decimal.__lt__),
}
"""By the word of a schema, the type and the field of pydantic's error about it, and the comparison that holds."""


def misfits(args: Mapping[str, JsonValue], schema: Mapping[str, Any] | None) -> dict[str, str]:
    """By the name of an argument, why `schema`, the schema of all arguments, rejects the value.

    These are rules that can be checked at once: numbers and their bounds, lengths, choices. Where the tool might read
    the value otherwise than the schema says, the value is not rejected: the tool itself checks each call.
    """
    whole = schema or {}
    known = whole.get("properties", {})
    found = {name: _misfit(value, plain(known.get(name, {}), whole)) for name, value in args.items()}
    return {name: f"{name} {problem}." for name, problem in found.items() if problem}


def _misfit(value: JsonValue, schema: Mapping[str, Any]) -> str:
    """Why a schema rejects a value, as the end of a sentence; empty if the value is not rejected."""
    if value is None and schema.get("nullable"):
        return ""
    if choices := schema.get("enum"):
        texts = [value_text(choice) for choice in choices]
        return "" if value_text(value) in texts else f"must be one of {', '.join(texts[:MAX_OPTIONS])}"
    if number := decimal_part(schema):
        return _misfit_of_number(value, number) if _decimal(value) is not None else ""
    if schema.get("type") in ("number", "integer"):
        return _misfit_of_number(value, schema)
    if schema.get("type") == "string" and isinstance(value, str):
        least, most = schema.get("minLength", 0), schema.get("maxLength", len(value))
        if len(value) < least:
            return expected({"type": "string_too_short", "ctx": {"min_length": least}})
        if len(value.strip()) > most:
            return expected({"type": "string_too_long", "ctx": {"max_length": most}})
    return ""


def _misfit_of_number(value: JsonValue, schema: Mapping[str, Any]) -> str:
    number = _decimal(value)
    if isinstance(value, bool) or (number is not None and not number.is_finite()):
        return ""
    if number is None:
        return expected({"type": "float_type"})
    if schema.get("type") == "integer" and number != number.to_integral_value():
        return expected({"type": "int_type"})
    for word, (mistake, field, holds) in BOUNDS.items():
        bound = schema.get(word)
        if isinstance(bound, int | float) and not holds(number, Decimal(str(bound))):
            return expected({"type": mistake, "ctx": {field: bound}})
    return ""


def _decimal(value: JsonValue) -> Decimal | None:
    """The number in a value, which may be a text; None if the value is no number."""
    try:
        return Decimal(str(value)) if isinstance(value, int | float | str) and not isinstance(value, bool) else None
    except InvalidOperation:
        return None
