"""OpenAI's Chat Completions, and every server that speaks it: Ollama, vLLM, llama.cpp."""

import asyncio
import importlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from activities.providers.messages import AssistantTurn, Offer, Reply, Request, Stop, ToolCall, Turn, Usage
from activities.providers.wire import NO_REPLY, NOT_JSON, Endpoint, call, paired, reading, writable
from workflows import routing
from workflows.plan import canonical
from workflows.spending import MAX_OUTPUT

if TYPE_CHECKING:
    from openai.types import CompletionUsage
    from openai.types.chat import ChatCompletion

PROVIDER = "OpenAI's API"
DEFAULT = "gpt-5.4-mini"
"""One that may call functions in Chat Completions, as not all newer ones may."""
STOPS: Mapping[str | None, Stop] = {
    "stop": Stop.DONE,
    "tool_calls": Stop.CALLS,
    "function_call": Stop.CALLS,
    "length": Stop.CUT,
    "content_filter": Stop.REFUSED,
}


class OpenAIModel:
    """One of OpenAI's models, or one behind a server that speaks as OpenAI does."""

    def __init__(self, model: str, endpoint: Endpoint) -> None:
        """Ask `model` at `endpoint`; nothing is loaded or connected before the first request."""
        self.name = endpoint.name("openai", model)
        self._model = model
        self._endpoint = endpoint

    async def reply(self, request: Request) -> Reply:
        """Ask once."""
        sdk = await asyncio.to_thread(importlib.import_module, "openai")  # takes a second, the first time
        given = self._endpoint.client(routing.PLAN.timeout)
        async with sdk.AsyncOpenAI(**given) as client:
            with reading(PROVIDER, NOT_JSON):
                completion = await client.chat.completions.create(
                    model=self._model,
                    **self._limit(request),
                    messages=list(_messages(request, self.name)),
                    **_tools(request),
                )
        with reading(PROVIDER, NO_REPLY):
            return _reply(completion, self.name)

    def _limit(self, request: Request) -> dict[str, int]:
        """The longest reply; a server of one's own whose window is smaller would refuse one that nobody asked for."""
        if self._endpoint.url and request.max_output >= MAX_OUTPUT:
            return {}
        return {"max_completion_tokens": request.max_output}


def _tools(request: Request) -> dict[str, Any]:
    if not request.offers:
        return {}
    offered = {"tools": [_tool(offer) for offer in request.offers]}
    return offered if request.may_call else {**offered, "tool_choice": "none"}


def _tool(offer: Offer) -> dict[str, Any]:
    function = {"name": offer.name, "description": offer.description, "parameters": dict(offer.schema)}
    return {"type": "function", "function": function}


def _messages(request: Request, model: str) -> Iterator[dict[str, Any]]:
    yield {"role": "system", "content": request.system}
    for turn in paired(request.turns, model):
        yield from _turn(turn)


def _turn(turn: Turn) -> Iterator[dict[str, Any]]:
    if isinstance(turn, AssistantTurn):
        calls = {"tool_calls": [_tool_call(one) for one in turn.calls]} if turn.calls else {}
        yield {"role": "assistant", "content": turn.text or None, **calls}
        return
    for result in turn.results:
        yield {"role": "tool", "tool_call_id": result.call_id, "content": result.text}
    if turn.text:
        yield {"role": "user", "content": turn.text}


def _tool_call(one: ToolCall) -> dict[str, Any]:
    return {"id": one.id, "type": "function", "function": {"name": one.name, "arguments": canonical(one.args)}}


def _reply(completion: "ChatCompletion", model: str) -> Reply:
    choice = completion.choices[0]
    message = choice.message
    functions = [(one.id or "", getattr(one, "function", None)) for one in message.tool_calls or ()]
    calls = tuple(call(id, one.name or "", one.arguments) for id, one in functions if one)  # no other kind was offered
    stop = Stop.REFUSED if message.refusal else STOPS.get(choice.finish_reason, Stop.DONE)
    turn = AssistantTurn(message.content or "", calls, by=model)
    return Reply(writable(turn), _usage(completion.usage), stop)


def _usage(used: "CompletionUsage | None") -> Usage:
    """What was used; a compatible server may say nothing of it."""
    if used is None:
        return Usage()
    details = used.prompt_tokens_details
    read = (details.cached_tokens if details else 0) or 0
    written = (details.cache_write_tokens if details else 0) or 0
    whole = used.prompt_tokens - read - written
    return Usage(input=max(0, whole), output=used.completion_tokens, cache_read=read, cache_write=written)
