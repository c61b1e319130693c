"""What a task has used when a server counts nothing, answers in a shape that is no reply, or loses its answer."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
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
from evals.fakes.script import (
    DROPPED,
    Delayed,
    ModelCall,
    ModelError,
    ModelReply,
    RawBytes,
    ReceivedRequest,
    Response,
    calls,
    finishes,
    proposes,
    step as written,
)
from replan import tool
from runtime.dev_server import DevServer
from tests.activities.bench import bench
from tests.gate import sampled
from tests.harness import DONE, Proposals, Stage, outcome, plan, staged, step
from tests.processes import Processes
from tests.providers.acting import acting, reacting
from tests.providers.desk import TOOLS, Nothing, Page
from tests.providers.planning import LIMIT, MAKER, api_of, model_of, other
from tests.providers.plates import read_plate
from tests.providers.test_budgets import LOOK, endless, react
from workflows.account.task import Task, TaskStatus
from workflows.agent import AgentWorkflow
from workflows.limits.budget import Limits
from workflows.limits.spending import MAX_OUTPUT
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
LIMITED = Task(text="x", limits=Limits(tokens=200_000))


def shapeless(provider: str, **usage: Any) -> RawBytes:
    """A 200 that counts tokens and holds no reply."""
    return RawBytes(json_answer(200, json.dumps({"id": "x", "usage": usage or COUNTED[provider]}).encode()))


@asynccontextmanager
async def cheap(
    client: Client, folder: Path, api: ModelApi, provider: str, price: Price | None = CHEAP
) -> AsyncIterator[Stage]:
    """A worker whose model costs little."""
    async with running(api):
        planner = ModelPlanner(model_of(provider, api), price=price)
        async with staged(client, folder, TOOLS, planner, jitter=lambda: 0.01) as stage:
            yield stage


@asynccontextmanager
async def listed(
    client: Client, folder: Path, provider: str, first: ModelApi, second: ModelApi
) -> AsyncIterator[Stage]:
    """A worker with the cheap model of a provider, and the dear one of another provider after it."""
    async with running(first), running(second):
        planners = [
            ModelPlanner(model_of(provider, first), price=CHEAP),
            ModelPlanner(model_of(other(provider), second), price=DEAR),
        ]
        async with staged(client, folder, TOOLS, FallbackPlanner(planners), jitter=lambda: 0.01) as stage:
            yield stage


async def test_an_answer_without_usage_is_estimated(client: Client, tmp_path: Path, provider: str) -> None:
    """Neither limit is void, nothing is free, and the outcome says how many counts are estimates."""
    api = api_of(provider, LOOK, ModelReply(text="It costs 24.50. " * 200))
    api.window, api.hides_usage = 100_000, True
    async with cheap(client, tmp_path, api, provider) as stage:
        ended = await stage.run(react(usd=5, tokens=90_000))

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
    async with cheap(client, tmp_path, api, provider) as stage:
        ended = await stage.run(react(tool_calls=60, **limits))

    assert (ended.status, ended.code) == (TaskStatus.OVER_BUDGET, *limits)
    assert api.billed <= ended.spent.tokens
    assert ended.spent.tokens <= limits.get("tokens", 1e9) and (ended.spent.usd or 0) <= limits.get("usd", 1e9)


async def test_an_answer_of_the_wrong_shape_is_paid_and_asked_for_twice_at_most(
    client: Client, tmp_path: Path, provider: str
) -> None:
    """The provider bills what it counted. The same answer would come again, so a person is asked."""
    api = api_of(provider, shapeless(provider))
    async with cheap(client, tmp_path, api, provider) as stage:
        ended = await stage.run(Task(text="x", limits=Limits(tokens=200_000, usd=5)))

    assert (ended.status, ended.code, len(api.bodies)) == (TaskStatus.ESCALATED, "needs_person", 2)
    assert (ended.spent.model_calls, ended.spent.tokens, ended.spent.estimated) == (2, 3_000, 0)
    assert ended.spent.usd == pytest.approx(2 * BILL)


async def test_after_two_answers_of_the_wrong_shape_the_next_planner_is_asked(
    client: Client, tmp_path: Path, provider: str
) -> None:
    """Both are paid at the price of the model that gave them; the outcome says why another one planned."""
    bad, good = api_of(provider, shapeless(provider)), api_of(other(provider), LOOK, ModelReply(text="24.50"))
    async with listed(client, tmp_path, provider, bad, good) as stage:
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
    api = api_of(provider, page, page, page, finishes())
    async with cheap(client, tmp_path, api, provider) as stage:
        ended = await stage.run(LIMITED)

    assert (ended.status, len(api.bodies)) == (TaskStatus.COMPLETED, 4)
    assert (ended.spent.model_calls, ended.spent.tokens) == (1, 130)


async def test_a_step_pays_for_answers_of_the_wrong_shape(client: Client, tmp_path: Path, provider: str) -> None:
    """As a planner does: asked twice at most, both paid, then a person."""
    script: Proposals = [plan(step("a", "compose", what="A letter.", results=1)), DONE]
    async with running(api_of(provider, shapeless(provider))) as api:
        model = model_of(provider, api)
        async with staged(client, tmp_path, [compose], script, model=model, price=CHEAP, jitter=lambda: 0.01) as stage:
            ended = await stage.run(LIMITED)

    assert (ended.status, ended.code, len(api.bodies)) == (TaskStatus.ESCALATED, "needs_person", 2)
    assert (ended.spent.model_calls, ended.spent.tokens) == (2, 3_000)
    assert ended.spent.usd == pytest.approx(2 * BILL)


WRONG_KEY = {
    "anthropic": ModelError(401, "authentication_error"),
    "openai": ModelError(401, "invalid_request_error", code="invalid_api_key"),
}


@pytest.mark.parametrize("is_left", [False, True], ids=["answered", "left"])
async def test_a_lost_answer_costs_the_price_of_the_model_that_was_asked(
    client: Client, tmp_path: Path, provider: str, is_left: bool
) -> None:
    """Another model of the list may be a hundred times as dear, also if the key of the first is taken away then."""
    first = api_of(provider, DROPPED, WRONG_KEY[MAKER[provider]] if is_left else finishes())
    second = api_of(other(provider), finishes())
    async with listed(client, tmp_path, provider, first, second) as stage:
        ended = await stage.run(LIMITED)
    lost, answer = ended.spent.tokens - 130, 123 * 2e-6 + 7 * 10e-6

    assert (ended.status, len(first.bodies), len(second.bodies)) == (TaskStatus.COMPLETED, 2, int(is_left))
    assert (ended.spent.model_calls, ended.spent.estimated, lost > 16_000) == (2, 1, True)
    bill = (lost - 16_000) * 2e-6 + 16_000 * 10e-6 + (answer * 100 if is_left else answer)
    assert ended.spent.usd == pytest.approx(bill)


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
@pytest.mark.parametrize("hides_usage", [False, True], ids=["counted", "estimated"])
async def test_a_task_reserves_at_the_price_of_its_own_planner(
    server: DevServer, tmp_path: Path, hides_usage: bool
) -> None:
    """The worker's planner is a hundred times as dear as the planner that the task names, and is never asked.

    The last line of a task says `about` where a server counted nothing.
    """
    (tmp_path / "replan.toml").write_text(SETTINGS)
    api = api_of("openai", proposes(written("a", "calculate", expression="1 + 1")), finishes("2"))
    api.hides_usage = hides_usage
    async with running(api):
        given = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": f"{api.url}/v1"}
        processes = Processes(server.address, tmp_path, given)
        file = ["--settings", str(tmp_path / "replan.toml"), "--queue", f"own-planner-{hides_usage}"]
        words = ["--planner", "openai:some-model", "--usd", "0.50", "--task", "1 + 1?"]
        with processes.worker("--dev", "--planner", "openai:dear-model", *file):
            run = await asyncio.to_thread(processes.starter, *words, *file)

    assert (run.returncode, len(api.bodies)) == (0, 2), run.stdout
    assert ("2 model calls, about " if hides_usage else "2 model calls, 260 tokens for 0.0006 USD") in run.stdout


async def test_a_step_is_paid_at_the_price_of_the_model_that_answered(tmp_path: Path, provider: str) -> None:
    """Not at the highest price of the models that steps may use."""
    async with running(api_of(provider, ModelReply(text="Dear Ada"))) as api:
        cheap = MeteredModel(model_of(provider, api), CHEAP)
        dear = MeteredModel(model_of(other(provider), api_of(other(provider))), DEAR)
        async with bench(tmp_path, model=FallbackModel([cheap, dear])) as table:
            back = await table.call(compose, what="A letter.", results=1)

    assert back.usd == pytest.approx(123 * 2e-6 + 7 * 10e-6)


# Whatever ends a task, nothing that was set aside for a model stays so


@tool.read
async def sleep(args: Nothing) -> Nothing:
    """Take long."""
    await asyncio.sleep(25)
    return args


def plates(heard: ReceivedRequest) -> Response:
    """One plate after the other, whose summary nobody makes."""
    if not heard.tools:
        return NO_KEY
    return calls(ModelCall("read_plate", {"number": 1 + heard.turn % 3 * 2}))


NO_KEY = ModelError(401, "authentication_error", code="invalid_api_key")
ENDS: dict[str, tuple[Any, dict[str, Any], TaskStatus, str]] = {
    "answer": (ModelReply(text="Done."), {}, TaskStatus.COMPLETED, ""),
    "the key is refused": (NO_KEY, {}, TaskStatus.ESCALATED, ""),
    "cancelled in a request": (Delayed(30), {}, TaskStatus.CANCELLED, "plan:1"),
    "cancelled in a step": (calls(ModelCall("sleep", {})), {}, TaskStatus.CANCELLED, "sleep"),
    "deadline in a request": (Delayed(30), {"deadline": 1.0}, TaskStatus.OVER_BUDGET, ""),
    "nobody can answer": (ModelReply(), {}, TaskStatus.ESCALATED, ""),
    "no call is left": (endless, {"tool_calls": 2}, TaskStatus.OVER_BUDGET, ""),
    "no token is left": (endless, {"tokens": 9_000}, TaskStatus.OVER_BUDGET, ""),
    "no summary": (plates, {}, TaskStatus.ESCALATED, ""),
}


@pytest.mark.parametrize(
    ("script", "limits", "status", "cut"),
    sampled(ENDS, "answer", "cancelled in a request", "no call is left", "no summary"),
)
async def test_nothing_stays_set_aside(
    client: Client, tmp_path: Path, provider: str, script: Any, limits: dict[str, Any], status: TaskStatus, cut: str
) -> None:
    """The account is settled, and what is spent passes no limit by more than one request."""
    known = 12_000 if script is plates else None
    tools = [*TOOLS, sleep, read_plate]
    async with acting(client, tmp_path, provider, *[script] * 30, tools=tools, known=known) as one:
        handle = await one.stage.start(reacting(**{"tokens": 200_000, "tool_calls": 50, **limits}))
        if cut:
            async with asyncio.timeout(20):
                while not one.api.bodies or (
                    cut == "sleep" and not (await handle.query(AgentWorkflow.progress)).records
                ):
                    await asyncio.sleep(0.05)
            await handle.cancel()
        ended = await outcome(handle)
        while cut == "plan:1" and not one.api.aborted:  # the provider is not left to think for nobody
            await asyncio.sleep(0.05)
        budget = (await handle.query(AgentWorkflow.progress)).budget

    assert (ended.status, budget.held_tokens, budget.held_usd, budget.reserved) == (status, 0, 0.0, 0)
    assert not any(budget.promised.values()) and one.api.violations == []
    assert ended.spent.tokens <= limits.get("tokens", 200_000)


async def test_an_answer_that_a_stopped_worker_took_with_it_is_counted(
    client: Client, tmp_path: Path, provider: str
) -> None:
    """The task goes on with the next worker, and has paid for both requests."""
    async with running(api_of(provider, Delayed(30), ModelReply(text="Done."))) as api:
        planner = ModelPlanner(model_of(provider, api))
        async with staged(client, tmp_path, TOOLS, planner) as stage:
            handle = await stage.start(reacting(tokens=200_000))
            async with asyncio.timeout(20):
                while not api.bodies:
                    await asyncio.sleep(0.05)
        async with staged(client, tmp_path, TOOLS, planner, queue=stage.queue):
            ended = await outcome(handle)

    assert (ended.status, len(api.bodies), ended.spent.model_calls) == (TaskStatus.COMPLETED, 2, 2)
    assert 1_000 < ended.spent.tokens < 200_000


async def test_a_result_costs_what_is_shown_of_it(client: Client, tmp_path: Path, provider: str) -> None:
    """A model is told the first 8,000 characters: a long text uses no budget that nobody spends."""

    @tool.read
    async def read_all(args: Nothing) -> Page:
        """Read a long text."""
        return Page(text="x" * 180_000)

    def reader(heard: ReceivedRequest) -> Response:
        return ModelReply(text="Read.") if heard.turn else calls(ModelCall("read_all", {}))

    async with acting(client, tmp_path, provider, reader, tools=[read_all]) as one:
        ended = await one.run(tokens=50_000)

    assert (ended.status, ended.result, one.api.violations) == (TaskStatus.COMPLETED, "Read.", [])


async def test_lost_answers_do_not_pass_the_limit(client: Client, tmp_path: Path, provider: str) -> None:
    """Each may have cost all that was reserved for it, so no further request is made that has no room."""
    async with acting(client, tmp_path, provider, DROPPED) as one:
        ended = await one.run(tokens=50_000)

    assert (ended.status, ended.code) == (TaskStatus.OVER_BUDGET, "tokens")
    assert 0 < ended.spent.tokens <= 50_000 and len(one.api.bodies) >= 2
    assert "give more, e.g. --tokens " in ended.reason


async def test_a_shorter_answer_may_have_room(client: Client, tmp_path: Path, provider: str) -> None:
    """What is left after a lost answer is asked for; whoever follows the advice for a limit gets further."""
    async with acting(client, tmp_path, provider, DROPPED, ModelReply(text="Done.")) as one:
        ended = await one.run(tokens=26_000)
        first, second = (heard.body.get(LIMIT[provider]) or MAX_OUTPUT for heard in one.api.requests)
        refused = await one.run(tokens=10)
        advised = await one.run(tokens=int(refused.reason.rpartition("--tokens ")[2].rstrip(".")))

    assert (ended.status, len(one.api.bodies)) == (TaskStatus.COMPLETED, 3)
    assert second < first and ended.spent.tokens <= 26_000
    assert (refused.status, advised.status) == (TaskStatus.OVER_BUDGET, TaskStatus.COMPLETED)
