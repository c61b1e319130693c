"""The script of a model: its reply to each request, or its error; the same for every provider."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from activities.planning.strategies import ASK, FINISH, GIVE_UP, PROPOSE
from activities.providers.messages import AssistantTurn, ToolCall, ToolResult, Turn, UserTurn


@dataclass(frozen=True)
class ReceivedRequest:
    """One request to the model, in the same form for every provider."""

    system: str
    tools: tuple[str, ...]
    """The names of the tools that are offered."""
    may_call: bool
    """Whether the model may call one of these tools in this turn."""
    turns: tuple[Turn, ...]
    """The turns of the conversation so far; the first and the newest turn are the user's."""
    body: dict[str, Any]
    """The JSON as it was sent."""

    @property
    def turn(self) -> int:
        """How many turns of the model are in the request; 0 in the first request."""
        return sum(isinstance(turn, AssistantTurn) for turn in self.turns)

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """All calls of tools that the model made in earlier turns."""
        return tuple(call for turn in self.turns if isinstance(turn, AssistantTurn) for call in turn.calls)

    @property
    def results(self) -> tuple[ToolResult, ...]:
        """The results of the model's newest calls, in the newest turn; OpenAI's protocol marks no errors in them."""
        return _user_turn(self.turns[-1]).results

    @property
    def last_text(self) -> str:
        """The text of the newest turn, without the results of calls."""
        return _user_turn(self.turns[-1]).text

    @property
    def all_text(self) -> str:
        """The texts and results of all of the user's turns."""
        user_turns = [turn for turn in self.turns if isinstance(turn, UserTurn)]
        return "\n".join("\n".join([*(result.text for result in turn.results), turn.text]) for turn in user_turns)


def _user_turn(turn: Turn) -> UserTurn:
    if not isinstance(turn, UserTurn):
        raise TypeError("The last turn of a request must be the user's.")
    return turn


def repeated(requests: Iterable[ReceivedRequest]) -> Counter[tuple[int, tuple[str, ...]]]:
    """How often each turn was requested; its key is its number, and the ids of the calls whose results it contains."""
    return Counter((request.turn, tuple(result.call_id for result in request.results)) for request in requests)


@dataclass(frozen=True)
class ModelCall:
    name: str
    args: Mapping[str, Any] | str
    """The arguments as an object. They may be text to send broken JSON, but only with OpenAI's protocol."""

    @property
    def written(self) -> str:
        """The arguments as a text of JSON."""
        return self.args if isinstance(self.args, str) else json.dumps(dict(self.args))


@dataclass(frozen=True)
class ModelReply:
    """A reply with status 200."""

    calls: tuple[ModelCall, ...] = ()
    text: str = ""
    stop: str | None = None
    """The provider's stop reason; None chooses the reason that fits the reply."""
    refusal: str | None = None
    thinking: str = ""
    """The text of the model's thinking, or of its summary in Responses; Chat Completions does not carry it."""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ModelError:
    """An error with this HTTP status; its JSON is the same as from the provider's API."""

    status: int
    type: str
    message: str = "no"
    code: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RawBytes:
    """Bytes that the server sends in place of an HTTP answer."""

    sent: bytes


@dataclass(frozen=True)
class Delayed:
    """A response (`then`) that is sent after `seconds`, unless the client closes the connection before."""

    seconds: float
    then: "Response" = RawBytes(b"")


@dataclass(frozen=True)
class Streamed:
    """A reply whose stream is slow, or breaks off."""

    reply: ModelReply
    events: int | None = None
    """How many events of the reply are sent; None for all."""
    pause: float = 0.0
    """Seconds before each event."""
    pause_before_words: float = 0.0
    """Seconds between the first event, which has no words, and the second one."""
    then: Literal["end", "drop", "stall"] | bytes = "end"
    """What follows the events: the end of the response; the end of the connection in the middle of the response;
    nothing until the client goes away; or these bytes and the end of the response."""
    keeps_alive: bool = False
    """Whether each pause, and a stall, has comments that keep the connection alive, every 0.2 seconds."""


Response = ModelReply | ModelError | RawBytes | Streamed | Delayed
ScriptedResponse = Response | Callable[[ReceivedRequest], Response]
"""A response, or a function that makes the response from the request."""

DROPPED = RawBytes(b"")
"""The connection is closed without an answer."""


def calls(*made: ModelCall, text: str = "") -> ModelReply:
    """A reply that calls tools, all in one turn."""
    return ModelReply(made, text=text)


def step(id: str, kind: str, *needs: str, **args: Any) -> dict[str, Any]:
    """A step in the form in which a model proposes it."""
    return {"id": id, "kind": kind, "args": args, **({"needs": list(needs)} if needs else {})}


def proposes(*steps: Mapping[str, Any]) -> ModelReply:
    """A reply that proposes a plan of these steps."""
    return ModelReply((ModelCall(PROPOSE, {"steps": list(steps)}),))


def finishes(result: str = "done") -> ModelReply:
    """A reply that ends the task with this result."""
    return ModelReply((ModelCall(FINISH, {"result": result}),))


def asks(question: str, *options: str, free_text: bool = True) -> ModelReply:
    """A reply that asks the user a question, with options to choose from."""
    return ModelReply((ModelCall(ASK, {"question": question, "options": [*options], "free_text": free_text}),))


def gives_up(reason: str) -> ModelReply:
    """A reply that ends the task as failed, without an answer."""
    return ModelReply((ModelCall(GIVE_UP, {"reason": reason}),))
