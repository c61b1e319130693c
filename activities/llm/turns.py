"""The turns of a conversation with a model, as no provider writes them and every provider can be told them."""

from dataclasses import dataclass

from pydantic import JsonValue


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
