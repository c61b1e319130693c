"""Reads the numbers in a text, so that they can be compared by value."""

import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from math import isfinite

from activities.planning.origins.strict import CONNECTORS, ends_at, joins, starts_at

_MAX_BITS = 2_000
_DIGITS = re.compile(r"(?<![a-zA-Z0-9])[0-9]+(?:[.,'\u2019][0-9]+)*")
_READINGS = (  # how a number is written, and which of its characters only group digits
    (re.compile(r"(?:0|[1-9][0-9]*)(?:\.[0-9]+)?"), " "),
    (re.compile(r"[1-9][0-9]{0,2}(?:,[0-9]{3})+(?:\.[0-9]+)?"), ","),
    (re.compile(r"[1-9][0-9]{0,2}(?:'[0-9]{3})+(?:\.[0-9]+)?"), "'"),
    (re.compile(r"[1-9][0-9]{0,2}(?:\.[0-9]{3}){2,}(?:,[0-9]+)?"), "."),
    (re.compile(r"[1-9][0-9]{0,2}(?:\.[0-9]{3})+,[0-9]{1,2}"), "."),
    (re.compile(r"(?:0|[1-9][0-9]*),[0-9]{1,2}"), "."),
)
_GROUP = re.compile(r"[0-9]{3}(?:[.,][0-9]{1,2})?")
_SIGNS, _CURRENCIES = frozenset("-\u2212"), frozenset("$€£¥₹")
_GROUPING_BLANKS = frozenset(" \u00a0\u202f")


def plain_number(value: float) -> str:
    """A number without exponent, grouping and needless zeros; empty if it has no such form."""
    if isinstance(value, int):
        return str(value) if value.bit_length() <= _MAX_BITS else ""
    return _trimmed(format(Decimal(repr(value)), "f")) if isfinite(value) else ""


def _trimmed(text: str) -> str:
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text


def numbers_in(text: str) -> Iterator[str]:
    """Yield the numbers in a text, as `plain_number` writes them. `1.000` is read as 1, `1.000.000` as a million."""
    group, group_end = list[str](), -2  # numbers that may be groups of digits of one number, and where they end
    for found in _DIGITS.finditer(text):
        start, end = found.span()
        has_sign = _has_sign(text, start)
        if end - start > _MAX_BITS or not ends_at(text, end, CONNECTORS) or not (has_sign or starts_at(text, start)):
            continue
        yield from _readings(found[0], has_sign)
        follows = start == group_end + 1 and text[group_end] in _GROUPING_BLANKS and group[-1].isdigit()
        if not (follows and _GROUP.fullmatch(found[0])):
            yield from _grouped(group)
            group = ["-" * has_sign]
        group.append(found[0])
        group_end = end
    yield from _grouped(group)


def _grouped(group: Sequence[str]) -> Iterator[str]:
    """Yield the number that groups of digits after a sign (`-` or empty) make, as in 1 000; nothing for one group."""
    if len(group) > 2 and len(group[1]) <= 3:
        yield from _readings("".join(group[1:]), bool(group[0]))


def _has_sign(text: str, start: int) -> bool:
    """Whether a minus sign stands before a number, as in `-5`, `-$5` and `$-5`."""
    at = start - 1
    if at > 0 and text[at] in _CURRENCIES and text[at - 1] in _SIGNS:
        at -= 1
    return at >= 0 and text[at] in _SIGNS and not joins(text, at - 1, -1, CONNECTORS)


def _readings(digits: str, has_sign: bool) -> Iterator[str]:
    """Yield each value that the digits and separators may stand for, as `plain_number` writes it."""
    if digits.isdecimal():  # most are; a number with leading zeros is an id
        if digits[0] != "0" or digits == "0":
            yield _trimmed("-" * has_sign + digits)
        return
    plain = digits.replace("\u2019", "'")
    for form, grouping in _READINGS:
        if form.fullmatch(plain):
            yield _trimmed("-" * has_sign + plain.replace(grouping, "").replace(",", "."))
