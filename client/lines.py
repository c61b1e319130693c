"""Lines of text for people, of which a part may have a style, and how they are wrapped.

Used whenever a command prints to a terminal, and each time that a live view is drawn.
"""

import re
from collections.abc import Iterator
from typing import Self

from rich.cells import cell_len, chop_cells

from client.text import cut

_LABEL = re.compile(r"\w+ \d+  ")
"""Matches the label of a line such as `Plan 2  because ...`; the next rows are indented to the text after the label."""


def pad(text: str, width: int) -> str:
    """The text with blanks added up to `width` cells."""
    return text + " " * (width - cell_len(text))


class Line(str):
    """A line of text of which one part, from `start` to `end`, has a style of rich, such as "bold green"."""

    style: str
    start: int
    end: int

    def __new__(cls, text: str, style: str = "", start: int = 0, end: int | None = None) -> Self:
        """Without `end`, the styled part goes to the end of the text."""
        line = super().__new__(cls, text)
        line.style, line.start, line.end = style, start, len(text) if end is None else end
        return line

    def resized(self, text: str) -> "Line":
        """A Line with another text, such as the beginning of this text; the same part is styled, if it still exists."""
        return Line(text, self.style, self.start, min(self.end, len(text)))


def signed(sign: str, text: str, style: str) -> Line:
    """A line such as `  ✓ text`, with a coloured sign."""
    return Line(f"  {sign} {text}", style, 2, 2 + len(sign))


def cut_line(line: str, width: int) -> str:
    """The line in at most `width` cells, with an ellipsis if it was cut; a Line keeps its style."""
    shorter = cut(line, width)
    return line.resized(shorter) if isinstance(line, Line) else shorter


def wrap(line: str, width: int) -> list[str]:
    """Break a line between words into rows of at most `width` cells; only the first row keeps the style of the line."""
    if cell_len(line) <= width:
        return [line]
    # Behind a long label, on a narrow terminal, too little room would be left.
    label = _LABEL.match(line)
    indent = " " * (label.end() if label and label.end() <= width * 2 // 3 else len(line) - len(line.lstrip()))
    rows = [""]
    for word in _pieces_that_fit(line, width - len(indent)):
        if rows[-1].strip() and cell_len(rows[-1] + word) > width:
            rows.append(indent + word.lstrip())
        else:
            rows[-1] += word
    first, *rest = (row.rstrip() for row in rows)
    return [line.resized(first) if isinstance(line, Line) else first, *rest]


def _pieces_that_fit(line: str, width: int) -> Iterator[str]:
    for blanks, word in re.findall(r"(\s*)(\S+)", line):
        if cell_len(word) > max(width, len(word)):  # wide letters, as in Chinese; a URL is never broken
            first, *rest = chop_cells(word, max(width, 2))
            yield blanks + first
            yield from rest
        else:
            yield blanks + word
