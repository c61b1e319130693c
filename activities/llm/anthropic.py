"""Anthropic's Messages API."""

import asyncio
import importlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from activities.llm.endpoint import Endpoint
from activities.llm.language_model import Offer, Request
from activities.llm.reply import Reply, Stop, Usage
from activities.llm.turns import AssistantTurn, ToolCall, ToolResult, Turn
from activities.llm.wire import NO_REPLY, NOT_JSON, reading
from workflows import routing

if TYPE_CHECKING:
    from anthropic.types import Message

PROVIDER = "Anthropic's API"
DEFAULT = "claude-sonnet-5-5"
KEEP: Mapping[str, Any] = {"cache_control": {"type": "ephemeral"}}
"""Marks the end of a prefix that the next request begins with, too."""
STOPS: Mapping[str | None, Stop] = {
    "end_turn": Stop.DONE,
    "stop_sequence": Stop.DONE,
    "pause_turn": Stop.DONE,
    "tool_use": Stop.CALLS,
    "max_tokens": Stop.CUT,
    "model_context_window_exceeded": Stop.CUT,
    "refusal": Stop.REFUSED,
}


class AnthropicModel:
    """One of Anthropic's models."""

    def __init__(self, model: str, endpoint: Endpoint) -> None:
        """Ask `model` at `endpoint`; nothing is loaded or connected before the first request."""
        self.name = endpoint.name("anthropic", model)
        self._model = model
        self._endpoint = endpoint

    async def reply(self, request: Request) -> Reply:
        """Ask once."""
        sdk = await asyncio.to_thread(importlib.import_module, "anthropic")  # takes a second, the first time
        given = self._endpoint.client(routing.PLAN.timeout)
        async with sdk.AsyncAnthropic(**given) as client:
            with reading(PROVIDER, NOT_JSON):
                message = await client.messages.create(
                    model=self._model,
                    max_tokens=request.max_output,
                    system=[{"type": "text", "text": request.system, **KEEP}],
                    tools=_tools(request.offers),
                    messages=_messages(request.turns, request.closing),
                )
        with reading(PROVIDER, NO_REPLY):
            return _reply(message)


def _tools(offers: Sequence[Offer]) -> list[dict[str, Any]]:
    tools = [
        {"name": offer.name, "description": offer.description, "input_schema": dict(offer.schema)} for offer in offers
    ]
    return [*tools[:-1], {**tools[-1], **KEEP}]


def _messages(turns: Sequence[Turn], closing: str) -> list[dict[str, Any]]:
    """The turns; the end of what stays the same is marked, what follows it is not."""
    messages = [_message(turn) for turn in turns]
    last = messages[-1]["content"]
    last[-1] = {**last[-1], **KEEP}
    if closing:
        last.append({"type": "text", "text": closing})
    return messages


def _message(turn: Turn) -> dict[str, Any]:
    words = [{"type": "text", "text": turn.text}] if turn.text else []
    if isinstance(turn, AssistantTurn):
        return {"role": "assistant", "content": [*words, *map(_tool_use, turn.calls)]}
    return {"role": "user", "content": [*map(_tool_result, turn.results), *words]}


def _tool_use(call: ToolCall) -> dict[str, Any]:
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": call.args}


def _tool_result(result: ToolResult) -> dict[str, Any]:
    plain = {"type": "tool_result", "tool_use_id": result.call_id, "content": result.text}
    return {**plain, "is_error": True} if result.is_error else plain


def _reply(message: "Message") -> Reply:
    blocks = list(message.content)
    text = "\n".join(block.text for block in blocks if block.type == "text")
    calls = tuple(ToolCall(block.id, block.name, _object(block.input)) for block in blocks if block.type == "tool_use")
    used = message.usage
    usage = Usage(
        input=int(used.input_tokens),
        output=int(used.output_tokens),
        cache_read=used.cache_read_input_tokens or 0,
        cache_write=used.cache_creation_input_tokens or 0,
    )
    return Reply(AssistantTurn(text, calls), usage, STOPS.get(message.stop_reason, Stop.DONE))


def _object(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError("the input of a tool_use is no object")
    return value
