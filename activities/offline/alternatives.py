"""Finds what can be called instead of a rejected call, by three rules that work for every tool.

1. An observation lists other values for an argument: `{"free": ["14:30", "15:00"]}` for `at: "14:00"`.
2. A search that the step refers to found more than one item: the next item may be used.
3. A number that broke a limit is within the limit now, e.g. `price` is 24.00 and `at_most` is 24.50: the same call may
   be made.
"""

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import NamedTuple

from pydantic import JsonValue

from workflows.plans.references import Unresolved, resolve

OFFERING = ("", "free", "available", "open", "wider", "alternatives", "options", "choices", "suggestions")
"""Names of lists whose items may replace an argument; `""` is the name of an observation that is itself a list."""
NOT_OFFERED = ("taken", "busy", "booked", "unavailable", "blocked", "closed", "skipped")
UPPER, LOWER = ("at_most", "max"), ("at_least", "min")  # an argument whose name begins so is a limit
MAX_NUMBER = 10**30
MAX_ITEMS = 100


class Alternative(NamedTuple):
    """A value that may replace one argument of a rejected call."""

    argument: str
    value: JsonValue
    why: str  # why it is chosen, for people: `nearest free alternative 14:30`
    reference: dict[str, JsonValue] | None = None  # what the plan has in place of `value`


def find_alternatives(args: Mapping[str, JsonValue], observed: JsonValue) -> Iterator[Alternative]:
    """Yield the values that lists in the state `observed` offer for one of the rejected call's `args`, the best first.

    A list offers its items for the argument whose value has the same shape as the items (see `shape_of`). The item
    nearest to the argument comes first; of two equally near items, the greater one. Texts and numbers are too common
    for this rule: a list of them counts only if it has the name of the argument, or a name in `OFFERING`.
    """
    lists = [(name, items) for name, items in _lists(observed) if name.lower() not in NOT_OFFERED]
    # First the lists with the name of an argument, then the lists with a name in OFFERING.
    for name, items in sorted(
        lists, key=lambda named_list: (not _namesake(named_list[0], args), named_list[0].lower() not in OFFERING)
    ):
        argument = _replaceable_argument(name, items, args)
        if argument is None:
            continue
        old, shape = args[argument], shape_of(items[0])
        label = f"{name} " if name and name.lower() in OFFERING else ""
        if shape == "text":
            yield from (Alternative(argument, item, f"{label}alternative {str(item)[:80]!r}") for item in items)
        else:
            by_distance = sorted(items, key=lambda item: _distance(old, item))
            yield from (Alternative(argument, item, f"nearest {label}alternative {item}") for item in by_distance)


def are_equally_near(old: JsonValue, candidate: JsonValue, other: JsonValue) -> bool:
    """Whether two values are equally near to `old`, so that no rule can choose one of them; two texts always are."""
    return _distance(old, candidate)[0] == _distance(old, other)[0]


def find_later_items(args: Mapping[str, JsonValue], results: Mapping[str, JsonValue]) -> Iterator[Alternative]:
    """Yield the list items after an item to which `args` refer: for the path `hits.0.text`, `hits.1.text` and so on.

    `results` has the results of the completed steps, by step id.
    """
    for name, value in args.items():
        if not (isinstance(value, dict) and set(value) == {"$from", "path"}):
            continue
        index = re.fullmatch(r"(.*?)(\d+)(\D*)", str(value["path"]))
        source = str(value["$from"])
        if not index or source not in results:
            continue
        with suppress(Unresolved):  # the end of the list
            for number in range(int(index[2]) + 1, MAX_ITEMS):
                reference: dict[str, JsonValue] = {"$from": source, "path": f"{index[1]}{number}{index[3]}"}
                item = resolve(reference, results)
                yield Alternative(name, item, f"{source} found {str(item)[:80]!r} as well", reference)


def limit_kept_now(args: Mapping[str, JsonValue], at_rejection: JsonValue, now: JsonValue) -> str | None:
    """Describe a number that breaks a limit of `args` in the state `at_rejection`, but not in the state `now`.

    None if there is no such number.
    """
    if not (isinstance(at_rejection, dict) and isinstance(now, dict)):
        return None
    for name, limit in args.items():
        for field in at_rejection.keys() & now.keys():
            is_broken = _number(now[field]) is None or _breaks_limit(name, limit, now[field])
            if _breaks_limit(name, limit, at_rejection[field]) and not is_broken:
                return f"{field} is {now[field]} now, within {name} {limit}"
    return None


def fields_changed_meanwhile(
    args: Mapping[str, JsonValue], alternative: Alternative, now: JsonValue, before: Iterable[JsonValue]
) -> list[str]:
    """Name the fields that the call would write and that somebody has changed since they were read.

    `now` is the observed state, which contains the object with the alternative value. The old values are taken from the
    last result in `before` that contains the same object. The list is empty if the object was never read, or if the
    call has no argument with named fields.
    """
    changes = {field: value for part in args.values() if isinstance(part, dict) for field, value in part.items()}
    objects = _objects_with(now, alternative.argument)
    new = next((item for item in objects if item[alternative.argument] == alternative.value), {})
    if new.get("id") is None or new["id"] not in args.values():
        return []
    old = dict[str, JsonValue]()
    for result in before:
        objects = _objects_with(result, alternative.argument)
        old = next((item for item in objects if item.get("id") == new["id"]), old)
    fields = [field for field in changes if field in old and field in new]
    return [field for field in fields if old[field] != new[field] and new[field] != changes[field]]


def _replaceable_argument(name: str, items: Sequence[JsonValue], args: Mapping[str, JsonValue]) -> str | None:
    """The argument that an item of the list could replace; None if there is none."""
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
    """The argument with this name, or with its singular (`slot` for `slots`); None if there is none."""
    return next((argument for argument in args if argument.lower() in (name.lower(), name.lower().rstrip("s"))), None)


def _lists(value: JsonValue) -> Iterator[tuple[str, list[JsonValue]]]:
    """Yield all lists with their names, outer lists first; a list of objects is split into one list for each field."""
    waiting = deque[tuple[str, JsonValue]]([("", value)])
    while waiting:
        name, nested = waiting.popleft()
        if isinstance(nested, dict):
            waiting.extend(nested.items())
        elif isinstance(nested, list) and nested:
            objects = [item for item in nested if isinstance(item, dict)]
            for field in objects[0] if len(objects) == len(nested) else ():
                waiting.append((field, [item[field] for item in objects if field in item]))
            if not objects:
                yield name, nested


def _objects_with(value: JsonValue, field: str) -> Iterator[dict[str, JsonValue]]:
    waiting = [value]
    while waiting:
        nested = waiting.pop(0)
        if isinstance(nested, dict):
            if field in nested:
                yield nested
            waiting.extend(nested.values())
        elif isinstance(nested, list):
            waiting.extend(nested)


_SHAPES = {
    "time": re.compile(r"[0-9]{2}:[0-9]{2}(?::[0-9]{2})?"),
    "date": re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}"),
    "moment": re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}.*"),
    "number": re.compile(r"-?[0-9]{1,30}(?:\.[0-9]{1,30})?"),
    "text": re.compile(r".+", re.DOTALL),
}


def shape_of(value: JsonValue) -> str | None:
    """Classify a value as `time`, `date`, `moment` (date and time), `number` or `text`; None for any other value."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return "number" if abs(value) < MAX_NUMBER else None
    if not isinstance(value, str):
        return None
    for shape, pattern in _SHAPES.items():
        if pattern.fullmatch(value) and (shape == "text" or _position(value, shape) is not None):
            return shape
    return None


def _position(value: JsonValue, shape: str | None) -> Decimal | None:
    """Convert a time, date, moment or number to a number, to compute distances; None if that is not possible."""
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
    """The sort key of an item: its distance from the rejected value `old`, then whether it lies before `old`."""
    here, distant = _position(old, shape_of(old)), _position(item, shape_of(item))
    if here is None or distant is None:
        return Decimal("Infinity"), False
    return abs(distant - here), distant < here


def _breaks_limit(name: str, limit: JsonValue, value: JsonValue) -> bool:
    bound, number = _number(limit), _number(value)
    if bound is None or number is None:
        return False
    return (name.startswith(UPPER) and number > bound) or (name.startswith(LOWER) and number < bound)


def _number(value: JsonValue) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        number = Decimal(str(value))
    except InvalidOperation:
        return None
    return number if number.is_finite() else None
