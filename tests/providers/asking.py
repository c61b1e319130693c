"""One question to a model, and what comes of it."""

import pytest

from activities.providers.messages import Reply, Request, ToolCall, ToolDefinition, Turn, UserTurn
from evals.fakes.model_api import KEY, ModelApi, running
from evals.fakes.script import Response
from tests.providers.planning import adapter_of, api_of, model_of

WEATHER = ToolDefinition(
    "weather",
    "Say the weather of a place.",
    {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]},
)
PARIS, ROME = ToolCall("call_a", "weather", {"place": "Paris"}), ToolCall("call_b", "weather", {"place": "Rome"})
ASKED: list[Turn] = [UserTurn("Where is it warmer?")]


def request(turns: list[Turn]) -> Request:
    """What a model is told."""
    return Request("You know the weather.", [WEATHER], turns)


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
