"""The types of the tables that translate exceptions to Faults."""

from collections.abc import Callable, Mapping
from typing import Any

from workflows.faults import Code, Fault

Entry = Callable[[Any], Fault]
"""A function that makes the Fault of an exception. A Table holds such a function for each class of exceptions."""

Table = Mapping[type[BaseException], Entry]


def always(code: Code, reason: str) -> Entry:
    """An entry that returns the same Fault for any exception."""
    fault = Fault.of(code, reason)
    return lambda _error: fault
