"""Tokens, money and calls of whole tasks, against servers that hold their providers' rules: no limit is passed.

A loop that does not end itself is ended, with one last turn without tools, for which enough is kept back.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from temporalio.client import Client

from activities.offline.planner import OfflinePlanner
from activities.planning.fallback import FallbackPlanner
from activities.planning.model_planner import ModelPlanner
from evals.fakes.model_api import KEY, ModelApi, running
from evals.fakes.script import ModelCall, ModelReply, ReceivedRequest, Response, ScriptedResponse, calls
from replan import Refused, tool
from runtime.dev_server import DevServer
from tests.gate import sampled
from tests.harness import Proposals, Stage, outcome, plan, staged, step
from tests.processes import Processes
from tests.providers.acting import acting
from tests.providers.desk import TOOLS, Page
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
        return ModelReply(text=f"So far I looked up {heard.all_text.count('amount')} prices.")
    return calls(ModelCall("get_price", {"sku": f"A-{heard.turn}"}))


def content(heard: ReceivedRequest) -> Response:
    """A model that needs as many calls as there are."""
    return endless(heard) if heard.turn < 3 else ModelReply(text=f"Three prices, {heard.may_call}.")


def greedy(heard: ReceivedRequest) -> Response:
    """A model that asks for three prices in each turn."""
    wanted = [ModelCall("get_price", {"sku": f"A-{heard.turn}-{number}"}) for number in range(3)]
    return calls(*wanted) if heard.may_call else ModelReply(text="That is all.")


def silent(heard: ReceivedRequest) -> Response:
    """A model whose last turn has no words."""
    return endless(heard) if heard.may_call else ModelReply()


def speechless(heard: ReceivedRequest) -> Response:
    """A model that says nothing after its only price, while it may call."""
    return LOOK if not heard.turn else ModelReply(text="" if heard.may_call else "One price.")


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


SPARE = [ModelReply(), LOOK, ModelReply(), ModelReply(text="24.50")]
ENDS: dict[str, tuple[Sequence[ScriptedResponse], dict[str, Any], str, str | None, int, str]] = {
    "as many as there are": ([endless], {"tool_calls": 3}, "tool_calls", "So far I looked up 3 prices.", 3, "yyyyn"),
    "content with them": ([content], {"tool_calls": 3}, "", "Three prices, True.", 3, "yyyy"),
    "more than are left, again and again": ([greedy], {"tool_calls": 4}, "proposals_rejected", None, 3, "yyyy"),
    "a last turn without words": ([silent], {"tool_calls": 2}, "tool_calls", None, 2, "yyyn"),
    "an empty turn": ([speechless], {"tool_calls": 1}, "tool_calls", "One price.", 1, "yyn"),
    "empty turns cost none": (SPARE, {"tool_calls": 2}, "", "24.50", 1, "yyyy"),
    "replans": ([knocking], {"replans": 2}, "replans", "3 doors were locked.", 6, "yyyn"),
}
"""The model, its limit, the end and its result, how many calls were made, and in which turns it might call."""


@pytest.mark.parametrize(
    ("script", "limits", "code", "result", "made", "may"),
    sampled(ENDS, *(name for name in ENDS if name not in ("content with them", "a last turn without words"))),
)
async def test_calls_that_are_used_up_end_the_loop(
    client: Client,
    tmp_path: Path,
    provider: str,
    script: Sequence[ScriptedResponse],
    limits: dict[str, Any],
    code: str,
    result: str | None,
    made: int,
    may: str,
) -> None:
    """Whoever asks for more gets one last turn to answer: its text is the result, and the status says why."""
    async with acting(client, tmp_path, provider, *script, tools=(*TOOLS, open_door)) as one:
        ended = await one.run(**limits)
    statuses = {"": TaskStatus.COMPLETED, "proposals_rejected": TaskStatus.ESCALATED}

    assert (ended.status, ended.code or "", ended.result) == (
        statuses.get(code, TaskStatus.OVER_BUDGET),
        code,
        result,
    )
    assert (ended.spent.tool_calls, ended.spent.model_calls) == (made, len(may))
    assert "".join("y" if heard.may_call else "n" for heard in one.api.requests) == may
    assert one.api.requests[-1].tools == one.api.requests[0].tools and one.api.violations == []


async def test_a_server_that_calls_all_the_same_gets_nothing_done(client: Client, tmp_path: Path) -> None:
    """Some compatible servers ignore `tool_choice`: no call of a last turn is ever made."""
    always = calls(ModelCall("get_price", {"sku": "A-17"}), text="Let me look.")
    async with acting(client, tmp_path, "openai", endless, endless, always, is_lax=True) as one:
        ended = await one.run(tool_calls=2)

    assert (ended.status, ended.spent.tool_calls, one.api.violations) == (TaskStatus.OVER_BUDGET, 2, [])


async def test_what_a_task_cost_is_counted_at_the_prices_of_each_class(
    client: Client, tmp_path: Path, provider: str
) -> None:
    """Input, output, cache reads and writes, as the provider's own fields say; an unknown price is not zero."""
    for price in (PRICE, None):
        async with priced(client, tmp_path, provider, LOOK, ModelReply(text="12.50"), price=price) as (api, stage):
            ended = await stage.run(react(usd=5 if price else None))

        assert (ended.status, ended.spent.model_calls, api.violations) == (TaskStatus.COMPLETED, 2, [])
        assert (ended.spent.usd, ended.spent.unpriced) == ((pytest.approx(2 * USED), 0) if price else (None, 2))
        assert ended.spent.tokens > 0


async def test_money_that_is_used_up_ends_the_loop_with_all_that_was_finished(
    client: Client, tmp_path: Path, provider: str
) -> None:
    """Never more than the limit; the last answer is its result, and each finished step is there."""
    async with priced(client, tmp_path, provider, endless, window=100_000) as (api, stage):
        ended = await stage.run(react(usd=0.08, tool_calls=200))

    assert (ended.status, ended.code, api.violations) == (TaskStatus.OVER_BUDGET, "usd", [])
    assert str(ended.result).startswith("So far I looked up ")
    assert float(ended.reason.rpartition("--usd ")[2].rstrip(".")) >= 0.16
    assert 0 < (ended.spent.usd or 0) <= 0.08
    assert len(ended.steps) > 0 and {one.status for one in ended.steps} == {StepStatus.COMPLETED}


async def test_a_reply_is_never_allowed_more_than_is_left(client: Client, tmp_path: Path, provider: str) -> None:
    """Each request says how long its answer may be; that shrinks with what is left, once the input is known exactly."""
    async with priced(client, tmp_path, provider, endless, window=100_000) as (api, stage):
        await stage.run(react(tokens=20_000, tool_calls=200))
    allowed = [body[LIMIT[provider]] for body in api.bodies]

    assert len(allowed) > 2 and max(allowed) < 20_000
    # It grows once, where a shorter last answer is kept back.
    assert sum(later >= earlier for earlier, later in pairwise(allowed[1:-1])) <= 1


async def test_a_limit_of_money_with_an_unknown_price_is_refused_at_the_start(
    client: Client, tmp_path: Path, provider: str
) -> None:
    """Before any request; the sentence names the model and both remedies. Any planner of a list may have to answer."""
    async with running(api_of(provider)) as api:
        model = model_of(provider, api)
        several = FallbackPlanner([ModelPlanner(model, price=PRICE), ModelPlanner(model), OfflinePlanner()])
        ended = []
        for planner in (ModelPlanner(model), several):
            async with staged(client, tmp_path, TOOLS, planner) as stage:
                ended.append(await stage.run(react(usd=1)))
    name = f"{MAKER[provider]}:some-model@{api.url.removeprefix('http://')}"

    assert [(one.status, one.code) for one in ended] == [(TaskStatus.FAILED, "task_refused")] * 2 and api.bodies == []
    assert ended[0].reason == (
        f"--usd needs the price of {name}, which is not known: give it in the settings file of the worker"
        f' ([models.prices."{name}"]), or leave out --usd.'
    )


async def test_rules_cost_nothing_so_a_limit_of_money_does_not_trouble_them(client: Client, tmp_path: Path) -> None:
    script: Proposals = [plan(step("a", "get_price", sku="A-17")), Answer(result="done")]
    async with staged(client, tmp_path, TOOLS, script) as stage:
        ended = await stage.run(usd=1, tokens=1)

    assert (ended.status, ended.spent.usd, ended.spent.tokens) == (TaskStatus.COMPLETED, None, 0)


async def test_a_provider_that_could_not_be_reached_costs_nothing(
    client: Client, tmp_path: Path, provider: str
) -> None:
    """No connection, no answer that somebody could count; nor does the wait for it, when it is cancelled."""
    async with running(api_of(provider)) as api:
        pass  # what is closed again refuses connections
    planner = ModelPlanner(model_of(provider, api), price=PRICE)
    async with staged(client, tmp_path, TOOLS, planner, jitter=lambda: 0.01) as stage:
        handle = await stage.start(Task(text="x", limits=Limits(tokens=200_000)))
        while (waiting := (await handle.query(AgentWorkflow.progress)).waiting) is None:
            await asyncio.sleep(0.05)
        await handle.cancel()
        ended = await outcome(handle)

    assert (ended.status, waiting.code) == (TaskStatus.CANCELLED, "unreachable")
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


# The last answer is kept back for from the beginning, whatever came before


class Leaf(BaseModel):
    """A page by its number, and how long it is."""

    number: int
    length: int = 7_900


@tool.read
async def read_long(args: Leaf) -> Page:
    """Read a long page."""
    return Page(text=f"page {args.number} " + "lorem ipsum " * (args.length // 12))


@tool.read
async def read_locked(args: Leaf) -> Page:
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
    shown = [result.text for result in one.api.requests[-1].results]

    assert (ended.status, ended.result is None) == (TaskStatus.OVER_BUDGET, False)
    assert (len(shown), max(map(len, shown)) < 4_500) == (6, True)
    assert all("(cut: the first" in text for text in shown)
