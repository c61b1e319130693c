"""pydantic: the Fault of a result with the wrong type, and a text that names wrong fields but never their values."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, get_args

from pydantic import ValidationError
from pydantic_core.core_schema import ErrorType

from activities.borders.service_api import unknown
from activities.borders.table import Cases, Table, Verdict
from workflows.faults.fault import Code

MAX_NAMED = 5
MAX_NAME = 40
"""The most characters of a field's name that a text shows. If no model declares the field, its name is untrusted
content."""
_QUOTING = {"value_error", "assertion_error", "union_tag_invalid", "get_attribute_error"}
RULE = "broken_rule"
"""The type of errors that validators of Replan raise; their messages name rules of a schema, and never a value."""
_PLAIN = (frozenset(get_args(ErrorType)) - _QUOTING) | {RULE}
"""Types of pydantic's errors whose message has no input value before its first comma. The message of a custom validator
may have a value anywhere."""
_WHOLE = {"literal_error", "enum", "string_pattern_mismatch", "url_scheme", RULE}
"""Types of errors whose message is shown whole, not only up to its first comma: its commas come from the schema, and
not from an input value."""


def fields_of(error: ValidationError) -> str:
    """As `fields`, for all errors of a failed validation."""
    return fields(error.errors(include_url=False, include_context=False, include_input=False))


def fields(errors: Iterable[Mapping[str, Any]]) -> str:
    """A text that names the first MAX_NAMED wrong fields, and what was expected of each."""
    named = [f"{field_name(error['loc'])} {expected(error)}" for error in errors]
    more = f" and {len(named) - MAX_NAMED} more" if len(named) > MAX_NAMED else ""
    return "; ".join(named[:MAX_NAMED]) + more


def field_name(loc: tuple[int | str, ...]) -> str:
    """The dotted name, in quotes, of the field at `loc`, the location in an error of pydantic."""
    names = [part if len(part) <= MAX_NAME else part[:MAX_NAME] + "…" for part in map(str, loc)]
    return repr(".".join(names)) if names else "the whole"


def expected(error: Mapping[str, Any]) -> str:
    """A clause that says what an error of pydantic expected of a field, without the field's value."""
    if error["type"] not in _PLAIN:
        # The type may be a custom one that contains a value: it is named only if it looks like a rule's name.
        rule = f" ({error['type']})" if re.fullmatch(r"[a-z_]{1,40}", str(error["type"])) else ""
        return f"has a value that is not allowed{rule}"
    message = str(error["msg"]) if error["type"] in _WHOLE else str(error["msg"]).split(",", 1)[0]
    return message if message[:2].isupper() else message[:1].lower() + message[1:]  # URL, UUID


_SHAPE = unknown(Code.UNEXPECTED_RESULT, "The result does not have the declared type.")


def _by_wrong_fields(error: object) -> Verdict | None:
    if type(error) is not ValidationError:  # it has no children: another class of this name may say anything
        return None
    return _SHAPE.verdict(reason=f"{_SHAPE.reason[:-1]}: {fields_of(error)}.")


_WRONG_MODEL = unknown(Code.BUG, "The tool uses pydantic wrongly: fix its models.")

TABLE: Table = {
    "pydantic.errors.PydanticErrorMixin": _WRONG_MODEL,
    "pydantic.v1.env_settings.SettingsError": _WRONG_MODEL,
    "pydantic.v1.error_wrappers.ValidationError": _SHAPE,
    "pydantic.v1.errors.ConfigError": _WRONG_MODEL,
    "pydantic.v1.errors.PydanticErrorMixin": _WRONG_MODEL,
    "pydantic_core._pydantic_core.SchemaError": _WRONG_MODEL,
    "pydantic_core._pydantic_core.ValidationError": Cases("the wrong fields", {}, _by_wrong_fields, otherwise=_SHAPE),
    "pydantic_core._pydantic_core.PydanticSerializationError": unknown(
        Code.UNSERIALISABLE, "The tool's result cannot be written as JSON: return a pydantic model of plain values."
    ),
}
