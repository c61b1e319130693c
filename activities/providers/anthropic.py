"""Anthropic's Messages API."""

import asyncio
import importlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from activities.providers.messages import AssistantTurn, Offer, Reply, Request, Stop, ToolCall, ToolResult, Turn, Usage
from activities.providers.wire import NO_REPLY, NOT_JSON, Endpoint, paired, reading, writable
from workflows import routing

if TYPE_CHECKING:
    from anthropic.types import ContentBlock, Message

PROVIDER = "Anthropic's API"
DEFAULT = "claude-sonnet-5-5"
KEEP: Mapping[str, Any] = {"cache_control": {"type": "ephemeral"}}
"""Marks the end of a prefix that the next request begins with, too."""
THOUGHTS = ("thinking", "redacted_thinking")
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
                    system=[{"type": "text", "text": request.system, **_kept(request)}],
                    messages=_messages(request, self.name),
                    **_tools(request),
                )
        with reading(PROVIDER, NO_REPLY):
            return _reply(message, self.name)


def _tools(request: Request) -> dict[str, Any]:
    """What is offered; a call is never forced, which newer models refuse."""
    if not request.offers:
        return {}
    tools = [_tool(offer) for offer in request.offers]
    offered = {"tools": [*tools[:-1], {**tools[-1], **_kept(request)}]}
    return offered if request.may_call else {**offered, "tool_choice": {"type": "none"}}


def _tool(offer: Offer) -> dict[str, Any]:
    return {"name": offer.name, "description": offer.description, "input_schema": dict(offer.schema)}


def _kept(request: Request) -> Mapping[str, Any]:
    """The mark at the end of a part with which the next request begins, too."""
    return {} if request.is_once else KEEP


def _messages(request: Request, model: str) -> list[dict[str, Any]]:
    messages = [_message(turn, model) for turn in paired(request.turns, model)]
    last = messages[-1]["content"]
    last[-1] = {**last[-1], **_kept(request)}
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


def _reply(message: "Message", model: str) -> Reply:
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
    turn = AssistantTurn(text, calls, _unchanged(blocks), model)
    return Reply(writable(turn), usage, STOPS.get(message.stop_reason, Stop.DONE))


def _unchanged(blocks: Sequence["ContentBlock"]) -> tuple[dict[str, Any], ...]:
    """The blocks as they came, where the model thought: its thoughts are signed, and it wants them back."""
    if not any(block.type in THOUGHTS for block in blocks):
        return ()
    return tuple(block.model_dump(mode="json", exclude_unset=True) for block in blocks)


def _object(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError("the input of a tool_use is no object")
    return value
