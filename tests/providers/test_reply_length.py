"""How long a reply may be: what the budget leaves, what the window holds, and no guess at a server of one's own."""

import asyncio
from typing import Any

import pytest

from activities.planning.model_planner import REPLY_PART, ModelPlanner
from activities.providers.metering import start_meter
from evals.fakes.model_api import running
from evals.fakes.script import ModelError, ReceivedRequest, Response, finishes
from tests.activities.situations import KINDS, asked
from tests.providers.planning import LIMIT, MAKER, api_of, model_of
from workflows.limits.spending import MAX_OUTPUT
from workflows.plans.proposal import Proposed


async def limit(provider: str, window: int | None = None, **more: Any) -> int | None:
    """The limit that a request says."""
    async with running(api_of(provider, finishes())) as api:
        await ModelPlanner(model_of(provider, api), window=window).propose(asked("do it", **more), KINDS)

    found = api.bodies[0].get(LIMIT[provider])
    return None if found is None else int(found)


async def test_anthropic_is_told_the_usual_length() -> None:
    """It wants to be told one."""
    assert await limit("anthropic") == MAX_OUTPUT


@pytest.mark.parametrize("provider", ["openai", "responses"])
async def test_a_server_of_one_s_own_decides_by_itself(provider: str) -> None:
    """One whose window is smaller than the usual length would refuse every request."""
    assert await limit(provider) is None


@pytest.mark.parametrize("most", [700, MAX_OUTPUT])
async def test_a_budget_is_told(provider: str, most: int) -> None:
    """Wherever the server is, and however much is left."""
    assert await limit(provider, max_output=most) == most


TOO_LONG = {
    "openai": "This model's maximum context length is 8192 tokens.",
    "anthropic": "input length and `max_tokens` exceed context limit: 900 + 16000 > 8192",
}


@pytest.mark.parametrize(("provider", "requests"), [("openai", 2), ("responses", 2), ("anthropic", 1)])
async def test_a_window_that_does_not_hold_the_limit_is_a_limit_itself(provider: str, requests: int) -> None:
    """vLLM rejects a limit that its window does not hold: without one, its answer is shorter. Anthropic wants one."""

    def small(heard: ReceivedRequest) -> Response:
        if LIMIT[provider] in heard.body:
            return ModelError(400, "invalid_request_error", TOO_LONG[MAKER[provider]])
        return finishes()

    meter = start_meter()
    async with running(api_of(provider, small)) as api:
        asking = ModelPlanner(model_of(provider, api)).propose(asked("do it", max_output=MAX_OUTPUT), KINDS)
        [proposed] = await asyncio.gather(asking, return_exceptions=True)

    assert (len(api.bodies), api.violations) == (requests, [])
    assert (isinstance(proposed, Proposed), len(meter.wasted)) == (requests == 2, requests - 1)


async def test_a_small_window_keeps_room_for_what_is_told(provider: str) -> None:
    """A reply may fill a part of it."""
    assert await limit(provider, window=8_000) == 8_000 // REPLY_PART
