"""Both providers, and a planner that asks the one which a test has prepared."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from activities.planning.model_planner import ModelPlanner
from activities.providers.adapter import Endpoint
from activities.providers.anthropic import AnthropicModel
from activities.providers.messages import LanguageModel
from activities.providers.openai import OpenAIModel
from replan.testing.anthropic_api import AnthropicApi
from replan.testing.model_api import KEY, MODEL, ModelApi, running
from replan.testing.openai_api import OpenAIApi
from replan.testing.script import ScriptedResponse

PROVIDERS = ("anthropic", "openai")


def api_of(provider: str, *script: ScriptedResponse) -> ModelApi:
    """A server of this provider, not started."""
    return AnthropicApi([*script]) if provider == "anthropic" else OpenAIApi([*script])


def model_of(provider: str, api: ModelApi, key: str = KEY) -> LanguageModel:
    """The adapter for a server that runs."""
    if provider == "anthropic":
        return AnthropicModel(MODEL, Endpoint(key, api.url))
    return OpenAIModel(MODEL, Endpoint(key, f"{api.url}/v1"))


@asynccontextmanager
async def planning(
    provider: str, *script: ScriptedResponse, key: str = KEY
) -> AsyncIterator[tuple[ModelApi, ModelPlanner]]:
    """A server with a script, and a planner that asks it."""
    async with running(api_of(provider, *script)) as api:
        yield api, ModelPlanner(model_of(provider, api, key))
