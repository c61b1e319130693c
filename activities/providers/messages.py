"""The protocol that every model speaks here: one request in, one reply out, whoever the provider is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from pydantic import JsonValue

from workflows.spending import MAX_OUTPUT


@dataclass(frozen=True)
class ToolCall:
    """A call that a model makes."""

    id: str
    """The provider's, by which the result is paired; a compatible server may repeat ids over turns."""
    name: str
    args: dict[str, JsonValue]
    broken: str = ""
    """What is wrong with the arguments as they were written, where they are no JSON object; `args` is then empty."""


@dataclass(frozen=True)
class ToolResult:
    """What became of a call."""

    call_id: str
    text: str
    is_error: bool = False


@dataclass(frozen=True)
class UserTurn:
    """What a model is told: the results of all calls of the turn before, in their order, then words."""

    text: str = ""
    results: tuple[ToolResult, ...] = ()


@dataclass(frozen=True)
class AssistantTurn:
    """What a model says: words, calls, or both."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    blocks: tuple[dict[str, JsonValue], ...] = ()
    """The turn as the provider wrote it, which the same model is to be sent unchanged; empty where it does not care."""
    by: str = ""
    """The model that said it."""


Turn = UserTurn | AssistantTurn


class Stop(StrEnum):
    """Why a model stopped."""

    DONE = "done"
    """It had no more to say, or met a stop sequence."""
    CALLS = "calls"
    """It waits for the results of its calls."""
    CUT = "cut"
    """The reply, or what the model can hold at once, was used up: what it was about to say is lost."""
    REFUSED = "refused"
    """It declined, or a filter kept its answer back."""


@dataclass(frozen=True)
class Usage:
    """Tokens of one reply, as the provider counts them; the four are disjoint."""

    input: int = 0
    """Read at the full price."""
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0

    @property
    def tokens(self) -> int:
        """All of them."""
        return self.input + self.output + self.cache_read + self.cache_write


@dataclass(frozen=True)
class Reply:
    """One answer."""

    turn: AssistantTurn
    usage: Usage
    stop: Stop


__all__ = ["MAX_OUTPUT", "LanguageModel", "Offer", "Request"]


@dataclass(frozen=True)
class Offer:
    """A tool that the model may call."""

    name: str
    description: str
    schema: Mapping[str, Any]
    """The JSON schema of its arguments."""


@dataclass(frozen=True)
class Request:
    """Everything that a model is told."""

    system: str
    offers: Sequence[Offer]
    """None where the model has only to say something."""
    turns: Sequence[Turn]
    """The first and the last are the user's; each result belongs to a call of the turn before it."""
    max_output: int = MAX_OUTPUT
    """Tokens."""
    may_call: bool = True
    """Whether it may call what is offered; where not, the offers still belong to the calls of earlier turns."""
    is_once: bool = False
    """Whether no other request begins with this one, so that no cache needs to keep it."""


class LanguageModel(Protocol):
    """A model of one provider."""

    @property
    def name(self) -> str:
        """How people call it: `provider:MODEL`, with `@HOST` where the server is not the provider's own."""

    async def reply(self, request: Request) -> Reply:
        """Ask once: one request on the wire, never a second one, ended when the caller is cancelled.

        Raises:
            Exception: what the provider's SDK raises, for the tables of `activities.borders`; or a ToolError.
        """
