"""The protocol that every model speaks here: one request in, one reply out, whoever the provider is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from activities.llm.reply import Reply
from activities.llm.turns import Turn
from workflows.spending import MAX_OUTPUT

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
