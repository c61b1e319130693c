"""What to do about a problem, as data: each door, such as the console or the HTTP API, says it in its own words.

Made with a Problem or a sentence of an explanation; put into words when the door writes it.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from string import Formatter
from typing import Literal, Self

from client.text import printable, worker
from workflows.commands import STARTER, command, option_of

ActionOnTask = Literal["answer", "cancel", "effects", "explain", "reset", "show", "undo"]
Action = ActionOnTask | Literal["breakers", "doctor", "incidents", "list", "start", "worker"]


@dataclass(frozen=True)
class Remedy:
    """One thing to do: `Remedy("reset", "order-1", {"to": "book"})`.

    It is a part of a `Text`. Each door has other words for it: the console a command to copy, the HTTP API a request,
    the page a place on it, a program a method of the client.
    """

    action: Action
    """A command of the console; `worker` starts a worker."""
    task: str = ""
    """The id of the task that it is about; empty if it is about none."""
    arguments: Mapping[str, str | bool] = field(default_factory=dict)
    """By the name of an option, its value; True for a switch."""


def start_worker(queue: str) -> Remedy:
    return Remedy("worker", arguments={"queue": queue})


@dataclass(frozen=True)
class Argument:
    """The name of something that the reader may give, such as `on_escalation`, with a value if it needs one."""

    name: str
    value: str | bool | None = None


Part = str | Remedy | Argument
Door = Callable[[Remedy | Argument], str]
"""Says a remedy or an argument in the words of its readers."""


class Text(str):
    """A text of which some parts are remedies and arguments; as a str, it is in words for a program (`in_python`)."""

    parts: tuple[Part, ...]

    def __new__(cls, *parts: Part) -> Self:
        """Join the parts; the parts of a Text among them are taken in its place."""
        flat = [piece for part in parts for piece in (part.parts if isinstance(part, Text) else (part,))]
        text = super().__new__(cls, _joined(flat, in_python))
        text.parts = tuple(flat)
        return text

    @classmethod
    def of(cls, template: str, **parts: Part) -> Self:
        """Replace each `{name}` by that part, else by an Argument of that name; `{plan:FILE}` gives it a value."""
        pieces: list[Part] = []
        for before, name, value, _ in Formatter().parse(template):
            pieces.append(before)
            if name is not None:
                pieces.append(parts[name] if name in parts else Argument(name, value or None))
        return cls(*pieces)

    @property
    def remedies(self) -> tuple[Remedy, ...]:
        return tuple(part for part in self.parts if isinstance(part, Remedy))


def render(text: str, door: Door) -> str:
    """The text in the words of a door; a plain str is the same at each door."""
    return _joined(text.parts, door) if isinstance(text, Text) else text


def _joined(parts: Iterable[Part], door: Door) -> str:
    return "".join(part if isinstance(part, str) else door(part) for part in parts)


def as_command(part: Remedy | Argument) -> str:
    """As the console says it: `python starter.py reset order-1 --to book` in backticks, and `--again`."""
    if isinstance(part, Argument):
        return " ".join(_option(part.name, True if part.value is None else part.value))
    if part.action == "worker":
        return f"`{worker(str(part.arguments['queue']))}`"
    if part.action == "start":
        return f'`{STARTER} --task "..."`'
    options = [word for name, value in part.arguments.items() for word in _option(name, value)]
    return f"`{printable(command(part.action, *filter(None, [part.task]), *options))}`"


def _option(name: str, value: str | bool) -> list[str]:
    if name == "fate":
        return [option_of(str(value))]
    return [option_of(name), *([] if value is True else [str(value)])]


def in_python(part: Remedy | Argument) -> str:
    """As a program says it: the method of the client in backticks, or the command of what only an operator can do."""
    if isinstance(part, Argument):
        if part.value is None:
            return part.name
        value = part.value if isinstance(part.value, bool) else str(part.value)  # the repr of a StrEnum is no Python
        return f"{part.name}={value!r}"
    if part.action in ("breakers", "doctor", "worker"):
        return as_command(part)
    if not part.task:
        return f"`Client.{part.action}()`"
    method = "follow" if part.arguments.get("follow") else _METHODS.get(part.action, part.action)
    arguments = ", ".join(f"{name}={value!r}" for name, value in part.arguments.items() if name != "follow")
    return f"`TaskHandle.{method}({arguments})` of {part.task!r}"


_METHODS: Mapping[Action, str] = {"answer": "requests", "show": "outcome"}
"""The methods of a TaskHandle that have another name than the command."""
