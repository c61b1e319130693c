"""The shape of a border table and the entry that most rows are."""

from collections.abc import Callable, Mapping
from typing import Any

from workflows.faults import Code, Fault

Entry = Callable[[Any], Fault]
"""Makes a Fault of an exception of the class that it is listed under."""

Table = Mapping[type[BaseException], Entry]


def always(code: Code, reason: str) -> Entry:
    """An entry that says the same of every exception of its class."""
    fault = Fault.of(code, reason)
    return lambda _error: fault
