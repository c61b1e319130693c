"""A document as pages of plain text, whatever kind of file it comes from."""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import NamedTuple

PAGE = 8_000
"""Characters of a page of a text that has no pages of its own."""
MAX_TITLE = 200
MAX_LINE = 8_000
"""Characters of a line; a longer one is broken."""


class Unreadable(Exception):
    """A document cannot be read; says why in a few words: "it is encrypted"."""


class Page(NamedTuple):
    """One page: of a PDF its own, of other documents a piece of convenient length."""

    number: int
    """From 1."""
    line: int
    """The number of its first line: from 1 in each page of a PDF, else in the whole text."""
    text: str


class Document(NamedTuple):
    """What was read of a document."""

    title: str
    """Its own title, or nothing."""
    pages: Sequence[Page]
    last: int
    """The number of the last page that was looked at."""
    of: int
    """How many pages there are."""
    has_headings: bool
    """Whether lines that begin with # are headings."""
    notes: Sequence[str] = ()
    """What could not be read of it."""


def of_text(text: str, *, title: str = "", has_headings: bool, notes: Sequence[str] = ()) -> Document:
    """Make a document of a text that has no pages of its own."""
    pages = list(paged(clean(text)))
    return Document(title[:MAX_TITLE], pages, len(pages), len(pages), has_headings, notes)


def clean(text: str) -> str:
    """Text of one spelling, without control characters and halves of characters, in lines of bounded length."""
    text = unicodedata.normalize("NFC", text.encode(errors="replace").decode())
    text = re.sub(r"[\x00-\x09\x0b-\x1f\x7f]", " ", "\n".join(text.splitlines()))
    return "\n".join(piece for line in text.split("\n") for piece in _pieces(line))


def paged(text: str) -> Iterator[Page]:
    """Cut a clean text into pages of whole lines."""
    number, first, size, lines = 1, 1, 0, list[str]()  # of the page that is being filled
    for line in text.split("\n"):
        if lines and size + len(line) > PAGE:
            yield Page(number, first, "\n".join(lines))
            number, first, size, lines = number + 1, first + len(lines), 0, []
        lines.append(line)
        size += len(line) + 1
    yield Page(number, first, "\n".join(lines))


def _pieces(line: str) -> Iterator[str]:
    yield from (line[start : start + MAX_LINE] for start in range(0, max(len(line), 1), MAX_LINE))
