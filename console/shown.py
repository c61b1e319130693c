"""Command lines that are shown to be copied, and names."""

import shlex

from console.cells import printable


def starter(*words: str) -> str:
    """`python starter.py WORDS`, quoted for a shell where a word, such as an id, needs it."""
    return printable(f"python starter.py {shlex.join(words)}")


ROLLBACK_OF = "origin"
"""The memo of a rollback: the first run of the task that it undoes."""


COVERS_ALL_RUNS = "covers_all_runs"
"""The memo of a rollback that knows what earlier runs of the task did, before a reset."""


def rollback_id(task: str) -> str:
    """The id of the workflow that undoes a closed task."""
    return f"undo-{task}"


def reset_rollback_id(task: str) -> str:
    """The id of the workflow that undoes, before a reset, what would be planned anew."""
    return f"undo-before-reset-{task}"
