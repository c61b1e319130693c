"""Whole tasks on a real Temporal server, planned by a model behind a server that holds its provider's rules."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client

from activities.planning.fallback import FallbackPlanner
from evals.fakes.model_api import KEY, ModelApi
from evals.fakes.script import DROPPED, Delayed, ModelError, ModelReply, Response, finishes, proposes, step
from tests.gate import sampled
from tests.harness import Stage, outcome, staged
from tests.providers.desk import PAGE, TOOLS
from tests.providers.planning import MAKER, PROVIDERS, planning
from workflows.account.outcome import Outcome
from workflows.account.records import StepStatus
from workflows.account.task import Task, TaskStatus
from workflows.plans.proposal import BY_HAND, NewSteps, Step

PRICES = proposes(
    step("a", "get_price", sku="A-17"),
    step("b", "get_price", sku="B-2"),
    step("sum", "add", amounts=[{"$from": "a", "path": "amount"}, {"$from": "b", "path": "amount"}]),
)


async def test_a_task_is_planned_carried_out_and_answered(client: Client, tmp_path: Path, provider: str) -> None:
    """Two steps at once, a third that takes their results, and the model sees them before it answers."""
    async with planned(client, tmp_path, provider, PRICES, finishes("26.50 in all")) as (api, stage):
        ended = await stage.run("what do A-17 and B-2 cost together?")

    assert (ended.status, ended.result) == (TaskStatus.COMPLETED, "26.50 in all")
    assert ended.planner == f"{MAKER[provider]}:some-model@{api.url.removeprefix('http://')}"
    assert (ended.spent.model_calls, ended.spent.tokens, ended.spent.tool_calls) == (2, 260, 3)
    assert (len(api.bodies), api.violations) == (2, [])
    assert "26.5" in json.dumps(api.bodies[1])


async def test_a_refused_step_leads_to_another_plan(client: Client, tmp_path: Path, provider: str) -> None:
    """The model is told what was refused and what is free, and what it had finished stays."""
    script = (
        proposes(step("price", "get_price", sku="A-17"), step("slot", "book", at="14:00")),
        proposes(step("slot-2", "book", at="14:30")),
        finishes("14:30"),
    )
    async with planning(provider, *script) as (api, planner), staged(client, tmp_path, TOOLS, planner) as stage:
        ended = await stage.run("book a slot at 14:00 and look up the price of A-17")
    states = {one.id: one.status for one in ended.steps}

    assert (ended.status, ended.replans) == (TaskStatus.COMPLETED, 1)
    assert states == {"price": StepStatus.COMPLETED, "slot": StepStatus.FAILED, "slot-2": StepStatus.COMPLETED}
    assert "14:30" in json.dumps(api.bodies[1]) and api.violations == []


@pytest.mark.parametrize("strategy", ["plan", "react"])
async def test_a_model_that_follows_hand_written_plans_has_seen_them(
    client: Client, tmp_path: Path, provider: str, strategy: Literal["plan", "react"]
) -> None:
    """It is asked once, told the rejection and what followed it as its own turns, and only its answer is counted."""
    first = (Step(id="slot", kind="book", args={"at": "14:00"}),)
    then = NewSteps(steps=(Step(id="later", kind="book", args={"at": "14:30"}),))
    task = Task(text="book a slot", plan=first, revisions=(then,), strategy=strategy)
    answer = finishes("14:30") if strategy == "plan" else ModelReply(text="14:30")
    async with planned(client, tmp_path, provider, answer) as (api, stage):
        ended = await stage.run(task)
    sent = json.dumps(api.bodies[0])

    assert (ended.status, ended.result, ended.replans) == (TaskStatus.COMPLETED, "14:30", 1)
    assert ([one.planner for one in ended.revisions], ended.spent.model_calls) == ([BY_HAND, BY_HAND], 1)
    assert ended.planner.startswith(MAKER[provider])
    assert ("was refused (conflict)" in sent, "later is finished" in sent, api.violations) == (True, True, [])


CIRCLE = step("a", "book", "b", at="14:30"), step("b", "book", "a", at="15:00")
WRONG = {
    "unknown kind": (proposes(step("slot", "bok", at="14:30")), "did you mean book"),
    "unknown argument": (proposes(step("slot", "book", when="14:30")), "has no argument 'when'"),
    "misfit": (proposes(step("slot", "book", at="soon")), "'at'"),
    "unknown step": (proposes(step("slot", "book", at={"$from": "nothing"})), "which does not exist"),
    "circle": (proposes(*CIRCLE), "need each other in a circle"),
    "no steps": (proposes(), "the plan has no steps"),
    "text": (ModelReply(text="I booked it."), "text where a call was wanted"),
    "refusal": (ModelReply(refusal="I cannot."), "you declined to answer"),
    "nothing": (ModelReply(), "your answer was empty"),
}


@pytest.mark.parametrize(("wrong", "reason"), sampled(WRONG, "misfit", "unknown step", "refusal"))
async def test_a_model_mends_its_own_mistake(
    client: Client, tmp_path: Path, provider: str, wrong: ModelReply, reason: str
) -> None:
    """It is told exactly what is wrong, and nothing of the bad plan is carried out."""
    script = (wrong, proposes(step("slot", "book", at="14:30")), finishes())
    async with planning(provider, *script) as (api, planner), staged(client, tmp_path, TOOLS, planner) as stage:
        ended = await stage.run("book a slot at 14:30")

    assert (ended.status, len(ended.steps), ended.spent.tool_calls) == (TaskStatus.COMPLETED, 1, 1)
    assert reason in json.dumps(api.bodies[1]) and api.violations == []


async def test_a_model_that_does_not_mend_it_leads_to_a_person(client: Client, tmp_path: Path, provider: str) -> None:
    """After two corrections nobody is asked again."""
    async with planned(client, tmp_path, provider, ModelReply(text="No.")) as (api, stage):
        ended = await stage.run()

    assert (ended.status, ended.code, len(api.bodies)) == (TaskStatus.ESCALATED, "proposals_rejected", 3)


UNUSABLE = {
    "anthropic": ModelError(401, "authentication_error", f"invalid x-api-key {KEY}"),
    "openai": ModelError(429, "insufficient_quota", "You exceeded your current quota", "insufficient_quota"),
}


async def test_the_next_provider_takes_over(client: Client, tmp_path: Path, provider: str) -> None:
    """One request to the one that cannot be used, none of them retried; the task names who answered."""
    other = next(name for name in PROVIDERS if name != provider)
    async with (
        planning(provider, UNUSABLE[MAKER[provider]]) as (first, broken),
        planning(other, PRICES, finishes()) as (second, whole),
        staged(client, tmp_path, TOOLS, FallbackPlanner([broken, whole])) as stage,
    ):
        ended = await stage.run("what do they cost?")

    assert (ended.status, ended.planner) == (TaskStatus.COMPLETED, whole.name)
    assert (len(first.bodies), len(second.bodies)) == (2, 2)  # each request begins with the first planner


async def test_without_another_provider_a_person_is_needed(client: Client, tmp_path: Path, provider: str) -> None:
    """At once, after one request."""
    async with planned(client, tmp_path, provider, UNUSABLE[MAKER[provider]]) as (api, stage):
        ended = await stage.run()

    assert (ended.status, len(api.bodies)) == (TaskStatus.ESCALATED, 1)
    assert ended.code in ("unauthorized", "quota_exhausted") and KEY not in ended.model_dump_json()


CURABLE = {
    "overloaded": (ModelError(529, "overloaded_error", "Overloaded", headers={"x-should-retry": "true"}),),
    "error": (ModelError(500, "api_error"),),
    "conflict": (ModelError(409, "conflict_error"),),
    "dropped": (DROPPED,),
}


@pytest.mark.parametrize("move", sampled(CURABLE, "overloaded"))
async def test_one_request_for_each_attempt(client: Client, tmp_path: Path, provider: str, move: Response) -> None:
    """Time cures it, and Temporal alone retries: what is on the wire is what history counts."""
    async with planned(client, tmp_path, provider, move, move, finishes()) as (api, stage):
        ended, attempts, _ = await with_history(stage)

    assert (ended.status, len(api.bodies), attempts) == (TaskStatus.COMPLETED, 3, 3)


async def test_a_retry_after_is_waited_for_in_temporal(client: Client, tmp_path: Path, provider: str) -> None:
    """About two seconds, in a backoff of the server's: no activity runs meanwhile."""
    busy = ModelError(429, "rate_limit_error", headers={"retry-after": "2"})
    async with planned(client, tmp_path, provider, busy, finishes()) as (api, stage):
        _, attempts, _ = await with_history(stage)

    assert attempts == 2 and 2 <= api.times[1] - api.times[0] < 6


async def test_a_cancelled_task_ends_the_request(client: Client, tmp_path: Path, provider: str) -> None:
    """The provider is not left to think for nobody."""
    async with planned(client, tmp_path, provider, Delayed(60)) as (api, stage):
        handle = await stage.start()
        while not api.bodies:
            await asyncio.sleep(0.05)
        await handle.cancel()
        ended = await outcome(handle)
        while not api.aborted:
            await asyncio.sleep(0.05)

    assert (ended.status, len(api.bodies)) == (TaskStatus.CANCELLED, 1)


async def test_no_key_is_in_any_history(client: Client, tmp_path: Path, provider: str) -> None:
    """Not after a failure that quotes it, either; what a page says reaches the model fenced."""
    script = (UNUSABLE[MAKER[provider]], proposes(step("page", "read_page", sku="A-17")), finishes())
    async with (
        planning(provider, *script[1:]) as (api, planner),
        planning(provider, script[0]) as (_, broken),
        staged(client, tmp_path, TOOLS, FallbackPlanner([broken, planner])) as stage,
    ):
        _, _, history = await with_history(stage)
    last = str(api.bodies[-1])

    assert KEY not in history and PAGE in history
    assert last.index('<data from="page">') < last.index(PAGE) < last.index("</data>", last.index(PAGE))


@asynccontextmanager
async def planned(
    client: Client, folder: Path, provider: str, *script: Response
) -> AsyncIterator[tuple[ModelApi, Stage]]:
    """A model API with a script, and a worker that plans with it."""
    async with planning(provider, *script) as (api, planner), staged(client, folder, TOOLS, planner) as stage:
        yield api, stage


async def with_history(stage: Stage) -> tuple[Outcome, int, str]:
    """The outcome, the attempts of the first planning, and everything that the history holds."""
    handle = await stage.start()
    ended = await outcome(handle)
    history = await handle.fetch_history()
    begun = [
        one.activity_task_started_event_attributes.attempt
        for one in history.events
        if one.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED
    ]
    held = b"".join(one.SerializeToString() for one in history.events)
    return ended, begun[0], held.decode(errors="replace")
