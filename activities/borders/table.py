"""The types of the tables that translate exceptions to Faults."""

from collections.abc import Callable, Mapping
from typing import Any

from workflows.faults import Code, Fault

Entry = Callable[[Any], Fault]
"""Makes the Fault of an exception; its key in a Table is the class of the exception."""

Table = Mapping[type[BaseException], Entry]


def always(code: Code, reason: str) -> Entry:
    """An entry with the same Fault for every exception of its class."""
    fault = Fault.of(code, reason)
    return lambda _error: fault
