"""The last answer of a task whose budget is used up: it is kept back for from the beginning, whatever came before."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from temporalio.client import Client

from evals.fakes.script import ModelCall, ModelReply, ReceivedRequest, Response, calls
from replan import Refused, tool
from tests.gate import sampled
from tests.providers.acting import acting
from tests.providers.test_budgets import priced, react
from workflows.account.task import TaskStatus


class Page(BaseModel):
    """A page by its number, and how long it is."""

    number: int
    length: int = 7_900


class Content(BaseModel):
    """What stands on it."""

    text: str


@tool.read
async def read_long(args: Page) -> Content:
    """Read a long page."""
    return Content(text=f"page {args.number} " + "lorem ipsum " * (args.length // 12))


@tool.read
async def read_locked(args: Page) -> Content:
    """Read a page that nobody may read."""
    raise Refused("The page is locked. " * 100, observed={"lock": "closed " * 1_000})


def wordy(heard: ReceivedRequest) -> Response:
    """A model that says much, and reads six long pages in each turn."""
    if not heard.may_call:
        return ModelReply(text=f"I read {len(heard.calls)} pages.")
    pages = [ModelCall("read_long", {"number": 10 * heard.turn + number}) for number in range(6)]
    return calls(*pages, text="I think about it. " * 300)


def unlucky(heard: ReceivedRequest) -> Response:
    """A model that reads what it may not read, after pages that it may."""
    if not heard.may_call:
        return ModelReply(text="All were locked.")
    kind = "read_locked" if heard.turn % 2 else "read_long"
    return calls(*(ModelCall(kind, {"number": 10 * heard.turn + number}) for number in range(4)))


LIMITS: list[dict[str, Any]] = [{"tokens": number} for number in range(12_000, 90_000, 6_000)]
LIMITS += [{"usd": number / 100} for number in range(6, 40, 6)]
CASES = {"a few limits": (wordy, LIMITS[::6]), "wordy": (wordy, LIMITS), "unlucky": (unlucky, LIMITS)}


@pytest.mark.parametrize(("model", "budgets"), sampled(CASES, "a few limits"))
async def test_the_last_answer_always_fits(
    client: Client, tmp_path: Path, provider: str, model: Any, budgets: list[dict[str, Any]]
) -> None:
    """Whatever the limit, long replies and long results before it leave room for it, and no limit is passed."""
    wrong = list[tuple[Any, ...]]()
    tools = [read_long, read_locked]
    async with priced(client, tmp_path, provider, model, window=400_000, tools=tools) as (api, stage):
        for limits in budgets:
            ended = await stage.run(react(tool_calls=500, **limits))
            is_over = ended.status is TaskStatus.OVER_BUDGET and ended.code in limits
            fits = ended.spent.tokens <= limits.get("tokens", 1e9) and (ended.spent.usd or 0) <= limits.get("usd", 1e9)
            if not (is_over and fits and (ended.result or not ended.steps)):
                wrong.append((limits, ended.status, ended.code, ended.result, ended.spent, len(ended.steps)))

    assert (wrong, api.violations) == ([], [])


async def test_the_last_request_shows_as_much_of_the_results_as_fits(
    client: Client, tmp_path: Path, provider: str
) -> None:
    """Each is cut to the same length, and the cut is marked; none is left out."""
    async with acting(client, tmp_path, provider, wordy, tools=[read_long], window=400_000) as one:
        ended = await one.run(tokens=18_000, tool_calls=500)
    shown = [len(result.text) for result in one.api.requests[-1].results]

    assert (ended.status, ended.result is None) == (TaskStatus.OVER_BUDGET, False)
    assert (len(shown), max(shown) < 4_500) == (6, True)
    assert all("(cut: the first" in result.text for result in one.api.requests[-1].results)
