"""The types of a border's table."""

from collections.abc import Callable, Mapping
from typing import Any

from workflows.faults import Code, Fault

Entry = Callable[[Any], Fault]
"""Makes a Fault of an exception of the class that is its key in the table."""

Table = Mapping[type[BaseException], Entry]


def always(code: Code, reason: str) -> Entry:
    """An entry with the same Fault for every exception of its class."""
    fault = Fault.of(code, reason)
    return lambda _error: fault
