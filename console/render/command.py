"""The commands that the console names."""

from client.text import printable
from workflows.commands import command


def starter(*words: str) -> str:
    """The command with these words, to copy."""
    return printable(command(*words))
