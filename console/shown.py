"""Command lines that are shown to be copied, and names."""

import shlex

from console.cells import printable
from workflows.ids import reset_rollback_id as reset_rollback_id  # for all who show it
from workflows.ids import rollback_id as rollback_id


def starter(*words: str) -> str:
    """`python starter.py WORDS`, quoted for a shell where a word, such as an id, needs it."""
    return printable(f"python starter.py {shlex.join(words)}")


ROLLBACK_OF = "origin"
"""The memo of a rollback: the first run of the task that it undoes."""


COVERS_ALL_RUNS = "covers_all_runs"
"""The memo of a rollback that knows what earlier runs of the task did, before a reset."""
