"""What is said of one code, and how it is set in Markdown."""

import textwrap
from typing import NamedTuple

WIDTH = 120


class Entry(NamedTuple):
    """One code for people."""

    means: str
    do: str


def filled(text: str, indent: str = "") -> str:
    """A paragraph; in a list, the lines after the first begin with `indent`."""
    return textwrap.fill(text, WIDTH, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False)


def cell(text: str) -> str:
    """A text that may stand in a table."""
    return text.replace("|", "\\|")
