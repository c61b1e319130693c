"""The commands that the console names."""

from client.text import printable
from workflows.commands import command


def starter(*words: str) -> str:
    """The command of the console with these words, quoted for a shell, without control characters."""
    return printable(command(*words))
