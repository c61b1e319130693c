"""Calls that may be made again because the world moved back: what broke a limit keeps it now."""

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import NamedTuple

from pydantic import JsonValue

from workflows.plan import Unresolved, resolve

OFFERING = ("", "free", "available", "open", "wider", "alternatives", "options", "choices", "suggestions")
"""Names of lists that say what may be had; a list in an observation that is itself a list has no name."""
NOT_OFFERED = ("taken", "busy", "booked", "unavailable", "blocked", "closed", "skipped")

MAX_NUMBER = 10**30


class Offer(NamedTuple):
    """One value for one argument."""

    argument: str
    value: JsonValue
    words: str
    """What it is, for people: `nearest free alternative 14:30`."""


def offers(args: Mapping[str, JsonValue], seen: JsonValue) -> Iterator[Offer]:
    """Yield what `seen` offers for one of `args`, the best first.

    A list offers values for the argument whose value has the same shape as its items; the nearest comes first, the
    later before the earlier. Any text or number looks like any other, so a list of them must say by its name that it is
    an offer.
    """
    lists = [(name, items) for name, items in _lists(seen) if name.lower() not in NOT_OFFERED]
    for name, items in sorted(lists, key=lambda named: _rank(named[0], args)):
        argument = _argument(name, items, args)
        if argument is None:
            continue
        old, shape = args[argument], shape_of(items[0])
        label = f"{name} " if name and name.lower() in OFFERING else ""
        if shape == "text":
            yield from (Offer(argument, item, f"{label}alternative {str(item)[:80]!r}") for item in items)
        else:
            by_distance = sorted(items, key=lambda item: _distance(old, item))
            yield from (Offer(argument, item, f"nearest {label}alternative {item}") for item in by_distance)


def _rank(name: str, args: Mapping[str, JsonValue]) -> int:
    if _namesake(name, args):
        return 0
    return 1 if name.lower() in OFFERING else 2


def _argument(name: str, items: Sequence[JsonValue], args: Mapping[str, JsonValue]) -> str | None:
    """The argument that the items could replace."""
    shape = shape_of(items[0])
    if shape is None or any(shape_of(item) != shape for item in items):
        return None
    alike = [argument for argument, value in args.items() if shape_of(value) == shape]
    namesake = _namesake(name, args)
    if namesake in alike:
        return namesake
    is_offer = shape not in ("text", "number") or name.lower() in OFFERING
    return alike[0] if alike and is_offer else None


def _namesake(name: str, args: Mapping[str, JsonValue]) -> str | None:
    """The argument of this name, or of its singular."""
    return next((argument for argument in args if argument.lower() in (name.lower(), name.lower().rstrip("s"))), None)


def _lists(seen: JsonValue) -> Iterator[tuple[str, list[JsonValue]]]:
    """All lists with their names, the outer before the inner; a list of objects gives one list per field."""
    waiting = deque[tuple[str, JsonValue]]([("", seen)])
    while waiting:
        name, value = waiting.popleft()
        if isinstance(value, dict):
            waiting.extend(value.items())
        elif isinstance(value, list) and value:
            rows = [item for item in value if isinstance(item, dict)]
            for field in rows[0] if len(rows) == len(value) else ():
                waiting.append((field, [row[field] for row in rows if field in row]))
            if not rows:
                yield name, value


_SHAPES = {
    "time": re.compile(r"[0-9]{2}:[0-9]{2}(?::[0-9]{2})?"),
    "date": re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}"),
    "moment": re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}.*"),
    "number": re.compile(r"-?[0-9]{1,30}(?:\.[0-9]{1,30})?"),
    "text": re.compile(r".+", re.DOTALL),
}


def shape_of(value: JsonValue) -> str | None:
    """`time`, `date`, `moment`, `number` or `text`; None for everything else."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    if not isinstance(value, str):
        return "number" if abs(value) < MAX_NUMBER else None
    for shape, pattern in _SHAPES.items():
        if pattern.fullmatch(value) and (shape == "text" or _measure(value, shape) is not None):
            return shape
    return None


def _measure(value: JsonValue, shape: str | None) -> Decimal | None:
    """Where a value lies on the line of its shape."""
    try:
        match shape:
            case "time":
                at = time.fromisoformat(str(value))
                return Decimal(at.hour * 3600 + at.minute * 60 + at.second)
            case "date":
                return Decimal(date.fromisoformat(str(value)).toordinal())
            case "moment":
                moment = datetime.fromisoformat(str(value))
                return Decimal((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())
            case _:
                return Decimal(str(value))
    except (ValueError, ArithmeticError):
        return None


def _distance(old: JsonValue, item: JsonValue) -> tuple[Decimal, bool]:
    """How far an item is from the refused value; at the same distance the later comes first."""
    here, there = _measure(old, shape_of(old)), _measure(item, shape_of(item))
    if here is None or there is None:
        return Decimal("Infinity"), False
    return abs(there - here), there < here


def overwritten(args: Mapping[str, JsonValue], offer: Offer, now: JsonValue, before: Iterable[JsonValue]) -> list[str]:
    """Name the fields that the call would change and that have changed since they were seen.

    `now` holds the row that the offer is from, `before` are earlier results, of which the last that has the row counts.
    Where it was never seen before, or the call changes no fields by name, there is nothing to compare.
    """
    wanted = {field: value for part in args.values() if isinstance(part, dict) for field, value in part.items()}
    row = next((row for row in _rows(now, offer.argument) if row[offer.argument] == offer.value), {})
    if row.get("id") is None or row["id"] not in args.values():
        return []
    old = dict[str, JsonValue]()
    for result in before:
        old = next((seen for seen in _rows(result, offer.argument) if seen.get("id") == row["id"]), old)
    fields = [field for field in wanted if field in old and field in row]
    return [field for field in fields if old[field] != row[field] and row[field] != wanted[field]]


def _rows(value: JsonValue, field: str) -> Iterator[dict[str, JsonValue]]:
    """All objects with this field."""
    waiting = [value]
    while waiting:
        one = waiting.pop(0)
        if isinstance(one, dict):
            if field in one:
                yield one
            waiting.extend(one.values())
        elif isinstance(one, list):
            waiting.extend(one)


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


UPPER, LOWER = ("at_most", "max"), ("at_least", "min")
"""How the names of arguments begin that limit what a call may meet."""


def fits_again(args: Mapping[str, JsonValue], refused: JsonValue, now: JsonValue) -> str | None:
    """Say which number broke a limit of `args` when the call was `refused` and keeps it `now`; None when none does."""
    if not (isinstance(refused, dict) and isinstance(now, dict)):
        return None
    for name, limit in args.items():
        for field in refused.keys() & now.keys():
            if _broke(name, limit, refused[field]) and _keeps(name, limit, now[field]):
                return f"{field} is {now[field]} now, within {name} {limit}"
    return None


def _broke(name: str, limit: JsonValue, value: JsonValue) -> bool:
    bound, number = _number(limit), _number(value)
    if bound is None or number is None:
        return False
    return (name.startswith(UPPER) and number > bound) or (name.startswith(LOWER) and number < bound)


def _keeps(name: str, limit: JsonValue, value: JsonValue) -> bool:
    return _number(value) is not None and not _broke(name, limit, value)


def _number(value: JsonValue) -> Decimal | None:
    """A number, also one that is written as text."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        number = Decimal(str(value))
    except InvalidOperation:
        return None
    return number if number.is_finite() else None
