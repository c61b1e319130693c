"""What Replan and a model exchange, the same for all providers: one Request in, one Reply out."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any, Protocol

from pydantic import JsonValue

from activities.errors import Unreachable
from workflows.faults.fault import Code
from workflows.limits.budget import BYTES_PER_TOKEN


class End(StrEnum):
    """How a request ended; the rows of `billing.toml` describe the values."""

    REPLY = "reply"
    DECLINED = "declined"
    COUNTED_FAILURE = "counted_failure"
    UNSENT = "unsent"
    REJECTED = "rejected"
    DENIED = "denied"
    NO_REPLY = "no_reply"
    GAVE_UP = "gave_up"
    NO_ANSWER = "no_answer"
    ERROR_EVENT = "error_event"
    BROKEN_OFF = "broken_off"
    STALLED = "stalled"
    TOO_LARGE = "too_large"
    UNCOUNTED = "uncounted"


class LanguageModel(Protocol):
    """A model of any provider."""

    @property
    def name(self) -> str:
        """The full name: `provider:MODEL`, with `@HOST` if the server is not the provider's own."""

    async def reply(self, request: "Request") -> "Reply":
        """Send the request and return the reply; if the caller is cancelled, the request is cancelled, too.

        A request is sent to a model only once, without a retry.

        Raises:
            Exception: a ToolError, or any exception of the provider's SDK, which `activities.borders` translates.
        """


# The transcript stores turns, calls, results and usage as JSON: the names of their fields must stay.


@dataclass(frozen=True)
class ToolCall:
    id: str
    """The id that the provider gave to the call. The result of the call repeats it; a compatible server may use an id
    again in a later turn."""
    name: str
    args: dict[str, JsonValue]
    broken: str = ""
    """Why the model's arguments cannot be read as a JSON object, so that `args` is empty; an empty text if they can be
    read."""


@dataclass(frozen=True)
class ToolResult:
    """The result of a tool call, as it is sent to the model."""

    call_id: str
    """The id of the ToolCall."""
    text: str
    is_error: bool = False


@dataclass(frozen=True)
class UserTurn:
    """What a model is told: first the results of all calls of the turn before, in the order of the calls, then text."""

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
    """The full name of the model that wrote the turn."""
    aside: str = ""
    """What the model wrote that is no part of its answer, such as its reasoning between `<think>` and `</think>`: it is
    only kept, and no model gets it back."""
    vendor: dict[str, JsonValue] = field(default_factory=dict)
    """The fields of a message of Chat Completions that the API does not describe, such as `reasoning_content`: the same
    model at the same address gets them back. `content` is set if it is no plain text, and `tool_calls` has the fields
    of each call."""
    follows_summary: bool = False
    """Whether a summary has replaced the turns before this one; False in a stored turn."""

    def rewritten(self, text: str) -> "AssistantTurn":
        """The turn with another text in place of its own and of its calls."""
        rest = {name: value for name, value in self.vendor.items() if name not in ("content", "tool_calls")}
        return replace(self, text=text, calls=(), blocks=(), vendor=rest)


Turn = UserTurn | AssistantTurn


class StopReason(StrEnum):
    DONE = "done"
    """The model finished its reply, or wrote a stop sequence."""
    CALLS = "calls"
    """The model waits for the results of its calls."""
    CUT = "cut"
    """The reply reached its token limit, filled the model's window, or was paused or broken off by the server: its end
    is missing."""
    REFUSED = "refused"
    """The model declined, or a filter of the provider held the reply back."""


@dataclass(frozen=True)
class Usage:
    """Tokens of one request and its reply, as the provider counts them; `reasoning` is a part of `output`."""

    input: int = 0
    """Input that was neither read from the provider's cache nor written to it."""
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0
    """The part of `output` that the model used for reasoning, as far as the provider counts it apart."""
    is_estimated: bool = False
    """Whether some of the tokens are estimated, because the server did not count them."""
    beside: int = 0
    """The part of `output` that the server counts beside its own output, so that no limit of a reply may hold it."""

    @property
    def tokens(self) -> int:
        return self.input + self.output + self.cache_read + self.cache_write


@dataclass(frozen=True)
class Reply:
    turn: AssistantTurn
    usage: Usage
    stop: StopReason


class NoReply(Unreachable):
    """A model gave no reply, or not all of it. This proves nothing about other requests of the attempt."""

    requests = 0

    def __init__(self, reason: str, end: End, *, code: str | None = None) -> None:
        """`end` says how the request ended, and so what it may cost."""
        super().__init__(reason, code=code)
        self.end = end


class UnusableResponse(NoReply):
    """A response with status 200 that holds no reply; `usage` has the tokens that the server counted for it, if any."""

    default = Code.SERVER_ERROR

    def __init__(self, reason: str, usage: Usage | None = None, end: End = End.NO_REPLY) -> None:
        """`end` says how the request ended if the server counted nothing."""
        super().__init__(reason, End.COUNTED_FAILURE if usage else end)
        self.usage = usage


class UnreadableReply(UnusableResponse):
    """A response with status 200 that cannot be read as a reply, e.g. a page of a proxy."""

    def __init__(self, server: str, usage: Usage | None = None, end: End = End.NO_REPLY) -> None:
        reason = f"What {server} answered has not the shape of a reply; a proxy may have answered in its place."
        super().__init__(reason, usage, end)


@dataclass(frozen=True)
class ToolDefinition:
    name: str
    description: str
    schema: Mapping[str, Any]
    """The JSON schema of the tool's arguments."""
    strict: bool = False
    """Whether the provider lets the model write only arguments that fit `schema`, which then is in its strict form."""
    words: tuple[str, ...] = ()
    """The arguments that are words for people, to show while the model writes them; `steps.title` is the title of each
    of `steps`."""


@dataclass(frozen=True)
class Request:
    """Everything that a model is told."""

    system: str
    tools: Sequence[ToolDefinition]
    """The tools that the model may call; empty if it shall answer with text only."""
    turns: Sequence[Turn]
    """The first and the last turn are user turns; the results in a user turn belong to calls of the turn before it."""
    max_output: int | None = None
    """The most tokens that the reply may have. None for the adapter's usual limit, or for no limit at a set address
    (`Endpoint.url`) whose API needs no limit."""
    may_call: bool = True
    """True if the model may call a tool now. If False, `tools` is still set, because earlier turns contain calls."""
    stop: tuple[str, ...] = ()
    """Texts at which the reply ends. Only servers of the user's own get them; other replies may continue after them."""
    skip_cache: bool = False
    """True if no later request begins like this request, so that the provider need not cache this request."""
    effort: str | None = None
    """How much the model reasons: `low`, `medium` or `high`; None for the effort of the worker's settings."""
    counted: int = 0
    """The tokens of the request: the provider's count of the conversation before, and an estimate of what is new; 0 if
    the provider counted nothing."""
    calls: str | None = None
    """How the model makes its calls, as the task says: `native` or `text`; None for the worker's choice."""
    answer: ToolDefinition | None = None
    """A tool whose arguments the text of the reply should be, as JSON, because the model may not call it; None for any
    text."""


UNSEEN_OUTPUT = 50
"""Tokens of a reply that an adapter does not see while the reply arrives, such as the names of calls."""


def estimate_input(request: Request) -> int:
    """Estimate the tokens of a request."""
    definitions = [*request.tools, *([request.answer] if request.answer else [])]
    tools = [(tool.name, tool.description, dict(tool.schema)) for tool in definitions]
    return estimate_tokens([request.system, tools, [asdict(turn) for turn in request.turns]])


def estimate_tokens(value: Any) -> int:
    """Estimate the tokens of a value that is written as JSON."""
    return len(json.dumps(value, ensure_ascii=False, default=str).encode(errors="replace")) // BYTES_PER_TOKEN
