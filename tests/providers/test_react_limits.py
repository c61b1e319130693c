"""Budgets while a model acts: a loop that does not end itself is ended, with one last turn without tools."""

from pathlib import Path

import pytest
from pydantic import BaseModel
from temporalio.client import Client

from evals.fakes.script import ModelCall, ModelReply, ReceivedRequest, Response, calls
from replan import Refused, tool
from tests.providers.acting import acting
from tests.providers.desk import TOOLS
from workflows.account.task import TaskStatus


def endless(heard: ReceivedRequest) -> Response:
    """A model that asks for one price after the other as long as it may."""
    if not heard.may_call:
        return ModelReply(text=f"So far I looked up {heard.all_text.count('amount')} prices.")
    return calls(ModelCall("get_price", {"sku": f"A-{heard.turn}"}))


async def test_tool_calls_that_are_used_up_end_the_loop(client: Client, tmp_path: Path, provider: str) -> None:
    """Whoever asks for more gets one last turn to answer: its text is the result, and the status says why."""
    async with acting(client, tmp_path, provider, endless) as one:
        ended = await one.run(tool_calls=3)
    last = one.api.requests[-1]

    assert (ended.status, ended.code, ended.result) == (
        TaskStatus.OVER_BUDGET,
        "tool_calls",
        "So far I looked up 3 prices.",
    )
    assert ended.spent.tool_calls == len(ended.steps) == 3
    assert [heard.may_call for heard in one.api.requests] == [True, True, True, True, False]
    assert last.tools == one.api.requests[0].tools and one.api.violations == []


@pytest.mark.full
async def test_a_model_that_is_content_with_its_calls_completes(client: Client, tmp_path: Path, provider: str) -> None:
    """Whoever needs as many calls as there are is not over its budget."""

    def content(heard: ReceivedRequest) -> Response:
        assert heard.may_call
        return endless(heard) if heard.turn < 3 else ModelReply(text="Three prices.")

    async with acting(client, tmp_path, provider, content) as one:
        ended = await one.run(tool_calls=3)

    assert (ended.status, ended.result, one.api.violations) == (TaskStatus.COMPLETED, "Three prices.", [])


async def test_more_calls_than_are_left_are_not_begun(client: Client, tmp_path: Path, provider: str) -> None:
    """Never more tool calls than the limit, however many a turn asks for."""

    def greedy(heard: ReceivedRequest) -> Response:
        wanted = [ModelCall("get_price", {"sku": f"A-{heard.turn}-{number}"}) for number in range(3)]
        return calls(*wanted) if heard.may_call else ModelReply(text="That is all.")

    async with acting(client, tmp_path, provider, greedy) as one:
        ended = await one.run(tool_calls=4)

    assert ended.spent.tool_calls <= 4 and one.api.violations == []
    assert ended.status in (TaskStatus.OVER_BUDGET, TaskStatus.ESCALATED)


async def test_a_server_that_calls_all_the_same_gets_nothing_done(client: Client, tmp_path: Path) -> None:
    """Some compatible servers ignore `tool_choice`: no call of a last turn is ever made."""
    always = calls(ModelCall("get_price", {"sku": "A-17"}), text="Let me look.")
    many = [calls(ModelCall("get_price", {"sku": f"A-{number}"})) for number in range(2)]
    async with acting(client, tmp_path, "openai", *many, always, is_lax=True) as one:
        ended = await one.run(tool_calls=2)

    assert (ended.status, ended.spent.tool_calls, one.api.violations) == (TaskStatus.OVER_BUDGET, 2, [])


@pytest.mark.full
async def test_a_last_turn_without_words_is_the_end_all_the_same(client: Client, tmp_path: Path, provider: str) -> None:
    """There is no result then; what was finished is there."""

    def silent(heard: ReceivedRequest) -> Response:
        return calls(ModelCall("get_price", {"sku": f"A-{heard.turn}"})) if heard.may_call else ModelReply()

    async with acting(client, tmp_path, provider, silent) as one:
        ended = await one.run(tool_calls=2)

    assert (ended.status, ended.code, ended.result) == (TaskStatus.OVER_BUDGET, "tool_calls", None)
    assert len(ended.steps) == 2 and one.api.violations == []


@pytest.mark.full
async def test_a_turn_without_call_or_answer_counts(client: Client, tmp_path: Path, provider: str) -> None:
    """A model that says nothing again and again does not go on for ever."""
    async with acting(client, tmp_path, provider, ModelReply()) as one:
        ended = await one.run()

    assert (ended.status, len(one.api.bodies), one.api.violations) == (TaskStatus.ESCALATED, 3, [])


async def test_an_empty_turn_does_not_pass_the_limit(client: Client, tmp_path: Path, provider: str) -> None:
    """With no tool call left it is not repeated: the last turn comes, as after a call too many."""

    def speechless(heard: ReceivedRequest) -> Response:
        if not heard.may_call:
            return ModelReply(text="One price.")
        return calls(ModelCall("get_price", {"sku": "A-17"})) if not heard.turn else ModelReply()

    async with acting(client, tmp_path, provider, speechless) as one:
        ended = await one.run(tool_calls=1)

    assert (ended.status, ended.code, ended.result) == (TaskStatus.OVER_BUDGET, "tool_calls", "One price.")
    assert (ended.spent.tool_calls, one.api.violations) == (1, [])


async def test_a_turn_without_call_or_answer_costs_no_tool_call(client: Client, tmp_path: Path, provider: str) -> None:
    """Tool calls are attempts of tools; only the tokens of such a turn are spent, as `explain` says."""
    script = (ModelReply(), calls(ModelCall("get_price", {"sku": "A-17"})), ModelReply(), ModelReply(text="24.50"))
    async with acting(client, tmp_path, provider, *script) as one:
        ended = await one.run(tool_calls=2)

    assert (ended.status, ended.spent.tool_calls, ended.spent.model_calls) == (TaskStatus.COMPLETED, 1, 4)


class Door(BaseModel):
    """A door."""

    number: int


@tool.idempotent
async def open_door(args: Door) -> Door:
    """Open a door."""
    raise Refused(f"Door {args.number} is locked.", code="conflict")


def knocking(heard: ReceivedRequest) -> Response:
    """A model that tries door after door, with something that works between them."""
    if not heard.may_call:
        return ModelReply(text=f"{len(heard.calls) // 2} doors were locked.")
    return calls(ModelCall("open_door", {"number": heard.turn}), ModelCall("get_price", {"sku": f"A-{heard.turn}"}))


async def test_replans_that_are_used_up_end_the_loop(client: Client, tmp_path: Path, provider: str) -> None:
    """Each refused turn is one; the last turn says what there is."""
    async with acting(client, tmp_path, provider, knocking, tools=(*TOOLS, open_door)) as one:
        ended = await one.run(replans=2)

    assert (ended.status, ended.code, ended.result) == (TaskStatus.OVER_BUDGET, "replans", "3 doors were locked.")
    assert (ended.replans, one.api.violations) == (2, [])
    assert [heard.may_call for heard in one.api.requests] == [True, True, True, False]


@pytest.mark.full
@pytest.mark.parametrize("tokens", [700, 1000])
async def test_tokens_that_are_used_up_end_the_loop(client: Client, tmp_path: Path, provider: str, tokens: int) -> None:
    """What a last turn needs was kept back."""
    async with acting(client, tmp_path, provider, endless, window=100_000) as one:
        ended = await one.run(tokens=tokens * 40, tool_calls=200)

    assert (ended.status, ended.code) == (TaskStatus.OVER_BUDGET, "tokens")
    assert ended.spent.tokens <= tokens * 40 and one.api.requests[-1].may_call is False
    assert str(ended.result).startswith("So far I looked up") and one.api.violations == []
