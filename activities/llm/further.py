"""What else an earlier step found: the next item of the list of which a call was given the first."""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple

from pydantic import JsonValue

from workflows.plan import Unresolved, resolve


class Further(NamedTuple):
    """The same argument, referring to a later item."""

    argument: str
    reference: dict[str, JsonValue]
    value: JsonValue
    source: str
    """The step that found it."""


def further(args: Mapping[str, JsonValue], results: Mapping[str, JsonValue]) -> Iterator[Further]:
    """Yield the later items of the lists that planned `args` refer to, in the order in which they were found."""
    for name, value in args.items():
        if not (isinstance(value, dict) and set(value) == {"$from", "path"}):
            continue
        found = re.fullmatch(r"(.*?)(\d+)(\D*)", str(value["path"]))
        source = str(value["$from"])
        if not found or source not in results:
            continue
        with suppress(Unresolved):  # the list has no such item
            for number in range(int(found[2]) + 1, 100):
                reference: dict[str, JsonValue] = {"$from": source, "path": f"{found[1]}{number}{found[3]}"}
                yield Further(name, reference, resolve(reference, results), source)
