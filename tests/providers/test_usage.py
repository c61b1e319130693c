"""What a task has used when a server counts nothing, answers in a shape that is no reply, or loses its answer."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from activities.planning.fallback import FallbackPlanner
from activities.planning.model_planner import ModelPlanner
from activities.providers.fallback import FallbackModel
from activities.providers.metering import MeteredModel
from activities.toolbox.reasoning.model_tools import compose
from evals.fakes.model_api import KEY, ModelApi, json_answer, running
from evals.fakes.script import DROPPED, ModelError, ModelReply, RawBytes, finishes, proposes, step as written
from runtime.dev_server import DevServer
from tests.activities.bench import bench
from tests.gate import sampled
from tests.harness import DONE, Proposals, plan, staged, step
from tests.processes import Processes
from tests.providers.desk import TOOLS
from tests.providers.planning import MAKER, PROVIDERS, api_of, model_of
from tests.providers.test_budgets import LOOK, endless, react
from workflows.account.outcome import Outcome
from workflows.account.task import Task, TaskStatus
from workflows.limits.budget import Limits
from workflows.plans.catalogue import Price

CHEAP = Price(input=2, output=10, cache_read=2, cache_write=2)
DEAR = Price(input=200, output=1000, cache_read=200, cache_write=200)
COUNTED: Mapping[str, Mapping[str, int]] = {
    "anthropic": {"input_tokens": 500, "output_tokens": 1_000},
    "openai": {"prompt_tokens": 500, "completion_tokens": 1_000},
    "responses": {"input_tokens": 500, "output_tokens": 1_000},
}
BILL = 500 * 2e-6 + 1_000 * 10e-6
"""What such an answer costs at the lower price."""


def other(provider: str) -> str:
    """The other provider."""
    return next(name for name in PROVIDERS if name != provider)


def shapeless(provider: str, **usage: Any) -> RawBytes:
    """A 200 that counts tokens and holds no reply."""
    return RawBytes(json_answer(200, json.dumps({"id": "x", "usage": usage or COUNTED[provider]}).encode()))


async def test_an_answer_without_usage_is_estimated(client: Client, tmp_path: Path, provider: str) -> None:
    """Neither limit is void, nothing is free, and the outcome says how many counts are estimates."""
    api = api_of(provider, LOOK, ModelReply(text="It costs 24.50. " * 200))
    api.window, api.hides_usage = 100_000, True
    async with running(api), staged(client, tmp_path, TOOLS, ModelPlanner(model_of(provider, api), price=CHEAP)) as one:
        ended = await one.run(react(usd=5, tokens=90_000))

    assert (ended.status, ended.spent.model_calls, ended.spent.estimated) == (TaskStatus.COMPLETED, 2, 2)
    assert api.billed <= ended.spent.tokens <= 2 * api.billed
    assert (ended.spent.usd or 0) >= 2e-6 * api.billed


HELD = {"tokens": ({"tokens": 40_000},), "usd": ({"usd": 0.2},)}


@pytest.mark.parametrize("limits", sampled(HELD, "usd"))
async def test_limits_hold_for_a_server_without_usage(
    client: Client, tmp_path: Path, provider: str, limits: dict[str, Any]
) -> None:
    """A model that never ends is ended, by the limit that was set, before the server has counted more than that."""
    api = api_of(provider, endless)
    api.window, api.hides_usage = 200_000, True
    async with running(api), staged(client, tmp_path, TOOLS, ModelPlanner(model_of(provider, api), price=CHEAP)) as one:
        ended = await one.run(react(tool_calls=60, **limits))

    assert (ended.status, ended.code) == (TaskStatus.OVER_BUDGET, *limits)
    assert api.billed <= ended.spent.tokens
    assert ended.spent.tokens <= limits.get("tokens", 1e9) and (ended.spent.usd or 0) <= limits.get("usd", 1e9)


async def test_an_answer_of_the_wrong_shape_is_paid_and_asked_for_twice_at_most(
    client: Client, tmp_path: Path, provider: str
) -> None:
    """The provider bills what it counted. The same answer would come again, so a person is asked."""
    async with running(api_of(provider, shapeless(provider))) as api:
        planner = ModelPlanner(model_of(provider, api), price=CHEAP)
        async with staged(client, tmp_path, TOOLS, planner, jitter=lambda: 0.01) as stage:
            ended = await stage.run(Task(text="x", limits=Limits(tokens=200_000, usd=5)))

    assert (ended.status, ended.code, len(api.bodies)) == (TaskStatus.ESCALATED, "needs_person", 2)
    assert (ended.spent.model_calls, ended.spent.tokens, ended.spent.estimated) == (2, 3_000, 0)
    assert ended.spent.usd == pytest.approx(2 * BILL)


async def test_after_two_answers_of_the_wrong_shape_the_next_planner_is_asked(
    client: Client, tmp_path: Path, provider: str
) -> None:
    """Both are paid at the price of the model that gave them; the outcome says why another one planned."""
    bad, good = api_of(provider, shapeless(provider)), api_of(other(provider), LOOK, ModelReply(text="24.50"))
    async with running(bad), running(good):
        planners = [
            ModelPlanner(model_of(provider, bad), price=CHEAP),
            ModelPlanner(model_of(other(provider), good), price=DEAR),
        ]
        async with staged(client, tmp_path, TOOLS, FallbackPlanner(planners), jitter=lambda: 0.01) as stage:
            ended = await stage.run(react(tokens=200_000))
    own = 2 * (123 * 200e-6 + 7 * 1000e-6)

    assert (ended.status, len(bad.bodies), len(good.bodies)) == (TaskStatus.COMPLETED, 4, 2)
    assert [one.code for one in ended.failovers] == ["needs_person"]
    assert (ended.spent.model_calls, ended.spent.tokens) == (6, 4 * 1_500 + 2 * 130)
    assert ended.spent.usd == pytest.approx(4 * BILL + own)


async def test_a_broken_answer_is_not_paid_where_nothing_was_counted(
    client: Client, tmp_path: Path, provider: str
) -> None:
    """A proxy's page costs nothing, and is asked for again like any other server error."""
    page = RawBytes(json_answer(200, b"{}"))
    async with running(api_of(provider, page, page, page, finishes())) as api:
        planner = ModelPlanner(model_of(provider, api), price=CHEAP)
        async with staged(client, tmp_path, TOOLS, planner, jitter=lambda: 0.01) as stage:
            ended = await stage.run(Task(text="x", limits=Limits(tokens=200_000)))

    assert (ended.status, len(api.bodies)) == (TaskStatus.COMPLETED, 4)
    assert (ended.spent.model_calls, ended.spent.tokens) == (1, 130)


async def test_a_step_pays_for_answers_of_the_wrong_shape(client: Client, tmp_path: Path, provider: str) -> None:
    """As a planner does: asked twice at most, both paid, then a person."""
    script: Proposals = [plan(step("a", "compose", what="A letter.", results=1)), DONE]
    async with running(api_of(provider, shapeless(provider))) as api:
        model = model_of(provider, api)
        async with staged(client, tmp_path, [compose], script, model=model, price=CHEAP, jitter=lambda: 0.01) as stage:
            ended = await stage.run(Task(text="x", limits=Limits(tokens=200_000)))

    assert (ended.status, ended.code, len(api.bodies)) == (TaskStatus.ESCALATED, "needs_person", 2)
    assert (ended.spent.model_calls, ended.spent.tokens) == (2, 3_000)
    assert ended.spent.usd == pytest.approx(2 * BILL)


async def fall_back(client: Client, folder: Path, provider: str, cheap: ModelApi, dear: ModelApi) -> Outcome:
    """Run a task with the cheap model of a provider, and the dear one of the other provider after it."""
    async with running(cheap), running(dear):
        planners = [
            ModelPlanner(model_of(provider, cheap), price=CHEAP),
            ModelPlanner(model_of(other(provider), dear), price=DEAR),
        ]
        async with staged(client, folder, TOOLS, FallbackPlanner(planners), jitter=lambda: 0.01) as stage:
            return await stage.run(Task(text="x", limits=Limits(tokens=200_000)))


async def test_a_lost_answer_costs_the_price_of_the_model_that_was_asked(
    client: Client, tmp_path: Path, provider: str
) -> None:
    """Another model of the list may be a hundred times as dear."""
    cheap, dear = api_of(provider, DROPPED, finishes()), api_of(other(provider), finishes())
    ended = await fall_back(client, tmp_path, provider, cheap, dear)
    lost = ended.spent.tokens - 130

    assert (ended.status, len(cheap.bodies), len(dear.bodies)) == (TaskStatus.COMPLETED, 2, 0)
    assert (ended.spent.model_calls, ended.spent.estimated, lost > 16_000) == (2, 1, True)
    assert ended.spent.usd == pytest.approx((lost - 16_000) * 2e-6 + 16_000 * 10e-6 + 123 * 2e-6 + 7 * 10e-6)


WRONG_KEY = {
    "anthropic": ModelError(401, "authentication_error"),
    "openai": ModelError(401, "invalid_request_error", code="invalid_api_key"),
}


async def test_an_answer_that_was_lost_before_a_failover_keeps_its_price(
    client: Client, tmp_path: Path, provider: str
) -> None:
    """The first model was asked, then its key was taken away: what it may bill is at its own price."""
    cheap = api_of(provider, DROPPED, WRONG_KEY[MAKER[provider]])
    dear = api_of(other(provider), finishes())
    ended = await fall_back(client, tmp_path, provider, cheap, dear)
    lost = ended.spent.tokens - 130

    assert (len(cheap.bodies), len(dear.bodies), ended.spent.model_calls) == (2, 1, 2)
    assert ended.spent.usd == pytest.approx((lost - 16_000) * 2e-6 + 16_000 * 10e-6 + 123 * 200e-6 + 7 * 1000e-6)


SETTINGS = """
[models.prices."openai:some-model"]
input = 2
output = 10
cache_read = 2
cache_write = 2
[models.prices."openai:dear-model"]
input = 200
output = 1000
cache_read = 200
cache_write = 200
"""


@pytest.mark.full
async def test_a_task_reserves_at_the_price_of_its_own_planner(server: DevServer, tmp_path: Path) -> None:
    """The worker's planner is a hundred times as dear as the planner that the task names, and is never asked."""
    (tmp_path / "replan.toml").write_text(SETTINGS)
    async with running(api_of("openai", proposes(written("a", "calculate", expression="1 + 1")), finishes("2"))) as api:
        given = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": f"{api.url}/v1"}
        processes = Processes(server.address, tmp_path, given)
        file = ["--settings", str(tmp_path / "replan.toml"), "--queue", "own-planner"]
        words = ["--planner", "openai:some-model", "--usd", "0.50", "--task", "1 + 1?"]
        with processes.worker("--dev", "--planner", "openai:dear-model", *file):
            run = await asyncio.to_thread(processes.starter, *words, *file)

    assert (run.returncode, len(api.bodies)) == (0, 2), run.stdout
    assert "2 model calls, 260 tokens for 0.0006 USD" in run.stdout


@pytest.mark.full
async def test_a_printed_estimate_is_called_one(server: DevServer, tmp_path: Path) -> None:
    """The last line of a task says `about` where a server counted nothing."""
    api = api_of("openai", proposes(written("a", "calculate", expression="1 + 1")), finishes("2"))
    api.hides_usage = True
    async with running(api):
        processes = Processes(server.address, tmp_path, {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": f"{api.url}/v1"})
        with processes.worker("--dev", "--planner", "openai:some-model", "--queue", "uncounted"):
            run = await asyncio.to_thread(processes.starter, "--task", "1 + 1?", "--queue", "uncounted")

    assert "2 model calls, about " in run.stdout


async def test_a_step_is_paid_at_the_price_of_the_model_that_answered(tmp_path: Path, provider: str) -> None:
    """Not at the highest price of the models that steps may use."""
    async with running(api_of(provider, ModelReply(text="Dear Ada"))) as api:
        cheap = MeteredModel(model_of(provider, api), CHEAP)
        dear = MeteredModel(model_of(other(provider), api_of(other(provider))), DEAR)
        async with bench(tmp_path, model=FallbackModel([cheap, dear])) as table:
            back = await table.call(compose, what="A letter.", results=1)

    assert back.usd == pytest.approx(123 * 2e-6 + 7 * 10e-6)
