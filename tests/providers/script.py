"""What a model says in a test, whoever the provider is; and what goes wrong instead."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from activities.llm.ends import ASK, FINISH, GIVE_UP, PROPOSE
from tests.providers.heard import Heard


@dataclass(frozen=True)
class Call:
    """One call of a tool."""

    name: str
    args: Mapping[str, Any] | str
    """As an object, or as the text that a model wrote where OpenAI's protocol carries text."""


@dataclass(frozen=True)
class Says:
    """A reply of the model, with status 200."""

    calls: tuple[Call, ...] = ()
    text: str = ""
    stop: str | None = None
    """The provider's own word; None for the usual one."""
    refusal: str | None = None
    thinking: str = ""
    """What it thought before, where the provider shows that: it may come back as it was, or not at all."""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Fails:
    """An error of the provider, in its own shape."""

    status: int
    type: str
    message: str = "no"
    code: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Raw:
    """Bytes instead of an answer."""

    sent: bytes


@dataclass(frozen=True)
class Slow:
    """An answer that comes later, or never while somebody waits."""

    seconds: float
    then: "Move" = Raw(b"")


Move = Says | Fails | Raw | Slow
Scripted = Move | Callable[[Heard], Move]
"""A move, or a model that looks at what it is told and then makes one."""

DROPPED = Raw(b"")
"""The connection is closed without a word."""


def calls(*made: Call, text: str = "") -> Says:
    """Calls of the kinds themselves, all in one turn."""
    return Says(made, text=text)


def step(id: str, kind: str, *needs: str, **args: Any) -> dict[str, Any]:
    """A step as a model writes it."""
    return {"id": id, "kind": kind, "args": args, **({"needs": list(needs)} if needs else {})}


def proposes(*steps: Mapping[str, Any]) -> Says:
    """A plan."""
    return Says((Call(PROPOSE, {"steps": list(steps)}),))


def finishes(result: str = "done") -> Says:
    """The answer."""
    return Says((Call(FINISH, {"result": result}),))


def asks(question: str) -> Says:
    """A question."""
    return Says((Call(ASK, {"question": question}),))


def gives_up(reason: str) -> Says:
    """The end without an answer."""
    return Says((Call(GIVE_UP, {"reason": reason}),))
