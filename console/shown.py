"""Command lines that are shown to be copied."""

import shlex

from console.cells import printable


def starter(*words: str) -> str:
    """`python starter.py WORDS`, quoted for a shell where a word, such as an id, needs it."""
    return printable(f"python starter.py {shlex.join(words)}")
