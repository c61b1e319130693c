"""What a model says in a test, whoever the provider is; and what goes wrong instead."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from activities.llm.proposal_schema import ASK, FINISH, GIVE_UP, PROPOSE


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

DROPPED = Raw(b"")
"""The connection is closed without a word."""


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
