"""The protocol that every model speaks here: one request in, one reply out, whoever the provider is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from activities.llm.reply import Reply
from activities.llm.turns import Turn

MAX_OUTPUT = 16_000
"""Tokens of one reply: fifty steps with long arguments, and what the model thinks before."""


@dataclass(frozen=True)
class Offer:
    """A tool that the model may call."""

    name: str
    description: str
    schema: Mapping[str, Any]
    """The JSON schema of its arguments."""


@dataclass(frozen=True)
class Request:
    """Everything that a model is told; all but `closing` begins the next request of the same task, too."""

    system: str
    offers: Sequence[Offer]
    turns: Sequence[Turn]
    """The first and the last are the user's; each result belongs to a call of the turn before it."""
    closing: str = ""
    """The last words of the last turn, which are different each time: no cache is asked to keep them."""
    max_output: int = MAX_OUTPUT
    """Tokens."""


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
