"""The commands of Replan and their options, as messages name them: those of the checkout, or those of the wheel.

Used whenever a message, a help text or a page says what to type.
"""

import shlex
from typing import Literal, NamedTuple

STARTER, WORKER = (
    ("replan", "replan worker") if __name__.startswith("replan.") else ("python starter.py", "python worker.py")
)


def command(*args: str) -> str:
    """The command of the console with these words, quoted for a shell where a word, such as an id, needs it."""
    return f"{STARTER} {shlex.join(args)}"


def option_of(name: str) -> str:
    """The option of the console for a field: `--tool-calls`."""
    return f"--{name.replace('_', '-')}"


class Option(NamedTuple):
    """Metadata of a field that a person may fill in when answering a request, for the console and for forms."""

    label: str
    """What the value is, or what a switch does; it follows words such as `type`."""
    example: str
    """An example of the value, in JSON."""
    type: Literal["text", "value", "object", "number", "switch"] = "text"
    """How a person types the value: `value` and `object` are JSON."""
    name: str = ""
    """The name of the field; `ChoiceRow.options` sets it."""

    @property
    def is_json(self) -> bool:
        return self.type in ("value", "object")

    @property
    def asks(self) -> str:
        """The words with which a terminal asks for the value."""
        number = f", e.g. +{self.example}" if self.type == "number" else ""
        return self.label + (" as JSON, or @FILE" if self.is_json else number)

    @property
    def metavar(self) -> str:
        """The placeholder of the value in help texts; empty for a switch."""
        return "JSON" if self.is_json else {"text": "TEXT", "number": "+N", "switch": ""}[self.type]

    @property
    def typed(self) -> str:
        """The option as it is typed: `--reason TEXT`."""
        value = f"+{self.example}" if self.type == "number" else self.metavar
        return f"{option_of(self.name)} {value}".rstrip()
