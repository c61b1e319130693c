"""The commands that the console names."""

from client.text import printable
from workflows.commands import command


def starter(*args: str) -> str:
    """The command of the console with these words, quoted for a shell, without control characters."""
    return printable(command(*args))
