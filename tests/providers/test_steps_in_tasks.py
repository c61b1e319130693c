"""Steps that ask a model, in whole tasks on a real Temporal server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import JsonValue
from temporalio.client import Client

from activities.toolbox import builtin
from activities.toolbox.reasoning.model_tools import CALL, MAX_SUMMARY, TOOLS
from evals.fakes.model_api import ModelApi, running
from evals.fakes.script import DROPPED, Delayed, ModelCall, ModelError, ModelReply, ReceivedRequest, ScriptedResponse
from tests.harness import DONE, Stage, outcome, plan, staged, step
from tests.providers.planning import MAKER, api_of, model_of
from workflows.account.records import StepStatus
from workflows.account.task import TaskStatus
from workflows.plans.catalogue import Price
from workflows.plans.proposal import Answer, GiveUp, NewSteps, Question

TEXT = "The lamp costs 24.50 euros. It was sold in May. It is green."
TOTAL: JsonValue = {"type": "object", "properties": {"total": {"type": "number"}}, "required": ["total"]}
OVERLOADED = ModelError(529, "overloaded_error")
PRICE = Price(input=1, output=1, cache_read=1, cache_write=1)
READ = step("short", "summarise", text=TEXT, sentences=1)
TAKE = step("facts", "extract", text=TEXT, json_schema=TOTAL)
WRITE = step("letter", "compose", what="A letter.", results=[{"$from": "short", "path": "summary"}, {"$from": "facts"}])
Proposal = NewSteps | Answer | Question | GiveUp


@asynccontextmanager
async def worker(
    client: Client,
    folder: Path,
    provider: str,
    script: list[ScriptedResponse],
    *proposals: Proposal,
    price: Price | None = PRICE,
) -> AsyncIterator[tuple[ModelApi, Stage]]:
    """A worker whose steps ask a model with a script, and whose planner plays proposals."""
    async with running(api_of(provider, *script)) as api:
        model = model_of(provider, api)
        async with staged(client, folder, TOOLS, [*proposals], model=model, price=price) as stage:
            yield api, stage
        assert api.violations == []


async def test_the_three_kinds_work_on_each_other_s_results(client: Client, tmp_path: Path, provider: str) -> None:
    """A summary and values out of a text at the same time, then a letter from both; all of it is counted."""

    def model(heard: ReceivedRequest) -> ModelReply:
        if CALL in heard.tools:
            return ModelReply((ModelCall(CALL, {"total": 24.5}),))
        return ModelReply(text="It costs 24.50." if "1 at most" in heard.all_text else "Dear Ada")

    async with worker(client, tmp_path, provider, [model], plan(READ, TAKE, WRITE), DONE) as (api, stage):
        ended = await stage.run()
    results = {one.id: one.result for one in ended.steps}

    assert (ended.status, results["facts"]) == (TaskStatus.COMPLETED, {"total": 24.5})
    assert results["letter"] == {"text": "Dear Ada", "method": "model"}
    assert '["It costs 24.50.",{"total":24.5}]' in api.requests[2].all_text
    assert (ended.spent.model_calls, ended.spent.tokens, ended.spent.usd) == (3, 390, 0.00039)


async def test_a_summary_falls_back_to_the_text_s_own_sentences(client: Client, tmp_path: Path, provider: str) -> None:
    """After four attempts at a model that stays overloaded; the step is marked, and so is what it returns."""
    async with worker(client, tmp_path, provider, [OVERLOADED], plan(READ), DONE) as (api, stage):
        ended = await stage.run()
    (short,) = ended.steps

    assert (ended.status, len(api.bodies)) == (TaskStatus.COMPLETED, 4)
    assert (short.kind, short.is_fallback) == ("key_sentences", True)
    assert isinstance(short.result, dict) and short.result["method"] == "key_sentences"


async def test_values_that_do_not_fit_lead_to_a_new_plan(client: Client, tmp_path: Path, provider: str) -> None:
    """The same call is not made again; the planner sees what was wrong and changes the schema. Both are paid for."""
    looser: JsonValue = {"type": "object", "properties": {"total": {"type": "string"}}}
    again = plan(step("facts-2", "extract", text=TEXT, json_schema=looser))
    script: list[ScriptedResponse] = [ModelReply((ModelCall(CALL, {"total": "24.50"}),))]
    async with worker(client, tmp_path, provider, script, plan(TAKE), again, DONE) as (api, stage):
        ended = await stage.run()
    states = [(one.id, one.status) for one in ended.steps]

    assert (ended.status, ended.replans, len(api.bodies)) == (TaskStatus.COMPLETED, 1, 2)
    assert states == [("facts", StepStatus.FAILED), ("facts-2", StepStatus.COMPLETED)]
    assert (ended.faults[0].code, ended.spent.model_calls, ended.spent.tokens) == ("unexpected_result", 2, 260)


async def test_an_answer_that_was_lost_counts_as_the_most_that_it_may_cost(
    client: Client, tmp_path: Path, provider: str
) -> None:
    """The provider counts it, too: the connection broke after the question had been read."""
    script: list[ScriptedResponse] = [DROPPED, ModelReply(text="It costs 24.50.")]
    async with worker(client, tmp_path, provider, script, plan(READ), DONE) as (_, stage):
        ended = await stage.run()

    assert (ended.status, ended.spent.model_calls) == (TaskStatus.COMPLETED, 2)
    assert ended.spent.tokens > MAX_SUMMARY


async def test_a_cancelled_task_ends_the_question_of_its_step(client: Client, tmp_path: Path, provider: str) -> None:
    """The provider is not left to think for nobody."""
    async with worker(client, tmp_path, provider, [Delayed(60)], plan(READ), DONE) as (api, stage):
        handle = await stage.start()
        while not api.bodies:
            await asyncio.sleep(0.05)
        await handle.cancel()
        ended = await outcome(handle)
        while not api.aborted:
            await asyncio.sleep(0.05)

    assert (ended.status, len(api.bodies)) == (TaskStatus.CANCELLED, 1)


async def test_without_a_price_nobody_knows_what_steps_cost(client: Client, tmp_path: Path, provider: str) -> None:
    """The tokens are counted all the same."""
    script: list[ScriptedResponse] = [ModelReply(text="It costs 24.50.")]
    async with worker(client, tmp_path, provider, script, plan(READ), DONE, price=None) as (_, stage):
        ended = await stage.run()

    assert (ended.spent.tokens, ended.spent.usd, ended.spent.unpriced) == (130, None, 1)


async def test_money_needs_a_price_for_steps_too(client: Client, tmp_path: Path, provider: str) -> None:
    """Whoever sets a limit of money is told before anything is done that nobody could hold it."""
    async with worker(client, tmp_path, provider, [ModelReply(text="?")], plan(READ), DONE, price=None) as (api, stage):
        ended = await stage.run(usd=1)

    assert (ended.status, ended.steps, api.bodies) == (TaskStatus.FAILED, (), [])
    assert ended.reason.startswith(f"--usd needs the price of {MAKER[provider]}:some-model@")


@pytest.mark.parametrize("limits", [{"tokens": 4_000}, pytest.param({"usd": 0.004}, marks=pytest.mark.full)])
async def test_what_a_step_may_use_is_set_aside_before_it_asks(
    client: Client, tmp_path: Path, provider: str, limits: dict[str, Any]
) -> None:
    """Where too little is left the model is not asked: an answer may be as long as it is allowed to be."""
    async with worker(client, tmp_path, provider, [ModelReply(text="?")], plan(READ), DONE) as (api, stage):
        ended = await stage.run(**limits)

    assert (ended.status, ended.code, api.bodies) == (TaskStatus.OVER_BUDGET, next(iter(limits)), [])


@pytest.mark.parametrize("limits", [{"tokens": 6_000}, pytest.param({"usd": 0.006}, marks=pytest.mark.full)])
async def test_a_short_text_needs_little(client: Client, tmp_path: Path, provider: str, limits: dict[str, Any]) -> None:
    """As much is set aside as the arguments may take, and not as much as the longest ones may."""
    async with worker(client, tmp_path, provider, [ModelReply(text="Short.")], plan(READ), DONE) as (_, stage):
        ended = await stage.run(**limits)

    assert (ended.status, ended.spent.tokens) == (TaskStatus.COMPLETED, 130)


async def test_a_worker_without_a_model_summarises_by_itself(client: Client, tmp_path: Path) -> None:
    """The kinds `summarise` and `compose` are there, and no step is marked as a fallback."""
    steps = plan(READ, step("letter", "compose", what="A letter.", results={"$from": "short", "path": "summary"}))
    async with staged(client, tmp_path, builtin.tools(has_model=False), [steps, DONE]) as stage:
        ended = await stage.run()
    short, letter = ended.steps

    assert (ended.status, short.is_fallback, ended.spent.model_calls) == (TaskStatus.COMPLETED, False, 0)
    assert letter.result == {"text": "The lamp costs 24.50 euros.", "method": "list"}
