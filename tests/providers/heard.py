"""What a model hears, whoever its provider is: the turns of one request, read back from the wire."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from activities.llm.turns import AssistantTurn, ToolCall, ToolResult, Turn, UserTurn


@dataclass(frozen=True)
class Heard:
    """One request."""

    system: str
    tools: tuple[str, ...]
    """The names of the tools that are offered."""
    may_call: bool
    """Whether one of them may be called now."""
    turns: tuple[Turn, ...]
    """The first and the last are the user's."""
    body: dict[str, Any]
    """As it was sent."""

    @property
    def said(self) -> int:
        """How many turns the model had before."""
        return sum(isinstance(turn, AssistantTurn) for turn in self.turns)

    @property
    def results(self) -> tuple[ToolResult, ...]:
        """What its newest calls came to; OpenAI's protocol has no mark of errors."""
        return _user(self.turns[-1]).results

    @property
    def news(self) -> str:
        """The words of the newest turn."""
        return _user(self.turns[-1]).text

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """All calls that it made before."""
        return tuple(call for turn in self.turns if isinstance(turn, AssistantTurn) for call in turn.calls)

    @property
    def told(self) -> str:
        """Everything that it was told but for instructions and tools, as one text."""
        return "\n".join(_words(turn) for turn in self.turns if isinstance(turn, UserTurn))


def _user(turn: Turn) -> UserTurn:
    assert isinstance(turn, UserTurn), "the last turn is the user's"
    return turn


def _words(turn: UserTurn) -> str:
    return "\n".join([*(result.text for result in turn.results), turn.text])


def repeated(requests: Iterable[Heard]) -> Counter[tuple[int, tuple[str, ...]]]:
    """How often each turn was asked for: by the number of turns before it, and the calls that it answers."""
    return Counter((heard.said, tuple(result.call_id for result in heard.results)) for heard in requests)
