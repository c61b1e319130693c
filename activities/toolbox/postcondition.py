"""What a tool ensures: a condition over its arguments and its result, e.g. `ensure="result.amount == args.amount"`.

An answer can have the promised shape and still be a lie: a charge of another amount, a booking for another day.
"""

from collections import deque
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from pydantic import JsonValue

from activities.toolbox.comparison import Type
from activities.toolbox.condition import Condition, Undecided
from activities.toolbox.expression import Unreadable
from activities.toolbox.fields import Fields, NoField

SHOWN = 100
"""Characters of a condition that a message about its mistakes repeats."""


def mistakes(name: str, ensure: object, args: Any, result: Any) -> list[str]:
    """Say in one sentence per mistake what is wrong with what a tool ensures; `args` and `result` are annotations."""
    if ensure is None:
        return []
    shown = f"{name}: ensure={ensure!r:.{SHOWN}}"
    if not isinstance(ensure, str):
        return [f"{shown} must be a condition in quotes, e.g. 'result.amount == args.amount'."]
    try:
        condition = Condition.read(ensure)
        types, wrong = _look_up(name, condition, {"args": Fields.of(args), "result": Fields.of(result)})
        if not wrong:
            condition.check(types)
    except Unreadable as unreadable:
        return [f"{shown} is no condition: {_inside(unreadable)}"]
    if not wrong and not any(_root(dotted) == "result" for dotted in condition.names):
        wrong.append(f"{shown} says nothing of the result: compare something of it, e.g. result.id != none.")
    return wrong


def broken(kind: str, condition: Condition, values: Mapping[str, Any]) -> str | None:
    """Why what a tool returned is not what it ensures, in a sentence of ours; None when it is."""
    try:
        if condition.holds(values):
            return None
    except Undecided as why:
        return f"It cannot be said whether what {kind} returned keeps {condition.source!r}: {_inside(why)}"
    return f"What {kind} returned breaks {condition.source!r}: do not rely on it, plan anew from what was observed."


def seen(dump: Callable[..., Any]) -> Any:
    """What a condition sees of the value that pydantic's `dump` writes: JSON under the names of the fields, but with
    decimals as numbers, since 24.5 and 24.50 are two texts.
    """
    return _exact(dump(mode="json", by_alias=False, warnings=False), dump(by_alias=False, warnings=False))


def _exact(written: JsonValue, value: Any) -> Any:
    match written, value:
        case str(), Decimal():
            return value
        case dict(), Mapping() if len(written) == len(value):
            return {name: _exact(item, one) for (name, item), one in zip(written.items(), value.values(), strict=True)}
        case list(), list() | tuple() | set() | frozenset() | deque() if len(written) == len(value):
            return [_exact(item, one) for item, one in zip(written, value, strict=True)]
        case _:
            return written


def _look_up(
    name: str, condition: Condition, known: Mapping[str, Fields]
) -> tuple[Mapping[str, Type | None], list[str]]:
    types, wrong = dict[str, Type | None](), list[str]()
    for dotted in condition.names:
        if _root(dotted) not in known:
            wrong.append(f"{name}: ensure reads {dotted!r}: write {' or '.join(f'{root}.{dotted}' for root in known)}.")
            continue
        try:
            types[dotted] = known[_root(dotted)].type(dotted)
        except NoField as missing:
            wrong.append(f"{name}: ensure reads {dotted!r}{missing}.")
    return types, wrong


def _root(dotted: str) -> str:
    return dotted.partition(".")[0]


def _inside(sentence: object) -> str:
    """A sentence as the end of another."""
    return f"{str(sentence)[:1].lower()}{str(sentence)[1:]}"
