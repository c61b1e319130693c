"""Text in a terminal's cells: foreign text made harmless, cut, padded and wrapped by the room that it takes."""

import re
from collections.abc import Iterator

from rich.cells import cell_len, chop_cells, set_cell_size

_LABEL = re.compile(r"\w+ \d+  ")
"""`Plan 2  because ...`: the rest hangs behind the label."""


def printable(text: str) -> str:
    """The same length without what moves the cursor, rings, colours or turns text round."""
    return "".join(char if char.isprintable() else " " for char in text)


def one_line(text: str) -> str:
    """Foreign text without line breaks and control characters, so that it cannot draw on the terminal."""
    return " ".join(printable(text).split())


def cut(text: str, width: int) -> str:
    """Text in at most `width` cells, with an ellipsis where something is missing."""
    return text if cell_len(text) <= width else set_cell_size(text, max(width - 1, 0)).rstrip() + "…"


def pad(text: str, width: int) -> str:
    """Text with blanks behind it up to `width` cells; wide letters count twice."""
    return text + " " * (width - cell_len(text))


def wrapped(line: str, width: int) -> str:
    """A line cut into rows of `width` cells between words, the later ones below the beginning of the first.

    An address is never cut; text in wide letters, which knows no blanks, is.
    """
    if cell_len(line) <= width:
        return line
    indent = _indent(line, width)
    rows = [""]
    for word in _words(line, width - len(indent)):
        if rows[-1].strip() and cell_len(rows[-1] + word) > width:
            rows.append(indent + word.lstrip())
        else:
            rows[-1] += word
    return "\n".join(row.rstrip() for row in rows)


def rows(line: str, width: int) -> int:
    """How many rows a terminal of this width needs for a line."""
    return max(1, -(-cell_len(line) // width))


def _indent(line: str, width: int) -> str:
    label = _LABEL.match(line)
    return " " * (label.end() if label and label.end() <= width * 2 // 3 else len(line) - len(line.lstrip()))


def _words(line: str, room: int) -> Iterator[str]:
    for blanks, word in re.findall(r"(\s*)(\S+)", line):
        if cell_len(word) > max(room, len(word)):
            first, *rest = chop_cells(word, max(room, 2))
            yield blanks + first
            yield from rest
        else:
            yield blanks + word
