"""A form: one way to ask for something, and the calls that are meant by it."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from typing import NamedTuple

from pydantic import JsonValue

from activities.llm.clause import unquoted
from activities.llm.forms.noun import Noun


@dataclass(frozen=True)
class It:
    """What an earlier clause brought; with `is_each` the call is made for each of those that did."""

    noun: Noun
    is_each: bool = False


@dataclass(frozen=True)
class Own:
    """What an earlier call of the same clause brings."""

    call: int
    noun: Noun


Value = JsonValue | It | Own


class Wanted(NamedTuple):
    """One call that a clause asks for."""

    kind: str
    id: str
    """The id of its first step."""
    args: Mapping[str, Value]
    title: str
    """May say `{it}` for the title of the step that `it` refers to."""
    is_last: bool = False
    """Whether it waits for the calls of the clause before it."""


Read = Callable[[re.Match[str], date], tuple[Wanted, ...] | None]


@dataclass(frozen=True)
class Form:
    """One way to ask."""

    kinds: tuple[str, ...]
    """What it calls, the kind that it is about last."""
    spelling: str
    """How it is written, for people."""
    example: str
    """A whole task that uses it, with what must stand before it."""
    pattern: re.Pattern[str]
    read: Read
    """The calls of a clause that the pattern fits; None when something in it cannot be read in one way only."""

    @cached_property
    def beginning(self) -> re.Pattern[str]:
        """What fits a text that begins with such a clause and goes on with others."""
        return re.compile(rf"(?:{self.pattern.pattern})(?=\s*(?:[,;.?!\n]|$)|\s+(?:and|then)\b)", self.pattern.flags)


def form(kinds: str, spelling: str, example: str, pattern: str, read: Read) -> Form:
    """Put a form together; `kinds` are names with spaces between them."""
    return Form(tuple(kinds.split()), spelling, example, re.compile(pattern, re.IGNORECASE | re.DOTALL), read)


IT = r"(?:it|that|the\s+result)"
THEM = r"(?:them|these|those|the\s+results)"
QUOTED = r"\"[^\"]+\"|\u201c[^\u201d]+\u201d|'[^']+'"
_WORD = r"[^\s\"'\u201c\u201d,;]+"
NAME = rf"(?:{QUOTED}|{_WORD})"
"""One word, or several in quotation marks."""
FILE = rf"(?:{QUOTED}|(?=\S*[^\s.,;][.\-_/][^\s.,;]){_WORD})"
"""A name that no other word of a sentence looks like: with a dot, a dash, or in quotation marks."""


def it(said: str, noun: Noun) -> It | None:
    """What a pronoun stands for; None when `said` is no pronoun."""
    if re.fullmatch(IT, said, re.IGNORECASE):
        return It(noun)
    return It(noun, is_each=True) if re.fullmatch(THEM, said, re.IGNORECASE) else None


def name_or_it(said: str, noun: Noun) -> JsonValue | It:
    """A name as it was written, or what a pronoun stands for."""
    return it(said, noun) or unquoted(said)


def number_or_it(said: str, noun: Noun) -> JsonValue | It:
    """The number in what was written, or what a pronoun stands for."""
    digits = re.search(r"[0-9]+", said)
    return int(digits.group()) if digits else It(noun, is_each=bool(re.fullmatch(THEM, said, re.IGNORECASE)))
