"""Calls that may be made again because the world moved back: what broke a limit keeps it now."""

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation

from pydantic import JsonValue

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
