"""pydantic: what was given or answered does not have the promised shape; names the fields, never their values."""

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from activities.borders.table import Table, always
from workflows.faults import Code, Fault

MAX_NAMED = 5
_OWN_WORDS = ("value_error", "assertion_error")
"""Types whose message was written by a validator and may quote the value."""


def fields(errors: Iterable[Mapping[str, Any]]) -> str:
    """Name the fields that are wrong and what was expected of each."""
    named = [f"{_place(error['loc'])} {_expected(error)}" for error in errors]
    more = f" and {len(named) - MAX_NAMED} more" if len(named) > MAX_NAMED else ""
    return "; ".join(named[:MAX_NAMED]) + more


def _place(loc: tuple[int | str, ...]) -> str:
    return repr(".".join(map(str, loc))) if loc else "the whole"


def _expected(error: Mapping[str, Any]) -> str:
    if error["type"] in _OWN_WORDS:
        return "has a value that is not allowed"
    message = str(error["msg"])
    return message[0].lower() + message[1:].split(",", 1)[0]


def _broken(error: ValidationError) -> Fault:
    found = fields(error.errors(include_url=False, include_context=False, include_input=False))
    return Fault.of(Code.UNEXPECTED_RESULT, f"What came back does not have the promised shape: {found}.")


TABLE: Table = {
    ValidationError: _broken,
    PydanticSerializationError: always(
        Code.UNSERIALISABLE, "The tool's result cannot be written as JSON: return a pydantic model of plain values."
    ),
}
