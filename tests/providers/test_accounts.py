"""Whatever ends a task, nothing that was set aside for a model stays so."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from temporalio.client import Client

from activities.planning.model_planner import ModelPlanner
from evals.fakes.model_api import running
from evals.fakes.script import DROPPED, Delayed, ModelCall, ModelError, ModelReply, ReceivedRequest, Response, calls
from replan import tool
from tests.gate import sampled
from tests.harness import outcome, staged
from tests.providers.acting import acting, reacting
from tests.providers.desk import TOOLS
from tests.providers.planning import LIMIT, api_of, model_of
from tests.providers.plates import read_plate
from workflows.account.task import TaskStatus
from workflows.agent import AgentWorkflow
from workflows.limits.spending import MAX_OUTPUT


class Long(BaseModel):
    """A long text."""

    text: str


class Nothing(BaseModel):
    """No arguments."""


@tool.read
async def sleep(args: Nothing) -> Nothing:
    """Take long."""
    await asyncio.sleep(25)
    return args


def plates(heard: ReceivedRequest) -> Response:
    """One plate after the other, whose summary nobody makes."""
    if not heard.tools:
        return ModelError(401, "authentication_error", code="invalid_api_key")
    return calls(ModelCall("read_plate", {"number": 1 + heard.turn % 3 * 2}))


def prices(heard: ReceivedRequest) -> Response:
    """Another price each turn, as long as that may be asked."""
    return calls(ModelCall("get_price", {"sku": f"A-{heard.turn}"})) if heard.may_call else ModelReply(text="So far.")


ENDS: dict[str, tuple[Any, dict[str, Any], TaskStatus, str]] = {
    "answer": (ModelReply(text="Done."), {}, TaskStatus.COMPLETED, ""),
    "the key is refused": (
        ModelError(401, "authentication_error", code="invalid_api_key"),
        {},
        TaskStatus.ESCALATED,
        "",
    ),
    "cancelled in a request": (Delayed(30), {}, TaskStatus.CANCELLED, "plan:1"),
    "cancelled in a step": (calls(ModelCall("sleep", {})), {}, TaskStatus.CANCELLED, "sleep"),
    "deadline in a request": (Delayed(30), {"deadline": 1.0}, TaskStatus.OVER_BUDGET, ""),
    "nobody can answer": (ModelReply(), {}, TaskStatus.ESCALATED, ""),
    "no call is left": (prices, {"tool_calls": 2}, TaskStatus.OVER_BUDGET, ""),
    "no token is left": (prices, {"tokens": 9_000}, TaskStatus.OVER_BUDGET, ""),
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
    async def read_all(args: Nothing) -> Long:
        """Read a long text."""
        return Long(text="x" * 180_000)

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


async def test_a_limit_that_is_suggested_does(client: Client, tmp_path: Path, provider: str) -> None:
    """Whoever follows the advice gets further."""
    async with acting(client, tmp_path, provider, ModelReply(text="Done.")) as one:
        refused = await one.run(tokens=10)
        advice = int(refused.reason.rpartition("--tokens ")[2].rstrip("."))
        ended = await one.run(tokens=advice)

    assert (refused.status, ended.status) == (TaskStatus.OVER_BUDGET, TaskStatus.COMPLETED)


async def test_after_a_lost_answer_a_shorter_one_may_have_room(client: Client, tmp_path: Path, provider: str) -> None:
    """The task is not over its budget because one worker died: what is left is asked for."""
    async with acting(client, tmp_path, provider, DROPPED, ModelReply(text="Done.")) as one:
        ended = await one.run(tokens=26_000)
    bodies = [heard.body for heard in one.api.requests]
    first, second = (body.get(LIMIT[provider]) or MAX_OUTPUT for body in bodies)

    assert (ended.status, len(one.api.bodies)) == (TaskStatus.COMPLETED, 2)
    assert second < first and ended.spent.tokens <= 26_000
