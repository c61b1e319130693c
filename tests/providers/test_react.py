"""Whole tasks turn by turn: the model calls the tools itself, sees what came of it, and answers."""

import re
from pathlib import Path

import pytest
from temporalio.client import Client

from activities.planning.fallback import FallbackPlanner
from activities.planning.model_planner import ModelPlanner
from evals.fakes.model_api import running
from evals.fakes.script import ModelCall, ModelError, ModelReply, ReceivedRequest, Response, asks, calls, gives_up
from tests.harness import outcome, staged
from tests.providers.acting import acting, reacting
from tests.providers.desk import TOOLS
from tests.providers.planning import MAKER, PROVIDERS, api_of, model_of
from workflows.account.records import StepStatus
from workflows.account.task import TaskStatus

A17, B2 = ModelCall("get_price", {"sku": "A-17"}), ModelCall("get_price", {"sku": "B-2"})


def amounts(heard: ReceivedRequest) -> list[float]:
    """What the model reads of prices in the results of its newest calls."""
    return [float(found) for result in heard.results for found in re.findall(r'"amount":\s*([\d.]+)', result.text)]


def shopper(heard: ReceivedRequest) -> Response:
    """A model that asks for two prices at once, adds what it was told, and says the sum."""
    if not heard.turn:
        return calls(A17, B2, text="I look both up.")
    if heard.turn == 1:
        return calls(ModelCall("add", {"amounts": amounts(heard)}))
    return ModelReply(text=f"{amounts(heard)[0]:.2f} in all")


async def test_a_task_is_done_turn_by_turn(client: Client, tmp_path: Path, provider: str) -> None:
    """Two calls at once, a third with their results, and the answer is text."""
    async with acting(client, tmp_path, provider, shopper) as one:
        ended = await one.run("what do A-17 and B-2 cost together?")

    assert (ended.status, ended.result) == (TaskStatus.COMPLETED, "26.50 in all")
    assert [step.id for step in ended.steps] == ["t1.c0", "t1.c1", "t2.c0"]
    assert (ended.spent.model_calls, ended.spent.tool_calls, ended.replans) == (3, 3, 0)
    assert (len(one.api.bodies), one.api.violations) == (3, [])


@pytest.mark.full
async def test_results_are_paired_with_their_calls(client: Client, tmp_path: Path, provider: str) -> None:
    """By the provider's ids, in the order of the calls, whichever tool was done first."""
    async with acting(client, tmp_path, provider, shopper) as one:
        await one.run("what do A-17 and B-2 cost together?")
    heard = one.api.requests[1]

    assert [result.call_id for result in heard.results] == [call.id for call in heard.calls]
    assert amounts(heard) == [24.5, 2.0]


async def test_the_tools_are_offered_as_they_are(client: Client, tmp_path: Path, provider: str) -> None:
    """All kinds and the two other ends, in every turn alike; text is the answer."""
    async with acting(client, tmp_path, provider, shopper) as one:
        await one.run("what do A-17 and B-2 cost together?")
    kinds = {tool.__name__ for tool in TOOLS}

    assert {heard.tools for heard in one.api.requests} == {one.api.requests[0].tools}
    assert {*one.api.requests[0].tools} == {*kinds, "ask", "give_up"}


async def test_each_request_begins_with_the_one_before(client: Client, tmp_path: Path, provider: str) -> None:
    """Nothing that was said is ever changed, so that a cache finds it again."""
    async with acting(client, tmp_path, provider, shopper) as one:
        await one.run("what do A-17 and B-2 cost together?")
    first, second, third = (heard.turns for heard in one.api.requests)

    assert second[: len(first)] == first and third[: len(second)] == second


async def test_a_server_that_repeats_ids_loses_no_pair(client: Client, tmp_path: Path) -> None:
    """As some compatible servers do: `call_0` in every turn."""
    script = (calls(A17), calls(B2), calls(ModelCall("add", {"amounts": [1, 2]})), shopper)
    async with acting(client, tmp_path, "openai", *script, repeats_ids=True) as one:
        ended = await one.run()
    results = [re.findall(r"[\d.]+(?=})", heard.results[0].text) for heard in one.api.requests[1:]]

    assert [step.id for step in ended.steps] == ["t1.c0", "t2.c0", "t3.c0"]
    assert (results, one.api.violations) == ([["24.5"], ["2.0"], ["3.0"]], [])


def booker(heard: ReceivedRequest) -> Response:
    """A model that books, and takes the first time that is free where the one it wanted is taken."""
    if not heard.turn:
        return calls(ModelCall("book", {"at": "14:00"}), A17)
    if heard.turn == 1:
        free = re.findall(r"14:30", heard.results[0].text + heard.last_text)
        return calls(ModelCall("book", {"at": free[0]}))
    return ModelReply(text="It is booked for 14:30.")


async def test_a_refused_call_is_changed_by_what_was_seen(client: Client, tmp_path: Path, provider: str) -> None:
    """The refusal is the result of the call, with what is free; the sibling's result stays; nothing is retried."""
    async with acting(client, tmp_path, provider, booker) as one:
        ended = await one.run("book a slot at 14:00 and look up the price of A-17")
    states = {step.id: (step.status, step.attempts) for step in ended.steps}
    refused, priced = one.api.requests[1].results

    assert (ended.status, ended.replans) == (TaskStatus.COMPLETED, 1)
    assert states["t1.c0"] == (StepStatus.FAILED, 1) and states["t2.c0"] == (StepStatus.COMPLETED, 1)
    assert "conflict" in refused.text and "24.5" in priced.text and one.api.violations == []
    assert (refused.is_error, priced.is_error) == (provider == "anthropic", False)  # OpenAI's protocol has no mark


ENDS = [
    (asks("For whom?"), TaskStatus.ESCALATED, "question"),
    (gives_up("Nothing here books."), TaskStatus.FAILED, "gave_up"),
]


@pytest.mark.parametrize(("said", "status", "code"), ENDS)
async def test_a_model_may_end_without_an_answer(
    client: Client, tmp_path: Path, provider: str, said: ModelReply, status: TaskStatus, code: str
) -> None:
    """By asking the user, or by giving up."""
    async with acting(client, tmp_path, provider, calls(A17), said) as one:
        ended = await one.run()

    assert (ended.status, ended.code, one.api.violations) == (status, code, [])


TOTAL = {"type": "object", "properties": {"total": {"type": "number"}}, "required": ["total"]}


async def test_an_answer_by_a_schema_is_asked_for_again(client: Client, tmp_path: Path, provider: str) -> None:
    """Text and misfits are told what is wrong; what fits is the result, as JSON."""
    script = (
        calls(A17),
        ModelReply(text="24.50"),
        ModelReply((ModelCall("finish", {"sum": 24.5}),)),
        ModelReply((ModelCall("finish", {"total": 24.5}),)),
    )
    async with acting(client, tmp_path, provider, *script) as one:
        ended = await one.run(more={"result_schema": TOTAL})
    after_text, after_misfit = one.api.requests[2], one.api.requests[3]

    assert (ended.status, ended.result) == (TaskStatus.COMPLETED, {"total": 24.5})
    assert "call finish" in after_text.last_text and "total" in after_misfit.results[0].text
    assert one.api.violations == []


async def test_thoughts_go_back_with_their_calls(client: Client, tmp_path: Path) -> None:
    """Also over many turns, and also where a turn has nothing but thoughts and calls."""
    script = [
        ModelReply((ModelCall("add", {"amounts": [number]}),), thinking=f"I add {number}.") for number in range(3)
    ]
    async with acting(client, tmp_path, "anthropic", *script, ModelReply(text="Done.")) as one:
        ended = await one.run()

    assert (ended.status, len(one.api.bodies), one.api.violations) == (TaskStatus.COMPLETED, 4, [])


UNUSABLE = {
    "anthropic": ModelError(401, "authentication_error"),
    "openai": ModelError(429, "insufficient_quota", "You exceeded your current quota", "insufficient_quota"),
}


async def test_the_next_provider_carries_the_conversation_on(client: Client, tmp_path: Path, provider: str) -> None:
    """In the middle of a task: it is told all that was called and what came of it, whatever the ids were."""
    other = next(name for name in PROVIDERS if name != provider)
    first, second = (
        api_of(provider, calls(A17), calls(B2), UNUSABLE[MAKER[provider]]),
        api_of(other, ModelReply(text="26.50")),
    )
    first.repeats_ids = provider != "anthropic"
    async with running(first), running(second):
        planner = FallbackPlanner([ModelPlanner(model_of(provider, first)), ModelPlanner(model_of(other, second))])
        async with staged(client, tmp_path, TOOLS, planner) as stage:
            ended = await outcome(await stage.start(reacting()))
    heard = second.requests[0]

    assert (ended.status, ended.result) == (TaskStatus.COMPLETED, "26.50")
    assert ([call.args["sku"] for call in heard.calls], heard.turn) == (["A-17", "B-2"], 2)
    assert first.violations + second.violations == [] and len(first.bodies) == 3
    assert [(one.turn, one.planner.partition(":")[0]) for one in ended.failovers] == [(3, MAKER[provider])]


@pytest.mark.full
async def test_an_unusable_provider_is_asked_once(client: Client, tmp_path: Path, provider: str) -> None:
    """One request, then the next one; nobody waits."""
    other = next(name for name in PROVIDERS if name != provider)
    async with running(api_of(provider, UNUSABLE[MAKER[provider]])) as first, running(api_of(other, shopper)) as second:
        planner = FallbackPlanner([ModelPlanner(model_of(provider, first)), ModelPlanner(model_of(other, second))])
        async with staged(client, tmp_path, TOOLS, planner) as stage:
            ended = await outcome(await stage.start(reacting()))

    assert (ended.status, len(second.bodies)) == (TaskStatus.COMPLETED, 3)
    assert len(first.bodies) <= 3 and second.violations == []
