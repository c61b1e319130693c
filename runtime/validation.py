"""Says in plain words what pydantic expected of a value that a user typed: an option, a plan file, a settings file."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # `--help` does not need it
    from pydantic import ValidationError

_NUMBER, _WHOLE, _OBJECT, _LIST = "must be a number", "must be a whole number", "must be an object", "must be a list"
EXPECTED: Mapping[str, str] = {
    "missing": "is missing",
    "extra_forbidden": "is not known here",
    "json_invalid": "is not JSON ({error})",
    "int_type": _WHOLE,
    "int_parsing": _WHOLE,
    "int_from_float": _WHOLE,
    "float_type": _NUMBER,
    "float_parsing": _NUMBER,
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "string_type": "must be a text",
    "string_too_short": "must have at least {min_length} characters",
    "string_too_long": "must have at most {max_length} characters",
    "literal_error": "must be {expected}",
    "enum": "must be {expected}",
    "list_type": _LIST,
    "tuple_type": _LIST,
    "dict_type": _OBJECT,
    "model_type": _OBJECT,
    "model_attributes_type": _OBJECT,
    "union_tag_not_found": "does not say which of its forms it has",
    "union_tag_invalid": "must be {expected_tags}, not {tag!r}",
    "greater_than": "must be more than {gt:g}",
    "greater_than_equal": "must be at least {ge:g}",
    "less_than": "must be less than {lt:g}",
    "less_than_equal": "must be at most {le:g}",
}
"""By the type of pydantic's error, what was expected; each completes a sentence that begins with the field's name."""


def first_mistake(error: "ValidationError", whole: str = "it") -> str:
    """What is wrong with the first wrong field, e.g. `'steps.0.id' must be a text`; `whole` names the value itself."""
    wrong = error.errors(include_url=False)[0]
    return f"{repr('.'.join(map(str, wrong['loc']))) if wrong['loc'] else whole} {expected(wrong)}"


def expected(error: Mapping[str, Any]) -> str:
    """What pydantic expected, such as `must be a number`; `error` is an item of `ValidationError.errors()`."""
    if form := EXPECTED.get(error["type"]):
        return form.format(**error.get("ctx", {}))
    return f"cannot be used ({str(error['msg']).removeprefix('Value error, ').rstrip('.')})"
