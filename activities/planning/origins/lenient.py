"""The lenient comparison: it finds a value in any spelling, to show the place to a person. It permits no call."""

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

from activities.planning.origins.numbers import plain_number
from activities.planning.origins.strict import (
    PERCENT,
    PUNYCODE,
    decoded_label,
    is_hidden,
    joined,
    places,
    with_addresses,
)
from activities.providers.untrusted import remove_hidden
from workflows.text import normalized

MAX_QUOTE = 200
MIN_WITHOUT_BOUNDS = 8
"""A value with at least this many characters, without spaces and hyphens, is also found inside longer words."""


class Occurrence(NamedTuple):
    """Where a text shows a value."""

    source: str
    field: int
    """The index of the text."""
    line: int
    """The number of the line, from 1; 0 if the text has only one."""
    column: int
    """How many characters of the line, in the lenient form, stand before the value."""
    is_squeezed: bool
    """Whether `column` does not count spaces and hyphens."""


class Texts:
    """Texts in which values are found although they are written in another way."""

    def __init__(self, texts: Sequence[str], sources: Sequence[str], form: Callable[[str], str]) -> None:
        """`sources` are the sources of the texts in the same order; empty if they do not matter.

        `form` converts texts and values to the form in which they are compared.
        """
        self._texts, self._sources, self._form = texts, sources, form
        self._lines = form(_with_unix_newlines(joined(texts)))
        self._split = dict[int, list[str]]()
        self._ends = dict[tuple[int, int, bool], list[int]]()

    @cached_property
    def _one_line(self) -> str:
        return self._lines.replace("\n", " ")

    @cached_property
    def _squeezed(self) -> str:
        return _without_spaces_and_hyphens(self._lines)

    def find(self, spellings: Sequence[str]) -> Occurrence | None:
        """The first place that shows one of a value's spellings: as a word, else inside longer words, else None."""
        values = [value for text in spellings if (value := self._form(text).replace("\n", " ").strip())]
        for value in values:
            for at, end in places(self._one_line, value):
                if not (self._one_line[at - 1 : at].isalnum() or self._one_line[end : end + 1].isalnum()):
                    return self._occurrence(self._lines, at, is_squeezed=False)
        for value in values:
            short = _without_spaces_and_hyphens(value)
            if len(short) >= MIN_WITHOUT_BOUNDS and (at := self._squeezed.find(short)) >= 0:
                return self._occurrence(self._squeezed, at, is_squeezed=True)
        return None

    def quote(self, occurrence: Occurrence) -> str:
        """The line or sentence of an occurrence, without hidden characters, cut to MAX_QUOTE characters."""
        line = self._line(occurrence)
        if len(line) <= MAX_QUOTE:
            return shown_text(line)
        at = self._offset(occurrence)
        before, after = line[max(0, at - 3 * MAX_QUOTE) : at], line[at : at + 6 * MAX_QUOTE]
        begin = max(before.rfind(mark) for mark in _SENTENCE_ENDS)
        ends = [end for mark in _SENTENCE_ENDS if (end := after.find(mark)) >= 0]
        left = _BLANKS.sub(" ", remove_hidden(before[begin + 2 if begin >= 0 else 0 :]))
        right = shown_text(after[: min(ends) + 1] if ends else after)
        kept = max(MAX_QUOTE - len(right), MAX_QUOTE // 3)
        return (left[-kept:] + right)[:MAX_QUOTE].strip()

    def around(self, occurrence: Occurrence, length: int) -> str:
        """The value of `length` characters at an occurrence in its line, and MAX_QUOTE characters on each side."""
        at = self._offset(occurrence)
        return self._line(occurrence)[max(0, at - MAX_QUOTE) : at + length + MAX_QUOTE]

    def _occurrence(self, text: str, at: int, *, is_squeezed: bool) -> Occurrence:
        field, start = text.count("\0", 0, at), text.rfind("\0", 0, at) + 1
        end = text.find("\0", at)
        is_long = text.find("\n", start, end if end >= 0 else len(text)) >= 0
        line = text.count("\n", start, at) + 1 if is_long else 0
        column = at - max(start, text.rfind("\n", start, at) + 1)
        return Occurrence(self._sources[field] if self._sources else "", field, line, column, is_squeezed)

    def _line(self, occurrence: Occurrence) -> str:
        if occurrence.field not in self._split:
            self._split[occurrence.field] = _with_unix_newlines(self._texts[occurrence.field]).split("\n")
        return self._split[occurrence.field][max(occurrence.line - 1, 0)]

    def _offset(self, occurrence: Occurrence) -> int:
        """The approximate index of an occurrence in its original line, whose lenient form may have another length."""
        line, form = self._line(occurrence), self._form

        def length(text: str) -> int:
            return len(_without_spaces_and_hyphens(form(text)) if occurrence.is_squeezed else form(text))

        key = (occurrence.field, occurrence.line, occurrence.is_squeezed)
        if key not in self._ends:
            pieces = (line[begin : begin + _PIECE] for begin in range(0, len(line), _PIECE))
            self._ends[key] = list(accumulate(map(length, pieces)))
        ends = self._ends[key]
        index = min(bisect_right(ends, occurrence.column), len(ends) - 1)
        piece = line[index * _PIECE : (index + 1) * _PIECE]
        rest = occurrence.column - (ends[index - 1] if index else 0)
        sizes = range(len(piece) + 1)
        return index * _PIECE + bisect_right(sizes, rest, key=lambda size: length(piece[:size])) - 1


_PIECE = 1_000
_SENTENCE_ENDS = (". ", "! ", "? ")
_BLANKS = re.compile(r"\s+")
_INNER_BLANKS = re.compile(r"[^\S\n]+")


def spellings(value: str | float) -> list[str]:
    """The spellings in which a text may show a value, e.g. `1,000.50` for 1000.5; empty if it has no plain form."""
    if isinstance(value, str):
        return list(dict.fromkeys((value, value.partition("://")[2], value.partition("://")[2].rstrip("/"))))
    number = plain_number(value)
    if not number:
        return []
    whole, point, rest = number.partition(".")
    ends = [point + rest, *([f".{rest:0<2}", f",{rest:0<2}"] if len(rest) < 3 else [])]  # as amounts of money are
    grouped = [f"{int(whole):,}".replace(",", sign) + end for sign in (",", ".", " ", "'", "") for end in ends]
    return list(dict.fromkeys((number, repr(value), *grouped)))


def _with_unix_newlines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _without_spaces_and_hyphens(text: str) -> str:
    return text.replace(" ", "").replace("-", "")


def shown_text(text: str) -> str:
    """The text on one line, without hidden characters, cut to MAX_QUOTE characters."""
    return " ".join(remove_hidden(text).split())[:MAX_QUOTE]


# Each of these steps keeps the number of lines and of NULs, which tell the place.


def lenient_form(text: str) -> str:
    """Convert a text to a form in which letters that look alike are the same, and nothing is hidden or escaped."""
    if "%" in text:
        text = PERCENT.sub(_unescaped_wholly, text)
    text = text.lower()
    if "xn--" in text:
        text = PUNYCODE.sub(decoded_label, text)
    if not text.isascii():
        text = normalized("NFKD", normalized("NFKD", text).casefold())
    if changed := {ord(char): shown for char in set(text) if (shown := _lenient_char(char)) != char}:
        text = text.translate(changed)
    text = _INNER_BLANKS.sub(" ", text).replace(" \n", "\n").replace("\n ", "\n")
    return with_addresses(text)


def _unescaped_wholly(escapes: re.Match[str]) -> str:
    text = bytes.fromhex(escapes[0].replace("%", "")).decode(errors="replace")
    return text.replace("\n", " ").replace("\r", " ").replace("\0", " ")


def _lenient_char(char: str) -> str:
    if char.isascii():
        return char if char.isprintable() or char in "\0\n\t\r\v\f" else ""
    category = unicodedata.category(char)
    if category in ("Zl", "Zp") or char == "\x85":
        return " "
    if category == "Pd" or char == "\u2212":
        return "-"
    if category[0] == "M" or is_hidden(char):
        return ""
    return _LIKENESSES.get(char, char)


def look_form(text: str) -> str:
    """Do as `lenient_form`, and also replace digits, `|`, `rn` and `vv` by the letter that they look like."""
    text = lenient_form(text)
    for shown, letter in (("0", "o"), ("1", "l"), ("|", "l"), ("rn", "m"), ("vv", "w")):
        text = text.replace(shown, letter)
    return text


_LIKENESSES = dict(
    zip(
        "авсԁегһіјкӏмнорԛѕтуѵԝхүъ" + "αβεηικνορτυχωγζ" + "ıɑɡɩøłđħŧɛ" + "օոսհցք",  # noqa: RUF001
        "abcderhijklmhopqstyvwxyb" + "abenikvoptuxwyz" + "iagioldhte" + "onuhgf",
        strict=True,
    )
)
"""Small letters that look like a Latin letter, or whose capitals do: Cyrillic, Greek, Latin, Armenian."""
