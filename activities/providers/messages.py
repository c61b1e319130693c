"""The protocol of all models here: one request in, one reply out, whichever provider answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from pydantic import JsonValue

from workflows.spending import MAX_OUTPUT


class LanguageModel(Protocol):
    """A model of one provider."""

    @property
    def name(self) -> str:
        """The full name: `provider:MODEL`, with `@HOST` if the server is not the provider's own."""

    async def reply(self, request: "Request") -> "Reply":
        """Ask once: one request on the wire, never a second one, ended when the caller is cancelled.

        Raises:
            Exception: what the provider's SDK raises, for the tables of `activities.borders`; or a ToolError.
        """


# The transcript stores turns, calls, results and usage as JSON: the names of their fields must stay.


@dataclass(frozen=True)
class ToolCall:
    id: str
    """The provider's id, which pairs call and result; a compatible server may repeat ids over turns."""
    name: str
    args: dict[str, JsonValue]
    broken: str = ""
    """Why the arguments are no JSON object, and `args` is empty; an empty text if they are a JSON object."""


@dataclass(frozen=True)
class ToolResult:
    """The result of a tool call, as the model is told it."""

    call_id: str
    text: str
    is_error: bool = False


@dataclass(frozen=True)
class UserTurn:
    """What a model is told: first the results of all calls of the turn before, in their order, then text."""

    text: str = ""
    results: tuple[ToolResult, ...] = ()


@dataclass(frozen=True)
class AssistantTurn:
    """What a model says: text, calls, or both."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    blocks: tuple[dict[str, JsonValue], ...] = ()
    """The turn as the provider wrote it, if the same model must get it back unchanged; else empty."""
    by: str = ""
    """The full name of the model."""


Turn = UserTurn | AssistantTurn


class StopReason(StrEnum):
    DONE = "done"
    """The model finished its reply, or wrote a stop sequence."""
    CALLS = "calls"
    """The model waits for the results of its calls."""
    CUT = "cut"
    """The reply reached its token limit, or filled the model's window; the end of the reply is lost."""
    REFUSED = "refused"
    """The model declined, or a filter held its reply back."""


@dataclass(frozen=True)
class Usage:
    """Tokens of one request and its reply, as the provider counts them; no token is in two fields."""

    input: int = 0
    """Input that was neither read from the provider's cache nor written to it."""
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0

    @property
    def tokens(self) -> int:
        return self.input + self.output + self.cache_read + self.cache_write


@dataclass(frozen=True)
class Reply:
    """A model's reply to one request."""

    turn: AssistantTurn
    usage: Usage
    stop: StopReason


@dataclass(frozen=True)
class ToolDefinition:
    name: str
    description: str
    schema: Mapping[str, Any]
    """The JSON schema of its arguments."""


@dataclass(frozen=True)
class Request:
    """Everything that a model is told."""

    system: str
    tools: Sequence[ToolDefinition]
    """Empty if the model shall answer with text only."""
    turns: Sequence[Turn]
    """The first and the last turn are user turns; each result belongs to a call of the turn before its own."""
    max_output: int = MAX_OUTPUT
    """The limit of the reply, in tokens."""
    may_call: bool = True
    """Whether the model may call the tools; if not, they are listed because earlier turns called them."""
    skip_cache: bool = False
    """True if no later request begins like this one: the provider then need not cache the request."""
