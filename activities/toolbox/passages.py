"""Passages: a document cut at its headings and its pages, each piece with its place."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from activities.toolbox.document import MAX_TITLE, Document, Page


class Passage(NamedTuple):
    """What stands below one heading on one page."""

    page: int | None
    """The page's number; None where there is only one."""
    line: int
    """The line on which `body` begins, counted as `Page.line` is."""
    above: str
    """The headings above its own, from the document's on."""
    heading: str
    body: str


def passages(name: str, document: Document) -> list[Passage]:
    """Cut a document; pieces without words are left out."""
    title = title_of(name, document)
    cut = _by_headings(document.pages, title) if document.has_headings else _as_one(document.pages, title)
    alone = document.of == 1
    return [passage._replace(page=None) if alone else passage for passage in cut if passage.body.strip()]


def title_of(name: str, document: Document) -> str:
    """A document's own title, else its first heading or, where it has none, its first line, else the file's name."""
    title = document.title
    if not title and document.has_headings:
        title = next((mark.heading for mark in _marks(document.pages) if mark.heading), "")
    elif not title:
        title = next(map(_first_line, document.pages), "")
    return title[:MAX_TITLE] or Path(name).stem.replace("-", " ").replace("_", " ")


def _as_one(pages: Sequence[Page], title: str) -> Iterator[Passage]:
    for page in pages:
        lines = page.text.split("\n")
        first = next((number for number, line in enumerate(lines) if line.strip()), 0)
        yield _passage(page, lines, first + (_first_line(page) == title), len(lines), [title])


def _first_line(page: Page) -> str:
    """The first line with words, when it can be a title and is not all that there is."""
    lines = [line.strip() for line in page.text.split("\n") if line.strip()]
    return lines[0] if len(lines) > 1 and len(lines[0]) <= MAX_TITLE else ""


def _by_headings(pages: Sequence[Page], title: str) -> Iterator[Passage]:
    trail, marks = list[_Mark](), {page: list(found) for page, found in groupby(_marks(pages), lambda mark: mark.page)}
    for page in pages:
        lines, start = page.text.split("\n"), 0
        for mark in marks.get(page.number, []):
            yield _passage(page, lines, start, mark.number, [above.heading for above in trail] or [title])
            trail = [*(above for above in trail if above.level < mark.level), mark]
            start = mark.number + 1
        yield _passage(page, lines, start, len(lines), [above.heading for above in trail] or [title])


class _Mark(NamedTuple):
    page: int
    number: int
    level: int
    heading: str


def _marks(pages: Sequence[Page]) -> Iterator[_Mark]:
    """The lines that are headings, in order."""
    is_code = False
    for page in pages:
        for number, line in enumerate(page.text.split("\n")):
            is_code ^= line.lstrip().startswith(("```", "~~~"))
            level = len(line) - len(line.lstrip("#"))
            if not is_code and 1 <= level <= 6 and line[level:].startswith((" ", "\t")):
                yield _Mark(page.number, number, level, line.strip("# \t")[:MAX_TITLE])


def _passage(page: Page, lines: list[str], start: int, end: int, trail: list[str]) -> Passage:
    while start < end and not lines[start].strip():
        start += 1
    *above, heading = trail
    return Passage(page.number, page.line + start, " > ".join(above), heading, "\n".join(lines[start:end]))
