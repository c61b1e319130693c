"""`--result-schema`: where the model may call nothing any more, its text has the form of the answer."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from evals.fakes.script import ModelCall, ModelReply, ReceivedRequest, calls
from tests.activities.situations import KINDS, asked
from tests.gate import sampled
from tests.providers.acting import acting
from tests.providers.planning import LIMIT, planning, quickly_one
from workflows.account.task import TaskStatus
from workflows.plans.proposal import Answer

FORMATS = {"output_config", "text", "response_format"}
"""The field of each API for the form of a text."""
TOTAL = {"type": "object", "properties": {"total": {"type": "number"}}, "required": ["total"]}


def spender(last: str) -> Callable[[ReceivedRequest], ModelReply]:
    """A model that calls as long as it may, and then writes this text."""
    look = calls(ModelCall("get_price", {"sku": "A-17"}))
    return lambda heard: look if heard.may_call else ModelReply(text=last)


SCHEMAS = {"object": (TOTAL,), "list": ({"type": "array", "items": {"type": "number"}},)}


@pytest.mark.parametrize("schema", sampled(SCHEMAS, "object"))
async def test_the_last_answer_keeps_the_result_schema(
    client: Client, tmp_path: Path, provider: str, schema: dict[str, Any]
) -> None:
    """When the budget is used up, the model may call nothing, so its text has the form of the answer."""
    text, result = ('{"total": 24.5}', {"total": 24.5}) if schema is TOTAL else ('{"value": [24.5]}', [24.5])
    async with acting(client, tmp_path, provider, spender(text)) as one:
        ended = await one.run(more={"result_schema": schema}, tool_calls=1)
    *before, last = (FORMATS & body.keys() for body in one.api.bodies)

    assert (ended.status, ended.result, ended.result_misfit) == (TaskStatus.OVER_BUDGET, result, "")
    assert (len(last), any(before), one.api.violations) == (1, False, [])


@quickly_one
async def test_a_last_answer_in_other_words_is_the_result(client: Client, tmp_path: Path, provider: str) -> None:
    """Nothing is left to ask for another one; a server without strict schemas sends what it likes, so it is marked."""
    async with acting(client, tmp_path, provider, spender("It costs 24.50.")) as one:
        ended = await one.run(more={"result_schema": TOTAL}, tool_calls=1)

    assert (ended.status, ended.result) == (TaskStatus.OVER_BUDGET, "It costs 24.50.")
    assert ended.result_misfit in ended.reason and "where an answer by its schema is wanted" in ended.result_misfit


@quickly_one
async def test_a_last_answer_that_breaks_the_schema_is_marked(client: Client, tmp_path: Path, provider: str) -> None:
    """It is kept as it is, with what is wrong with it; a program need not check it again."""
    async with acting(client, tmp_path, provider, spender('{"total": "much"}')) as one:
        ended = await one.run(more={"result_schema": TOTAL}, tool_calls=1)

    assert (ended.status, ended.result) == (TaskStatus.OVER_BUDGET, {"total": "much"})
    assert "total" in ended.result_misfit and ended.result_misfit in ended.reason


@quickly_one
async def test_text_that_keeps_the_schema_is_an_answer(client: Client, tmp_path: Path, provider: str) -> None:
    """It costs no second request that the model did not call `finish`."""
    async with acting(client, tmp_path, provider, ModelReply(text='{"total": 24.5}')) as one:
        ended = await one.run(more={"result_schema": TOTAL})

    assert (ended.status, ended.result, len(one.api.bodies)) == (TaskStatus.COMPLETED, {"total": 24.5}, 1)


@pytest.mark.parametrize(("most", "allowed"), [(1_000, 972), (280, 280)])
async def test_the_schema_of_the_answer_counts_as_a_part_of_the_reply(provider: str, most: int, allowed: int) -> None:
    """The provider tells the model the schema, so the rest of the budget pays both; it is left out if too little is."""
    situation = asked("a task").model_copy(update={"is_last": True, "result_schema": TOTAL, "max_output": most})
    async with planning(provider, ModelReply(text='{"total": 24.5}')) as (api, planner):
        proposed = await planner.propose(situation, KINDS)
    body = api.bodies[0]

    assert (body[LIMIT[provider]], bool(FORMATS & body.keys())) == (allowed, most > allowed)
    assert proposed.proposal == Answer(result={"total": 24.5})
