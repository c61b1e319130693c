"""The providers' APIs, and a planner that asks the one which a test has prepared."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest

from activities.planning.model_planner import ModelPlanner
from activities.providers import streaming
from activities.providers.adapter import AdapterOptions, Endpoint
from activities.providers.anthropic import AnthropicModel
from activities.providers.messages import LanguageModel
from activities.providers.openai import OpenAIModel
from activities.providers.strict import ANTHROPIC, OPENAI, StrictModel
from evals.fakes.anthropic_api import AnthropicApi
from evals.fakes.model_api import KEY, MODEL, ModelApi, running
from evals.fakes.openai_api import OpenAIApi
from evals.fakes.responses_api import ResponsesApi
from evals.fakes.script import ScriptedResponse

APIS: Mapping[str, type[ModelApi]] = {"anthropic": AnthropicApi, "openai": OpenAIApi, "responses": ResponsesApi}
"""The server of each API; OpenAI has two, `openai` is Chat Completions, which compatible servers have, too."""
PROVIDERS = tuple(APIS)
MAKER = {"anthropic": "anthropic", "openai": "openai", "responses": "openai"}
"""Whose API it is, as the names of models begin."""
CUT_OFF = {"anthropic": "max_tokens", "openai": "length", "responses": "max_output_tokens"}
"""The word of each API for a reply that reached its limit."""
LIMIT = {"anthropic": "max_tokens", "openai": "max_completion_tokens", "responses": "max_output_tokens"}
"""The field of a request that limits the reply."""
quickly_one = pytest.mark.parametrize(
    "provider", [PROVIDERS[0], *(pytest.param(name, marks=pytest.mark.full) for name in PROVIDERS[1:])]
)
"""Marks a test whose module has all APIs in the quick tier, and which does not depend on them."""
FINISHED = {"anthropic": "end_turn", "openai": "stop", "responses": "completed"}


def other(provider: str) -> str:
    """Another one."""
    return next(name for name in PROVIDERS if name != provider)


def api_of(provider: str, *script: ScriptedResponse) -> ModelApi:
    """A server of this API, not started."""
    return APIS[provider]([*script])


def model_of(
    provider: str, api: ModelApi, key: str = KEY, idle_timeout: float = streaming.IDLE_TIMEOUT
) -> LanguageModel:
    """The adapter for a server that runs, with strict schemas as at the provider's own address."""
    adapter = adapter_of(provider, api, key, idle_timeout)
    return StrictModel(adapter, ANTHROPIC if provider == "anthropic" else OPENAI, {})


def adapter_of(
    provider: str, api: ModelApi, key: str = KEY, idle_timeout: float = streaming.IDLE_TIMEOUT
) -> LanguageModel:
    """The adapter alone, which sends no strict schemas."""
    if provider == "anthropic":
        return AnthropicModel(MODEL, Endpoint(key, api.url, idle_timeout))
    wires = {f"openai:{MODEL}": "responses"} if provider == "responses" else {}
    return OpenAIModel(MODEL, Endpoint(key, f"{api.url}/v1", idle_timeout), AdapterOptions(wires))


@asynccontextmanager
async def planning(
    provider: str, *script: ScriptedResponse, key: str = KEY
) -> AsyncIterator[tuple[ModelApi, ModelPlanner]]:
    """A server with a script, and a planner that asks it."""
    async with running(api_of(provider, *script)) as api:
        yield api, ModelPlanner(model_of(provider, api, key))
