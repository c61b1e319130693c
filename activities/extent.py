"""The extent of a value that a tool made: whether the value can be written as JSON in little time and memory.

pydantic reads a generator, or any other iterable, to its end. If an iterable has no end, neither the tool's timeout nor
the limit of a result would stop pydantic.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from ipaddress import IPv4Network, IPv6Network
from typing import Any

from pydantic import BaseModel

from workflows.faults.fault import Code, Fault

MAX_BYTES = 1024 * 1024
"""The most bytes of JSON, where no other limit is given."""
MAX_DEPTH = 200
"""The most levels to which values may be nested."""
MAX_BITS = 14_000
"""The most bits of an integer: Python writes no integer of more than 4,300 digits as text."""

_SINGLE = frozenset({int, str, bytes, float, bool, type(None)})
_PLAIN = (list, tuple, set, frozenset)
_ITERABLE_BUT_SINGLE = (str, bytes, bytearray, memoryview, IPv4Network, IPv6Network)


def fault_of_extent(kind: str, value: Any, max_bytes: int = MAX_BYTES) -> Fault | None:
    """The fault of a tool whose value is an iterator, or too large or too deep; None if the value is acceptable.

    `kind` is the tool's, for the reason of the fault. An iterator is not read, since it can be read only once.
    """
    levels, left = [iter((value,))], max_bytes // 2  # JSON of a value has two bytes or more, with its comma
    while levels:
        for item in levels[-1]:
            left -= 1
            if left < 0 or (type(item) is int and item.bit_length() > MAX_BITS):
                return Fault.of(Code.TOO_LARGE, f"{kind} returned more than {max_bytes} bytes: let it return less.")
            if type(item) in _SINGLE:
                continue
            if hasattr(type(item), "__next__"):
                reason = f"{kind} returned an iterator ({type(item).__name__}), which may have no end: return a list."
                return Fault.of(Code.UNSERIALISABLE, reason)
            if (inner := _values_in(item)) is not None:
                levels.append(inner)
                break
        else:
            levels.pop()
        if len(levels) > MAX_DEPTH:
            reason = f"{kind} returned values that are nested more than {MAX_DEPTH} deep: let it return a flat list."
            return Fault.of(Code.TOO_LARGE, reason)
    return None


def _values_in(item: Any) -> Iterator[Any] | None:
    """The values that JSON of `item` would hold; None if `item` is a single value."""
    if isinstance(item, _PLAIN):
        return iter(item)
    if isinstance(item, BaseModel):
        return iter([*vars(item).values(), *(item.model_extra or {}).values()])
    if dataclasses.is_dataclass(item) and not isinstance(item, type):
        return iter([getattr(item, field.name, None) for field in dataclasses.fields(item)])
    if isinstance(item, _ITERABLE_BUT_SINGLE):
        return None
    if isinstance(item, Mapping):
        return iter(item.values())
    return iter(item) if isinstance(item, Iterable) else None
