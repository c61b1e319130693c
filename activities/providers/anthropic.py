"""The adapter of Anthropic's Messages API."""

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from activities.providers.adapter import (
    ModelAdapter,
    count,
    counts,
    replace_surrogates,
    stop_word,
    with_unique_ids,
)
from activities.providers.arguments import parse_call
from activities.providers.messages import AssistantTurn, Reply, Request, StopReason, ToolCall, ToolResult, Turn, Usage
from activities.providers.streaming import Draft
from activities.providers.strict import ANTHROPIC

if TYPE_CHECKING:  # to import the SDK takes a second; the adapter does it at the first request
    from anthropic.types import ContentBlock, Message, RawMessageStreamEvent

DEFAULT_MODEL = "claude-sonnet-5-5"
HOST = "api.anthropic.com"


class StrictRow(NamedTuple):
    """Whether some models take strict schemas at Anthropic's own address."""

    models: tuple[str, ...]
    """Patterns of their names, as of files: `*` is any text, `[5-9]` is one of these digits."""
    is_strict: bool
    sources: tuple[str, ...]


OLD = ("claude-2*", "claude-3*", "claude-instant*", "claude-*-4", "claude-*-4-[01]*", "claude-*-4-20*")
# "Gemini Enterprise Agent Platform supports structured outputs for all Anthropic Claude 4.5 and later models."
VERTEX = (
    "https://docs.cloud.google.com/gemini-enterprise-agent-platform/models/partner-models/claude/structured-outputs"
)
STRICT: Sequence[StrictRow] = (
    # They are not in the list of the models with structured outputs.
    StrictRow(OLD, False, (ANTHROPIC.source,)),
    StrictRow(("claude-*-4-[5-9]*", "claude-mythos-preview"), True, (ANTHROPIC.source,)),
    StrictRow(("claude-*-5", "claude-*-5-*"), True, (ANTHROPIC.source, VERTEX)),
)
"""The first row that matches a model's name decides. A model without a row is probably newer, and gets strict schemas:
if it rejects them, they are left out (see `StrictModel`)."""
EFFORTS = "https://platform.claude.com/docs/en/build-with-claude/effort"
WITHOUT_EFFORT: Sequence[str] = (*OLD, "claude-sonnet-4-5*", "claude-haiku-4*")
"""Patterns of the models that EFFORTS does not list; they reject an effort with a 400."""
CACHED: Mapping[str, Any] = {"cache_control": {"type": "ephemeral"}}
"""Marks the end of the part of a request that the provider shall cache, because the next request begins with the same
part."""
COUNTS = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "total_tokens")
THOUGHTS = ("thinking", "redacted_thinking")
UNFINISHED = "unfinished"
"""The reason to stop of a message with a call whose block has no end, in place of the server's."""
STOP_REASONS: Mapping[str | None, StopReason] = {
    "end_turn": StopReason.DONE,
    "stop_sequence": StopReason.DONE,
    "tool_use": StopReason.CALLS,
    "pause_turn": StopReason.CUT,
    "max_tokens": StopReason.CUT,
    "model_context_window_exceeded": StopReason.CUT,
    UNFINISHED: StopReason.CUT,
    "refusal": StopReason.REFUSED,
}
UNUSED = (StopReason.CUT, StopReason.REFUSED)


def takes_strict(model: str) -> bool:
    """Whether a model takes strict schemas at Anthropic's own address."""
    return next((row.is_strict for row in STRICT if any(fnmatchcase(model, name) for name in row.models)), True)


def takes_effort(model: str) -> bool:
    """Whether a model has efforts at Anthropic's own address; True for an unknown model, which is probably newer."""
    return not any(fnmatchcase(model, pattern) for pattern in WITHOUT_EFFORT)


class AnthropicModel(ModelAdapter):
    sdk = "anthropic"
    client = "AsyncAnthropic"
    api = "Anthropic's API"
    needs_limit = True
    without_spans: ClassVar[Mapping[str, Any]] = {"open_telemetry": {"traces": False, "propagation": False}}

    async def _send(self, client: Any, request: Request, limit: int | None) -> Any:
        return await client.messages.create(
            model=self._model,
            stream=True,
            max_tokens=limit,
            system=[{"type": "text", "text": request.system, **_cache_control(request)}],
            messages=_messages(request, self.name),
            **_tools(request),
            **_format(request),
        )

    def _draft(self) -> Draft:
        return _AnthropicDraft()

    def _response(self, body: dict[str, Any]) -> "Message":
        from anthropic.types import Message

        return Message.construct(**body)

    def _translate(self, response: "Message", limit: int | None) -> Reply:
        text = "\n".join(block.text for block in response.content if block.type == "text")
        uses: Iterable[Any] = (block for block in response.content if block.type == "tool_use")
        calls = tuple(parse_call(use.id, use.name, use.input) for use in uses)
        blocks = () if any(call.broken for call in calls) else _blocks_to_send_back(response.content, calls)
        turn = AssistantTurn(text, calls, blocks, self.name)
        stop = STOP_REASONS.get(stop_word(response.stop_reason), StopReason.DONE)
        return Reply(replace_surrogates(turn), self._usage(response), stop)

    def _usage(self, response: "Message") -> Usage:
        return _usage(response)


class _AnthropicDraft(Draft):
    """Joins the events of a reply: the parts of each block's text, reasoning or arguments."""

    arguments_field = "input"

    def __init__(self) -> None:
        self._message: Any = None
        self._is_counted = False
        """Whether the server has counted the whole reply; `message_start` has only the tokens of its beginning."""
        self._arguments = list[str]()
        """For each block, the JSON of its arguments, as far as it came; empty for a block that calls no tool."""
        self._open = dict[int, int]()
        """For each block that has no end yet, by its index in the events: its place in the message."""

    def add(self, event: "RawMessageStreamEvent") -> None:
        match event.type:
            case "message_start":
                self._message = event.message
            case "content_block_start":
                self._begin(event.index, event.content_block)
            case "content_block_delta":
                self._add_part(self._open[event.index], event.delta)
            case "content_block_stop" if (place := self._open.pop(event.index, None)) is not None:
                if written := self._arguments[place]:
                    self._message.content[place].input = written
            case "message_delta":
                self._set_stop(event.delta.stop_reason)
                self._count(event.usage)
            case "message_stop":
                if any(self._message.content[place].type == "tool_use" for place in self._open.values()):
                    self._set_stop(UNFINISHED)
                if not self._is_counted and getattr(self._message, "usage", None):
                    self._message.usage.output_tokens = 0
                self.response = self._message

    @property
    def hides_thoughts(self) -> bool:
        return any(block.type in THOUGHTS for block in self._blocks())

    def counted(self) -> Usage:
        return _usage(self._message) if self._message else Usage()

    def text(self) -> str:
        return "\n".join(block.text for block in self._blocks() if block.type == "text")

    def calls(self) -> list[tuple[str, Any]]:
        return [
            (block.name, arguments)
            for block, arguments in zip(self._blocks(), self._arguments, strict=False)
            if block.type == "tool_use"
        ]

    def _blocks(self) -> list[Any]:
        return [*self._message.content] if self._message else []

    def _begin(self, index: int, block: Any) -> None:
        if index in self._open and self._message.content[self._open[index]].type == "tool_use":
            self._set_stop(UNFINISHED)  # whose parts the next ones are, nobody knows
        self.is_opened = True
        self._open[index] = len(self._arguments)
        self._message.content.append(block)
        self._arguments.append("")

    def _add_part(self, place: int, delta: Any) -> None:
        block = self._message.content[place]
        match delta.type:
            case "text_delta":
                block.text += (part := delta.text)
            case "thinking_delta":
                block.thinking += (part := delta.thinking)
            case "signature_delta":
                block.signature = part = delta.signature
            case "input_json_delta":
                self._arguments[place] += (part := delta.partial_json)
            case _:
                part = ""
        self.written += len(part.encode(errors="replace"))

    def _set_stop(self, reason: str | None) -> None:
        """Set the reason to stop, unless `reason` is none, or it is known already that the reply cannot be used."""
        if stop_word(reason) and STOP_REASONS.get(stop_word(self._message.stop_reason)) not in UNUSED:
            self._message.stop_reason = reason

    def _count(self, used: Any) -> None:
        """Set the tokens that an event counts: totals, which replace those of `message_start`."""
        self._message.usage = getattr(self._message, "usage", None) or used
        for name in COUNTS:
            # A server may count the input at the beginning alone, and then none.
            if count(used, name) > count(self._message.usage, name):
                setattr(self._message.usage, name, getattr(used, name))
        if parts := getattr(used, "output_tokens_details", None):
            self._message.usage.output_tokens_details = parts
        self._is_counted |= count(used, "output_tokens") > 0


def _usage(message: "Message") -> Usage:
    used: Any = getattr(message, "usage", None)
    of_cache: Any = getattr(used, "cache_creation", None)
    written = sum(count(of_cache, f"ephemeral_{time}_input_tokens") for time in ("5m", "1h"))
    return counts(
        used,
        "input",
        "output",
        read=count(used, "cache_read_input_tokens"),
        written=max(written, count(used, "cache_creation_input_tokens")),
        is_cache_apart=True,
    )


def _tools(request: Request) -> dict[str, Any]:
    # A call is never forced (`tool_choice: any`), because newer models reject that.
    if not request.tools:
        return {}
    tools = [
        {
            "name": tool.name,
            "description": tool.description,
            "input_schema": dict(tool.schema),
            **({"strict": True} if tool.strict else {}),
        }
        for tool in request.tools
    ]
    offered = {"tools": [*tools[:-1], {**tools[-1], **_cache_control(request)}]}
    return offered if request.may_call else {**offered, "tool_choice": {"type": "none"}}


def _format(request: Request) -> dict[str, Any]:
    answer, config = request.answer, dict[str, Any]()
    if request.effort:
        config["effort"] = request.effort
    if answer is not None and answer.strict:
        config["format"] = {"type": "json_schema", "schema": dict(answer.schema)}
    return {"output_config": config} if config else {}


def _cache_control(request: Request) -> Mapping[str, Any]:
    return {} if request.skip_cache else CACHED


def _messages(request: Request, model: str) -> list[dict[str, Any]]:
    messages = [_message(turn, model) for turn in with_unique_ids(request.turns, model)]
    last = messages[-1]["content"]
    last[-1] = {**last[-1], **_cache_control(request)}
    return messages


def _message(turn: Turn, model: str) -> dict[str, Any]:
    words = [{"type": "text", "text": turn.text}] if turn.text.strip() else []
    if isinstance(turn, AssistantTurn):
        own = turn.by == model and turn.blocks
        return {"role": "assistant", "content": [*turn.blocks] if own else [*words, *map(_tool_use, turn.calls)]}
    return {"role": "user", "content": [*map(_tool_result, turn.results), *words]}


def _tool_use(call: ToolCall) -> dict[str, Any]:
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": call.args}


def _tool_result(result: ToolResult) -> dict[str, Any]:
    plain = {"type": "tool_result", "tool_use_id": result.call_id, "content": result.text}
    return {**plain, "is_error": True} if result.is_error else plain


def _blocks_to_send_back(blocks: Sequence["ContentBlock"], calls: Sequence[ToolCall]) -> tuple[dict[str, Any], ...]:
    # The API signs thoughts, and wants all blocks of such a turn back unchanged.
    if not any(block.type in THOUGHTS for block in blocks):
        return ()
    inputs = (call.args for call in calls)
    return tuple(
        # The draft has the input as text.
        block.model_dump(mode="json", exclude_unset=True, warnings=False)
        | ({"input": next(inputs)} if block.type == "tool_use" else {})
        for block in blocks
    )
