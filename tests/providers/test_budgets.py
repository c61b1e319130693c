"""Tokens and money of whole tasks, against servers that hold their providers' rules: all counted, no limit passed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from activities.offline.planner import OfflinePlanner
from activities.planning.fallback import FallbackPlanner
from activities.planning.model_planner import ModelPlanner
from evals.fakes.model_api import KEY, ModelApi, running
from evals.fakes.script import (
    DROPPED,
    ModelCall,
    ModelReply,
    ReceivedRequest,
    Response,
    ScriptedResponse,
    calls,
    finishes,
)
from runtime.dev_server import DevServer
from tests.harness import Stage, outcome, plan, staged, step
from tests.processes import Processes
from tests.providers.desk import TOOLS
from tests.providers.planning import LIMIT, MAKER, api_of, model_of
from workflows.account.records import StepStatus
from workflows.account.task import Task, TaskStatus
from workflows.agent import AgentWorkflow
from workflows.limits.budget import Limits
from workflows.plans.catalogue import Price
from workflows.plans.proposal import Answer

PRICE = Price(input=2, output=10, cache_read=0.2, cache_write=2.5)
USED = (100 * 2 + 7 * 10 + 3 * 0.2 + 20 * 2.5) / 1_000_000
"""What one reply of the server costs at this price: 123 tokens told, of which 3 read and 20 written, and 7 said."""
LOOK = calls(ModelCall("get_price", {"sku": "A-17"}))


@asynccontextmanager
async def priced(
    client: Client,
    folder: Path,
    provider: str,
    *script: ScriptedResponse,
    price: Price | None = PRICE,
    window: int | None = None,
    tools: Any = TOOLS,
) -> AsyncIterator[tuple[ModelApi, Stage]]:
    """A server with a script, and a worker whose model costs so much."""
    api = api_of(provider, *script)
    api.window = window
    async with running(api):
        planner = ModelPlanner(model_of(provider, api), price=price)
        async with staged(client, folder, tools, planner) as stage:
            yield api, stage


def react(**limits: Any) -> Task:
    """A task that is done one move at a time."""
    return Task(text="what does A-17 cost?", strategy="react", limits=Limits(**{"replans": 20, **limits}))


def endless(heard: ReceivedRequest) -> Response:
    """A model that asks for one price after the other as long as it may."""
    if not heard.may_call:
        return ModelReply(text="That is all that I found.")
    return calls(ModelCall("get_price", {"sku": f"A-{heard.turn}"}))


async def test_what_a_task_cost_is_counted_at_the_prices_of_each_class(
    client: Client, tmp_path: Path, provider: str
) -> None:
    """Input, output, cache reads and cache writes, as the provider's own fields say."""
    async with priced(client, tmp_path, provider, LOOK, ModelReply(text="12.50")) as (api, stage):
        ended = await stage.run(react(usd=5))

    assert (ended.status, ended.spent.model_calls, api.violations) == (TaskStatus.COMPLETED, 2, [])
    assert ended.spent.usd == pytest.approx(2 * USED)


async def test_money_that_is_used_up_ends_the_loop_with_all_that_was_finished(
    client: Client, tmp_path: Path, provider: str
) -> None:
    """Never more than the limit; the last answer is its result, and each finished step is there."""
    async with priced(client, tmp_path, provider, endless, window=100_000) as (api, stage):
        ended = await stage.run(react(usd=0.08, tool_calls=200))

    assert (ended.status, ended.code, ended.result) == (TaskStatus.OVER_BUDGET, "usd", "That is all that I found.")
    assert float(ended.reason.rpartition("--usd ")[2].rstrip(".")) >= 0.16
    assert 0 < (ended.spent.usd or 0) <= 0.08
    assert len(ended.steps) > 0 and {one.status for one in ended.steps} == {StepStatus.COMPLETED}
    assert api.violations == []


async def test_a_reply_is_never_allowed_more_than_is_left(client: Client, tmp_path: Path, provider: str) -> None:
    """Each request says how long its answer may be; that shrinks with what is left, once the input is known exactly."""
    async with priced(client, tmp_path, provider, endless, window=100_000) as (api, stage):
        await stage.run(react(tokens=20_000, tool_calls=200))
    allowed = [body[LIMIT[provider]] for body in api.bodies]

    assert len(allowed) > 2 and max(allowed) < 20_000
    # It grows once, where a shorter last answer is kept back.
    assert sum(later >= earlier for earlier, later in pairwise(allowed[1:-1])) <= 1


@pytest.mark.full
async def test_a_server_of_one_s_own_is_told_the_limit_of_its_answer(client: Client, tmp_path: Path) -> None:
    """A model that writes almost as long as it may does not pass the limit of tokens."""

    def verbose(heard: ReceivedRequest) -> Response:  # a reply of all the tokens counts as cut off
        return ModelReply(text="long" * (int(heard.body.get("max_completion_tokens", 75_000)) - 1))

    async with priced(client, tmp_path, "openai", verbose, window=200_000) as (_, stage):
        ended = await stage.run(react(tokens=60_000))

    assert (ended.status, ended.spent.tokens <= 60_000) == (TaskStatus.COMPLETED, True)


async def test_an_unknown_price_is_unknown_and_not_zero(client: Client, tmp_path: Path, provider: str) -> None:
    """The tokens are counted; what they cost nobody knows."""
    async with priced(client, tmp_path, provider, LOOK, ModelReply(text="12.50"), price=None) as (_, stage):
        ended = await stage.run(react())

    assert (ended.status, ended.spent.usd, ended.spent.unpriced) == (TaskStatus.COMPLETED, None, 2)
    assert ended.spent.tokens > 0


async def test_a_limit_of_money_with_an_unknown_price_is_refused_at_the_start(
    client: Client, tmp_path: Path, provider: str
) -> None:
    """Before any request; the sentence names the model and both remedies."""
    async with priced(client, tmp_path, provider, LOOK, price=None) as (api, stage):
        ended = await stage.run(react(usd=1))
    name = f"{MAKER[provider]}:some-model@{api.url.removeprefix('http://')}"

    assert (ended.status, ended.code, api.bodies) == (TaskStatus.FAILED, "task_refused", [])
    assert ended.reason == (
        f"--usd needs the price of {name}, which is not known: give it in the settings file of the worker"
        f' ([models.prices."{name}"]), or leave out --usd.'
    )


async def test_one_unknown_price_in_a_list_is_enough_to_refuse(client: Client, tmp_path: Path, provider: str) -> None:
    """Any planner of the list may have to answer."""
    async with running(api_of(provider)) as api:
        model = model_of(provider, api)
        several = FallbackPlanner([ModelPlanner(model, price=PRICE), ModelPlanner(model), OfflinePlanner()])
        async with staged(client, tmp_path, TOOLS, several) as stage:
            ended = await stage.run(react(usd=1))

    assert (ended.code, api.bodies) == ("task_refused", [])


async def test_rules_cost_nothing_so_a_limit_of_money_does_not_trouble_them(client: Client, tmp_path: Path) -> None:
    """No model, no price to know."""
    async with staged(
        client, tmp_path, TOOLS, [plan(step("a", "get_price", sku="A-17")), Answer(result="done")]
    ) as stage:
        ended = await stage.run(usd=1, tokens=1)

    assert (ended.status, ended.spent.usd, ended.spent.tokens) == (TaskStatus.COMPLETED, None, 0)


async def test_a_request_whose_answer_was_lost_counts_as_all_that_was_reserved(
    client: Client, tmp_path: Path, provider: str
) -> None:
    """The connection broke: the provider may have answered, and counts it."""
    async with priced(client, tmp_path, provider, DROPPED, finishes("done")) as (api, stage):
        ended = await stage.run(Task(text="x", limits=Limits(tokens=200_000)))

    assert (ended.status, len(api.bodies)) == (TaskStatus.COMPLETED, 2)
    assert (ended.spent.model_calls, ended.spent.tokens > 16_000) == (2, True)


async def test_a_provider_that_could_not_be_reached_costs_nothing(
    client: Client, tmp_path: Path, provider: str
) -> None:
    """No connection, no answer that somebody could count; nor does the wait for it, when it is cancelled."""
    api = api_of(provider)
    async with running(api):
        pass  # what is closed again refuses connections
    planner = ModelPlanner(model_of(provider, api), price=PRICE)
    async with staged(client, tmp_path, TOOLS, planner, jitter=lambda: 0.01) as stage:
        handle = await stage.start(Task(text="x", limits=Limits(tokens=200_000)))
        while (await handle.query(AgentWorkflow.progress)).waiting is None:
            await asyncio.sleep(0.05)
        await handle.cancel()
        ended = await outcome(handle)

    assert ended.status is TaskStatus.CANCELLED
    assert (ended.spent.model_calls, ended.spent.tokens) == (0, 0)


SETTINGS = """
[budgets.background]
usd = 0.40
[models.prices."openai:some-model"]
input = 2
output = 10
cache_read = 0.2
cache_write = 2.5
"""


@pytest.mark.full
async def test_one_settings_file_holds_the_budget_and_the_price(server: DevServer, tmp_path: Path) -> None:
    """The worker knows what its own server's model costs, the task what it may cost; its last line says what it did.

    A worker without the file refuses the same task before any request.
    """
    (tmp_path / "replan.toml").write_text(SETTINGS)
    api = api_of("openai", calls(ModelCall("calculate", {"expression": "1 + 1"})), ModelReply(text="2"))
    async with running(api):
        given = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": f"{api.url}/v1"}
        processes = Processes(server.address, tmp_path, given)
        file = ["--settings", str(tmp_path / "replan.toml")]
        worker, words = ["--dev", "--planner", "openai:some-model"], ["--strategy", "react", "--task", "1 + 1?", *file]
        with processes.worker(*worker, "--queue", "priced", *file):
            priced_run = await asyncio.to_thread(processes.starter, *words, "--queue", "priced")
        requests = len(api.bodies)
        with processes.worker(*worker, "--queue", "unpriced"):
            refused = await asyncio.to_thread(processes.starter, *words, "--queue", "unpriced")

    assert "1 tool call, 2 model calls, 260 tokens for 0.0006 USD" in priced_run.stdout
    assert (refused.returncode, len(api.bodies) - requests) == (2, 0)
    assert "--usd needs the price of openai:some-model@127.0.0.1" in refused.stdout
