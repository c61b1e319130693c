"""One question to a model, and what comes of it."""

import pytest

from activities.providers.messages import Reply, Request, ToolCall, ToolDefinition, ToolResult, Turn, UserTurn
from activities.providers.metering import Meter, MeteredModel, start_meter
from evals.fakes.model_api import KEY, ModelApi, running
from evals.fakes.script import ModelReply, Response
from tests.providers.planning import adapter_of, api_of, model_of
from workflows.plans.catalogue import Price

WEATHER = ToolDefinition(
    "weather",
    "Say the weather of a place.",
    {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]},
)
PARIS, ROME = ToolCall("call_a", "weather", {"place": "Paris"}), ToolCall("call_b", "weather", {"place": "Rome"})
ASKED: list[Turn] = [UserTurn("Where is it warmer?")]
IDLE = 0.6
"""Seconds of silence that are a stall."""


def request(turns: list[Turn]) -> Request:
    """What a model is told."""
    return Request("You know the weather.", [WEATHER], turns)


def answered(reply: Reply) -> list[Turn]:
    """The conversation after a reply, whose calls have results."""
    return [*ASKED, reply.turn, UserTurn("Go on.", tuple(ToolResult(call.id, "30") for call in reply.turn.calls))]


async def ask(provider: str, *script: Response, turns: list[Turn] = ASKED, key: str = KEY) -> tuple[ModelApi, Reply]:
    """One reply."""
    async with running(api_of(provider, *script)) as api:
        return api, await model_of(provider, api, key).reply(request(turns))


async def failing(provider: str, move: Response, key: str = KEY) -> tuple[ModelApi, Exception]:
    """What one request raises."""
    async with running(api_of(provider, move)) as api:
        with pytest.raises(Exception) as raised:  # which class is the SDK's business
            await adapter_of(provider, api, key).reply(request(ASKED))
    return api, raised.value


async def asked(
    provider: str, *script: Response, price: Price | None = None
) -> tuple[ModelApi, Meter, Reply | Exception]:
    """One request: the reply or the exception, and what was counted."""
    meter = start_meter()
    async with running(api_of(provider, *script)) as api:
        model = MeteredModel(model_of(provider, api, idle_timeout=IDLE), price)
        try:
            return api, meter, await model.reply(request(ASKED))
        except Exception as error:  # which class is the SDK's business
            return api, meter, error


async def reply_of(provider: str, response: Response) -> Reply:
    """The reply that a model gave."""
    _, _, reply = await asked(provider, response)
    assert isinstance(reply, Reply), repr(reply)
    return reply


def number_of_events(provider: str, reply: ModelReply) -> int:
    """How many events the stream of a reply has."""
    api = api_of(provider, reply)
    api.bodies.append({"stream_options": {"include_usage": True}})
    return len(list(api.events(api.reply_body(reply))))
