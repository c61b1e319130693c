"""The commands of Replan and their options, as messages name them: those of the checkout, or those of the wheel."""

import shlex
from typing import Literal, NamedTuple

STARTER, WORKER = (
    ("replan", "replan worker") if __name__.startswith("replan.") else ("python starter.py", "python worker.py")
)


def command(*words: str) -> str:
    """The command of the console with these words, quoted for a shell where a word, such as an id, needs it."""
    return f"{STARTER} {shlex.join(words)}"


def option_of(name: str) -> str:
    """The option of the console for a field: `--tool-calls`."""
    return f"--{name.replace('_', '-')}"


class Option(NamedTuple):
    """What may be said with an answer: the metadata of a field of what is sent, for the console and for forms."""

    label: str
    """What it is, or what a switch does, after words such as `type`."""
    example: str
    """Its value in JSON."""
    type: Literal["text", "value", "object", "number", "switch"] = "text"
    """How it is typed: `value` and `object` are JSON."""
    name: str = ""
    """The name of its field."""

    @property
    def is_json(self) -> bool:
        return self.type in ("value", "object")

    @property
    def asks(self) -> str:
        """What a person at a terminal is asked for."""
        number = f", e.g. +{self.example}" if self.type == "number" else ""
        return self.label + (" as JSON, or @FILE" if self.is_json else number)

    @property
    def metavar(self) -> str:
        """What stands for its value in help; empty for a switch."""
        return "JSON" if self.is_json else {"text": "TEXT", "number": "+N", "switch": ""}[self.type]

    @property
    def typed(self) -> str:
        """The option as it is typed: `--reason TEXT`."""
        value = f"+{self.example}" if self.type == "number" else self.metavar
        return f"{option_of(self.name)} {value}".rstrip()
