"""A text as pages: cut into them, with a title and headings, and as much of them as one call of a tool returns."""

import itertools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel

from activities.errors import Refused
from workflows.text import normalized

MAX_TEXT = 20_000  # characters that one call returns
PAGE = 8_000  # characters of a page, in a document without pages of its own
MAX_TITLE = 200
MAX_LINE = 8_000  # characters of a line; a longer line is split


class Page(NamedTuple):
    """One page: a page of a PDF, or a piece of at most about `PAGE` characters of another document."""

    number: int
    line: int  # the number of its first line: 1 in each page of a PDF, else counted in the whole text
    text: str


class Document(NamedTuple):
    """What was read of a document: some or all of its pages."""

    title: str
    pages: Sequence[Page]
    last: int  # the number of the last page that was read
    of: int  # how many pages the document has
    has_headings: bool  # whether lines that begin with # are headings
    notes: Sequence[str] = ()  # what could not be read, and why


def of_text(text: str, *, title: str = "", has_headings: bool, notes: Sequence[str] = ()) -> Document:
    """Make a Document of a whole text, which is cut into pages of at most `PAGE` characters."""
    pages = list(paged(clean(text)))
    return Document(title[:MAX_TITLE], pages, len(pages), len(pages), has_headings, notes)


def clean(text: str) -> str:
    """Normalise a text: NFC, no control characters, no lone surrogates, lines of at most `MAX_LINE` characters."""
    text = normalized("NFC", text.encode(errors="replace").decode())
    text = re.sub(r"[\x00-\x09\x0b-\x1f\x7f]", " ", "\n".join(text.splitlines()))
    # range() takes at least one step, so that an empty line stays.
    pieces = (line[at : at + MAX_LINE] for line in text.split("\n") for at in range(0, max(len(line), 1), MAX_LINE))
    return "\n".join(pieces)


def paged(text: str) -> Iterator[Page]:
    """Split a text at the ends of lines into pages of at most `PAGE` characters; a longer line is a page of its own."""
    number, first, size, lines = 1, 1, 0, list[str]()  # these describe the page that is being filled
    for line in text.split("\n"):
        if lines and size + len(line) > PAGE:
            yield Page(number, first, "\n".join(lines))
            number, first, size, lines = number + 1, first + len(lines), 0, []
        lines.append(line)
        size += len(line) + 1
    yield Page(number, first, "\n".join(lines))


def title_of(name: str, document: Document) -> str:
    """A document's title, else its first heading (or first line, if it has no headings), else the file's name."""
    title = document.title
    if not title and document.has_headings:
        title = next((mark.heading for mark in headings_in(document.pages) if mark.heading), "")
    elif not title:
        title = next(map(first_line, document.pages), "")
    return title[:MAX_TITLE] or Path(name).stem.replace("-", " ").replace("_", " ")


def first_line(page: Page) -> str:
    """The first line of a page with text, as a title; empty if the line is too long or the only one."""
    lines = [line.strip() for line in page.text.split("\n") if line.strip()]
    return lines[0] if len(lines) > 1 and len(lines[0]) <= MAX_TITLE else ""


class Heading(NamedTuple):
    """A heading in Markdown, and where it is."""

    page: int
    number: int  # the index of its line in the page
    level: int
    heading: str


def headings_in(pages: Sequence[Page]) -> Iterator[Heading]:
    """Yield the Markdown headings of the pages; lines of code blocks are no headings."""
    is_code = False
    for page in pages:
        for number, line in enumerate(page.text.split("\n")):
            is_code ^= line.lstrip().startswith(("```", "~~~"))
            level = len(line) - len(line.lstrip("#"))
            if not is_code and 1 <= level <= 6 and line[level:].startswith((" ", "\t")):
                yield Heading(page.number, number, level, line.strip("# \t")[:MAX_TITLE])


class DocumentText(BaseModel):
    """The text of some pages of a document: as many as one call of a tool returns."""

    name: str
    title: str
    text: str
    first: int
    last: int
    pages: int
    left_out: str | None = None
    """Which parts of the document from page `first` on are missing from `text`, and how to read them; None if no part
    is missing."""

    @classmethod
    def of(cls, name: str, text: str, *, title: str, page: int = 1) -> "DocumentText":
        """Return the pages from `page` on of a Markdown text that is not in a file."""
        return excerpt(name, of_text(text, title=title, has_headings=True), page)


def excerpt(name: str, document: Document, first: int) -> DocumentText:
    """Join as many pages from `first` on as one call may return; `left_out` of the result names the missing parts.

    Raises:
        Refused: there is no text on these pages.
    """
    pages = [page for page in document.pages if page.number >= first]
    if not pages:
        why = "; ".join(document.notes) if first <= document.of else f"it has {document.of} pages and no page {first}"
        reason = f"There is nothing to read on page {first} of {name} ({why}): begin with another page."
        raise Refused(reason, code="invalid_input", observed={"pages": document.of})
    sizes = itertools.accumulate(len(page.text) + 1 for page in pages)
    shown = [page for page, size in zip(pages, sizes, strict=True) if size <= MAX_TEXT] or pages[:1]
    text, last = "\n".join(page.text for page in shown), shown[-1].number
    left_out = [*document.notes]
    if len(text) > MAX_TEXT:
        left_out.append(f"the rest of page {last}, which is too long to be shown")
    if last < document.of:
        left_out.append(f"pages {last + 1} to {document.of}: call again with page {last + 1}")
    return DocumentText(
        name=name,
        title=title_of(name, document),
        text=text[:MAX_TEXT],
        first=shown[0].number,
        last=last,
        pages=document.of,
        left_out="; ".join(left_out) or None,
    )
