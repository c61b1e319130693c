"""Command lines that are shown to be copied, and names."""

import shlex

from console.cells import printable
from workflows.task import rollback_id as rollback_id  # for all who show it


def starter(*words: str) -> str:
    """`python starter.py WORDS`, quoted for a shell where a word, such as an id, needs it."""
    return printable(f"python starter.py {shlex.join(words)}")


ROLLBACK_OF = "origin"
"""The memo of a rollback: the first run of the task that it undoes."""
