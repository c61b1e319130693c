"""What requests cost of which no whole reply came: by one table, and never less than a server's bill."""

import asyncio
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

import pytest
from temporalio.client import Client

from activities.planning.model_planner import ModelPlanner
from activities.planning.selection import PlannerSelection
from activities.providers.adapter import AdapterOptions
from activities.providers.billing import Bill, billing
from activities.providers.messages import End, Reply, Request, UserTurn
from activities.providers.metering import Meter, MeteredModel, start_meter
from activities.providers.prices import PriceList
from activities.providers.registry import PLAIN_OUTPUT, model_named
from evals.fakes.model_api import KEY, Json, ModelApi, event_bytes, json_answer, running
from evals.fakes.script import (
    DROPPED,
    Delayed,
    ModelCall,
    ModelError,
    ModelReply,
    RawBytes,
    ReceivedRequest,
    Response,
    ScriptedResponse,
    Streamed,
    calls,
    finishes,
    proposes,
    step,
)
from runtime.dev_server import DevServer
from tests.gate import sampled
from tests.harness import outcome, staged
from tests.processes import ROOT, Processes
from tests.providers.bills import MILD, QUICK, RANDOM, TELLING, Bills, billed
from tests.providers.desk import TOOLS
from tests.providers.own_names import own_names
from tests.providers.planning import LIMIT, MAKER, api_of
from tests.providers.test_react_crash import DESK, begun
from tests.providers.wire import server_error
from workflows.account.outcome import Outcome
from workflows.account.task import Task, TaskStatus
from workflows.limits.budget import Limits
from workflows.limits.spending import MAX_OUTPUT, MIN_OUTPUT

IDLE, SLOW_IDLE = 0.4, 8.0
"""Seconds of silence that are a stall: where it is one, and where a busy machine must not look like one."""
MODELS = {
    "anthropic": ("anthropic", "claude-sonnet-5-5"),
    "plain": ("responses", "gpt-4.1"),
    "reasoning": ("responses", "gpt-5.4"),
    "chat": ("openai", "gpt-4.1"),
}
"""The API of each model; the second half of them reasons in silence."""
quickly_chat = pytest.mark.parametrize(
    "which", [pytest.param(which, marks=() if which == "chat" else pytest.mark.full) for which in MODELS]
)
"""Marks a test that takes seconds: in the quick tier only with Chat Completions."""
LONG = ModelReply(text="Rome is warm. " * 200)
ASKED = Request("You know the weather.", (), [UserTurn("Where is it warmer?")], 4_000)
KEYS = {"ANTHROPIC_API_KEY": KEY, "OPENAI_API_KEY": KEY}


def test_each_end_of_a_request_has_a_bill_with_a_source_for_each_api() -> None:
    """Pages of the providers, or their SDKs; the table is in the manual, row by row."""
    hosts = ("https://platform.claude.com/docs/", "https://developers.openai.com/api/docs/")
    sdks = ("https://github.com/anthropics/anthropic-sdk-python/", "https://github.com/openai/openai-python/")

    assert {*billing()} == {*End} and {row.bill for row in billing().values()} == {*Bill}
    page = " ".join((ROOT / "docs" / "models.md").read_text().split())
    words = {Bill.NOTHING: "nothing", Bill.REPORTED: "what is reported", Bill.MAXIMUM: "the most"}
    for row in billing().values():
        assert f"| {row.says} | {words[row.bill]} |" in page
        assert row.messages.startswith((hosts[0], sdks[0]))
        assert row.responses.startswith((hosts[1], sdks[1])) and row.chat_completions.startswith((hosts[1], sdks[1]))


def wires_of(provider: str, model: str) -> Mapping[str, str]:
    """Which API the model is asked with."""
    return {f"openai:{model}": "chat_completions"} if provider == "openai" else {}


@asynccontextmanager
async def at_home(monkeypatch: pytest.MonkeyPatch, provider: str, api: ModelApi) -> AsyncIterator[None]:
    """Serve an API under its provider's own name."""
    async with running(api), own_names(**{MAKER[provider]: api}) as variables:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        yield


def stalls(response: Response) -> bool:
    """Whether the server keeps a client waiting."""
    return isinstance(response, Delayed) or (isinstance(response, Streamed) and response.then == "stall")


def model_api(which: str, *script: ScriptedResponse) -> ModelApi:
    """The server of a model, not started."""
    provider, model = MODELS[which]
    api = api_of(provider, *script)
    api.model = model
    if provider == "responses":
        api.is_reasoning = which == "reasoning"  # type: ignore[attr-defined]
    return api


async def replied(monkeypatch: pytest.MonkeyPatch, which: str, response: Response) -> tuple[Meter, Reply | Exception]:
    """What was counted for one request at the provider's own name, and what came of it."""
    (provider, model), api = MODELS[which], model_api(which, response)
    name = f"{MAKER[provider]}:{model}"
    async with at_home(monkeypatch, provider, api):
        options = AdapterOptions(wires_of(provider, model), idle_timeout=IDLE if stalls(response) else SLOW_IDLE)
        metered = MeteredModel(model_named(name, KEYS, options), PriceList().price_of(name))
        meter = start_meter()
        try:
            came: Reply | Exception = await metered.reply(ASKED)
        except Exception as error:  # which class is the SDK's business
            came = error
    assert api.violations == []
    return meter, came


async def asked(monkeypatch: pytest.MonkeyPatch, which: str, response: Response) -> Meter:
    """What was counted for one request that brought no reply."""
    meter, came = await replied(monkeypatch, which, response)
    assert isinstance(came, Exception)
    return meter


def error_of(which: str) -> bytes:
    """The event of an error of the server."""
    return server_error(MODELS[which][0])


POLICY = ModelError(400, "invalid_request_error", "no", "invalid_prompt")
ENDED: dict[str, tuple[Response, bool]] = {
    "invalid_prompt": (POLICY, False),
    "429": (ModelError(429, "rate_limit_error"), False),
    "529": (ModelError(529, "overloaded_error"), False),
    "504": (ModelError(504, "timeout_error"), True),
    "no byte": (Delayed(30), True),
    "no answer": (DROPPED, True),
    "half, then a stall": (Streamed(LONG, events=100, then="stall"), True),
    "half, then a cut": (Streamed(LONG, events=100, then="drop"), True),
    "half, then the end": (Streamed(LONG, events=100), True),
    "half, then garbage": (Streamed(LONG, events=100, then=b"data: 7\n\n"), True),
    "a page": (RawBytes(json_answer(200, b"<html>")), False),
}


@quickly_chat
async def test_what_nobody_tells_is_counted_up_to_the_most_that_the_request_allowed(
    monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    """4,000 tokens of reply here; what certainly costs nothing is counted as nothing."""
    ends = {name: end for name, end in ENDED.items() if which != "anthropic" or name != "invalid_prompt"}
    used = {name: await asked(monkeypatch, which, response) for name, (response, _) in ends.items()}

    assert {name: len(meter.lost) for name, meter in used.items()} == {name: int(end[1]) for name, end in ends.items()}
    for name, meter in used.items():
        assert meter.wasted == [] or which == "anthropic"
        assert (meter.known_use is None) is ends[name][1]
        assert all(4_000 < lost.use.tokens < 4_200 and lost.use.usd for lost in meter.lost)


@pytest.mark.parametrize("which", MODELS)
async def test_an_error_in_a_stream_costs_what_was_written_or_thought(
    monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    """Where a model may have reasoned in silence, up to the longest reply; before the reply began, nothing."""
    half = await asked(monkeypatch, which, Streamed(LONG, events=100, then=error_of(which)))
    first = await asked(monkeypatch, which, Streamed(LONG, events=0, then=error_of(which)))
    (lost,) = half.lost

    assert first.lost == []
    assert (lost.use.tokens > 4_000) is (which == "reasoning")
    assert lost.use.tokens > 700  # 100 events of 8 characters


def failed(usage: dict[str, int] | None, code: str) -> RawBytes:
    """A stream of Responses that fails."""
    first: Json = {"id": "r", "object": "response", "status": "in_progress", "output": [], "usage": None}
    last = {**first, "status": "failed", "usage": usage, "error": {"code": code, "message": "no"}}
    responses = {"response.created": first, "response.failed": last}
    body = b"".join(event_bytes({"type": type, "response": one}) for type, one in responses.items())
    return RawBytes(json_answer(200, body, **{"content-type": "text/event-stream"}))


async def test_a_response_that_failed_costs_what_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rejected by policy without usage: nothing; with usage: that; an error of the server without: the most."""
    counted = {"input_tokens": 500, "output_tokens": 300, "total_tokens": 800}
    policy = await asked(monkeypatch, "reasoning", failed(None, "invalid_prompt"))
    told = await asked(monkeypatch, "reasoning", failed(counted, "invalid_prompt"))
    broken = await asked(monkeypatch, "reasoning", failed(counted, "server_error"))
    untold = await asked(monkeypatch, "reasoning", failed(None, "server_error"))

    assert (policy.use, [use.tokens for use in told.use], [use.tokens for use in broken.use]) == ([], [800], [800])
    assert len(untold.lost) == 1 and untold.lost[0].use.tokens > 4_000


@asynccontextmanager
async def priced_at_home(
    client: Client, folder: Path, monkeypatch: pytest.MonkeyPatch, which: str, api: ModelApi, idle: float = SLOW_IDLE
) -> AsyncIterator[tuple[ModelPlanner, str]]:
    """A worker whose model is under its provider's name; yields its planner and its queue."""
    provider, model = MODELS[which]
    name = f"{MAKER[provider]}:{model}"
    async with at_home(monkeypatch, provider, api):
        options = AdapterOptions(wires_of(provider, model), idle_timeout=idle)
        planner = PlannerSelection(name, KEYS, options=options).planner
        assert isinstance(planner, ModelPlanner)
        async with staged(client, folder, TOOLS, planner, jitter=lambda: 0.01) as stage:
            yield planner, stage.queue


@quickly_chat
async def test_a_stream_that_errs_again_and_again_is_held_by_the_limit_of_tokens(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    """Half an output and then an error, whatever the API: the task ends, and does not ask for minutes."""
    api = model_api(which, Streamed(LONG, events=100, then=error_of(which)))
    async with priced_at_home(client, tmp_path, monkeypatch, which, api) as (_, queue):
        ended = await outcome(await begun(client, queue, Task(text="x", limits=Limits(tokens=20_000))))

    assert (ended.status, ended.code) == (TaskStatus.OVER_BUDGET, "tokens")
    assert 1 < len(api.bodies) < 40 and 0 < ended.spent.tokens <= 1.02 * 20_000  # the input is estimated


async def test_a_model_that_does_not_reason_is_allowed_and_charged_less(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request that stalls costs the longest reply of its own model."""
    spent = dict[str, int]()
    for which in ("plain", "reasoning"):
        api = model_api(which, Delayed(30), ModelReply(text="It is warm."))
        task = Task(text="x", strategy="react", limits=Limits(tokens=200_000, replans=20))
        async with priced_at_home(client, tmp_path, monkeypatch, which, api, idle=1.0) as (planner, queue):
            ended = await outcome(await begun(client, queue, task))
        assert [body["max_output_tokens"] for body in api.bodies] == [planner.longest_reply] * 2
        assert (ended.status, api.violations) == (TaskStatus.COMPLETED, [])
        spent[which] = ended.spent.tokens

    assert PLAIN_OUTPUT < spent["plain"] < MAX_OUTPUT < spent["reasoning"]


@quickly_chat
async def test_a_cancelled_request_costs_what_all_its_attempts_may_cost(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    """Two that broke off, and the one that was under way."""
    cut = Streamed(LONG, events=100, then="drop")
    api = model_api(which, cut, cut, Delayed(60))
    async with priced_at_home(client, tmp_path, monkeypatch, which, api, idle=60) as (planner, queue):
        handle = await begun(client, queue, Task(text="x", strategy="react"))
        while len(api.bodies) < 3:
            await asyncio.sleep(0.05)
        await handle.cancel()
        ended = await outcome(handle)

    assert (ended.status, ended.spent.model_calls) == (TaskStatus.CANCELLED, 3)
    assert ended.spent.tokens > 3 * planner.longest_reply


def spends(heard: ReceivedRequest) -> ModelReply:
    """Look a price up, and then tell it."""
    if "propose_plan" in heard.tools:
        return finishes("24.50") if heard.turn else proposes(step("price", "get_price", sku="A-17"))
    return ModelReply(text="24.50") if heard.turn else calls(ModelCall("get_price", {"sku": "A-17"}))


@quickly_chat
async def test_a_small_limit_of_money_lets_a_task_through_that_fits_into_it(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    """It costs 0.03 dollars: with 0.05, each request asks for a reply that the rest can pay."""
    api, field = model_api(which, spends), LIMIT[MODELS[which][0]]
    strategy, *used = COSTS[which]
    api.usage = lambda reply: used  # type: ignore[assignment, method-assign, return-value]
    async with priced_at_home(client, tmp_path, monkeypatch, which, api) as (_, queue):
        ended = await outcome(await begun(client, queue, Task(text="x", strategy=strategy, limits=Limits(usd=0.05))))

    assert (ended.status, ended.result, api.violations) == (TaskStatus.COMPLETED, "24.50", [])
    assert 0.029 < (ended.spent.usd or 0) < 0.031
    assert MIN_OUTPUT <= min(body[field] for body in api.bodies) <= max(body[field] for body in api.bodies) < 5_000


COSTS: dict[str, tuple[Literal["plan", "react"], int, int]] = {
    "anthropic": ("plan", 3_500, 800),
    "plain": ("react", 3_000, 1_125),
    "chat": ("react", 3_000, 1_125),
    "reasoning": ("plan", 3_000, 500),
}
"""The strategy, and the tokens of each of two requests and of its reply."""


def limits_of(rng: random.Random) -> Limits:
    """Some tasks have little to spend."""
    return Limits(tokens=rng.choice([40_000, 10**6, 10**6, 10**6]), usd=rng.choice([0.1, 20, 20, 20]), replans=20)


def task_of(number: int) -> Task:
    """The task of a trace."""
    rng = random.Random(-number)  # noqa: S311
    strategy = rng.choice(["plan", "react"])
    return Task(text=f"trace-{number}: what does A-17 cost?", strategy=strategy, limits=limits_of(rng))


def check(bills: Bills, ended: Mapping[int, Outcome], *, may_be_killed: bool = False) -> None:
    """Nothing is charged below its bill, and what a server tells is charged as it is."""
    for number, outcome_ in ended.items():
        trace, spent, usd = bills.traces[number], outcome_.spent, outcome_.spent.usd or 0.0
        assert spent.tokens >= trace.tokens and usd >= trace.usd - 1e-9, (number, trace, outcome_)
        if not trace.untold and not may_be_killed:
            assert spent.tokens <= 1.01 * trace.tokens and usd <= 1.01 * trace.usd + 1e-9, (number, trace)


async def run(client: Client, queue: str, numbers: Sequence[int]) -> dict[int, Outcome]:
    """Run the tasks of some traces, all at once."""
    handles = [await begun(client, queue, task_of(number)) for number in numbers]
    return dict(zip(numbers, await asyncio.gather(*map(outcome, handles)), strict=True))


FEW = {"chat, a few": ("chat", range(1_000, 1_004), QUICK)}
"""Without silence, for which a client has to wait."""
TRACES = {
    f"{which}, {at}": (which, range(at, at + 20), RANDOM)
    for which, at in zip([*MODELS] * 2, range(0, 160, 20), strict=True)
}
"""160 of 200: stalls, cuts, errors and repeats."""


@pytest.mark.parametrize(("which", "numbers", "odds"), sampled({**FEW, **TRACES}, *FEW))
@pytest.mark.timeout(900)
async def test_random_traces_cost_what_they_were_billed(
    client: Client,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    which: str,
    numbers: Sequence[int],
    odds: Mapping[str, int],
) -> None:
    """At the names of the providers, with a worker of this process; in each third trace the server tells all."""
    provider, model = MODELS[which]
    api, bills = billed(provider, model, {number: odds if number % 3 else TELLING for number in numbers})
    async with priced_at_home(client, tmp_path, monkeypatch, which, api) as (_, queue):
        ended = await run(client, queue, numbers)

    assert api.violations == []
    check(bills, ended)


SETTINGS = '[models]\nidle_timeout = "8s"\n'


@pytest.mark.full
@pytest.mark.parametrize("which", ["anthropic", "reasoning"])
@pytest.mark.timeout(900)
async def test_random_traces_with_killed_workers_are_never_charged_below_their_bill(
    client: Client, server: DevServer, tmp_path: Path, which: str
) -> None:
    """40 of 200: the same with workers that are killed, some of them just after a turn was recorded."""
    provider, model = MODELS[which]
    first = 160 if which == "anthropic" else 180
    numbers, rng = range(first, first + 20), random.Random(first)  # noqa: S311
    api, bills = billed(provider, model, dict.fromkeys(numbers, MILD))
    (tmp_path / "replan.toml").write_text(SETTINGS)
    queue, maker = f"bills-{which}", MAKER[provider]
    async with running(api), own_names(**{maker: api}) as variables:
        processes = Processes(server.address, tmp_path, {**KEYS, **variables})
        options = ["--dev", "--tools", str(DESK), "--planner", f"{maker}:{model}", "--queue", queue]
        options += ["--settings", str(tmp_path / "replan.toml")]
        tasks = asyncio.create_task(run(client, queue, numbers))
        for breaks in (["--break", "plan=die@after_commit:1"], [], []):
            with processes.worker(*options, *breaks) as worker:
                if breaks:
                    await asyncio.to_thread(worker.wait, 60)
                else:
                    await asyncio.wait([tasks], timeout=rng.uniform(1, 8))
                    worker.kill()
        with processes.worker(*options):
            ended = await tasks

    assert api.violations == []
    check(bills, ended, may_be_killed=True)
