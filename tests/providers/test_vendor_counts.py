"""What servers count, each in its own way, late, twice, or not at all: no reading of a count is below a bill."""

import asyncio
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings, strategies as st
from temporalio.client import Client

from activities.planning.model_planner import ModelPlanner
from activities.providers.messages import Reply, Usage
from activities.providers.prices import PriceList, cost_in_usd
from evals.fakes.model_api import Json, running
from evals.fakes.openai_api import OpenAIApi
from evals.fakes.script import RawBytes, ReceivedRequest, Response, Streamed
from tests.harness import staged
from tests.providers.asking import ASKED, reply_of, request
from tests.providers.desk import TOOLS
from tests.providers.planning import MAKER, adapter_of, api_of
from tests.providers.test_bills import ASKED as SHORT, LONG, MODELS, replied
from tests.providers.test_budgets import react
from tests.providers.wire import START, STOP, call_delta, chunk, response, stream, text, total
from workflows.plans.catalogue import Price

PRICE = Price(input=3, output=15, cache_read=0.3, cache_write=3.75)
TEXT = "Rome is warm. " * 30
LIMIT = SHORT.max_output or 0


class Counted(NamedTuple):
    """Tokens: new input, input from the cache, visible output, reasoning."""

    new: int
    cached: int
    visible: int
    thought: int


def plain(one: Counted) -> Json:
    """The three sums of OpenAI's usage."""
    prompt, completion = one.new + one.cached, one.visible + one.thought
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def beside(one: Counted) -> Json:
    """Reasoning that only the total contains."""
    return {**plain(one), "completion_tokens": one.visible}


def reasoned(thought: int) -> Json:
    """The part of OpenAI's usage that is reasoning."""
    return {"completion_tokens_details": {"reasoning_tokens": thought}}


def details(one: Counted, *, visible: bool = False) -> Json:
    """The parts of OpenAI's usage; some call all of the output reasoning."""
    thought = one.thought + (one.visible if visible else 0)
    return {"prompt_tokens_details": {"cached_tokens": one.cached}, **reasoned(thought)}


VENDORS: Mapping[str, Callable[[Counted], Json]] = {
    "OpenAI": lambda one: plain(one) | details(one),
    "xAI": lambda one: beside(one) | details(one) | {"num_sources_used": 0},
    "Gemini": beside,
    "a proxy of Gemini": lambda one: beside(one) | {"completion_tokens": 0} | details(one, visible=True),
    "a proxy whose total lacks the reasoning": lambda one: plain(one._replace(thought=0)) | details(one, visible=True),
    "DeepSeek": lambda one: (
        plain(one)
        | {"prompt_cache_hit_tokens": one.cached, "prompt_cache_miss_tokens": one.new}
        | reasoned(one.thought)
    ),
    "Mistral": lambda one: plain(one) | {"prompt_audio_seconds": {}},
    "Groq": lambda one: plain(one) | details(one) | {"queue_time": 0.01, "total_time": 0.5},
    "Together, Moonshot": lambda one: plain(one) | {"cached_tokens": one.cached},
    "OpenRouter": lambda one: (
        plain(one)
        | details(one)
        | {"cost": 0.0125, "cost_details": {"upstream_inference_cost": None}, "is_byok": False}
    ),
    "Perplexity": lambda one: (
        plain(one._replace(thought=0)) | {"reasoning_tokens": one.thought + one.visible, "search_context_size": "low"}
    ),
    "Cohere, Fireworks, vLLM": lambda one: plain(one) | {"prompt_tokens_details": None},
    "a cache beside the input": lambda one: plain(one._replace(cached=0)) | {"total_tokens": sum(one)} | details(one),
    "no total": lambda one: {"prompt_tokens": one.new + one.cached, "completion_tokens": one.visible} | details(one),
}


def reply_with(provider: str, *usages: Any) -> RawBytes:
    """A whole reply with these usages, one after the other, the last of them at its end."""
    *before, last = usages
    match provider:
        case "openai":
            events = [chunk({"role": "assistant", "content": TEXT}), *(chunk(usage=usage) for usage in before)]
            return stream(*events, chunk({}, "stop"), chunk(usage=last), {})
        case "anthropic":
            start = {**START, "message": {**START["message"], **({"usage": before[0]} if before else {})}}
            ends = [{**total("end_turn"), "usage": usage} for usage in (*before[1:], last)]
            return stream(start, *text(0, TEXT), *ends, STOP)
    part = {"type": "output_text", "text": TEXT, "annotations": []}
    end = response({"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [part]})
    told = [(response(kind="created", status="in_progress"), usage) for usage in before[:1]] + [(end, last)]
    *created, completed = ({**event, "response": {**event["response"], "usage": usage}} for event, usage in told)
    words = {"output_index": 0, "item_id": "m", "content_index": 0, "delta": TEXT}
    return stream(*created, {"type": "response.output_text.delta", **words}, completed)


def used_by(usages: list[Any], provider: str = "openai") -> list[Usage]:
    """What whole replies with these usages used, as Replan counts it."""

    async def ask() -> list[Usage]:
        api = api_of(provider, lambda _: reply_with(provider, usages[len(api.bodies) - 1]))
        async with running(api):
            model = adapter_of(provider, api)
            return [(await model.reply(request(ASKED))).usage for _ in usages]

    return asyncio.run(ask())


@settings(max_examples=30, deadline=None)
@given(st.builds(Counted, *[st.integers(1, 200_000)] * 4))
def test_every_vendor_is_paid_what_it_bills(tokens: Counted) -> None:
    """Reasoning at the price of output wherever it is counted, what came from the cache at its price where it shows."""
    found = dict(zip(VENDORS, used_by([shape(tokens) for shape in VENDORS.values()]), strict=True))
    output = (tokens.visible + tokens.thought) * PRICE.output
    bill = (tokens.new * PRICE.input + tokens.cached * PRICE.cache_read + output) / 1e6
    paid = {vendor: cost_in_usd(usage, PRICE) or 0.0 for vendor, usage in found.items()}

    assert {vendor for vendor, usd in paid.items() if usd < bill - 1e-9} == set()
    exact = {"OpenAI", "xAI", "DeepSeek", "Groq", "Together, Moonshot", "OpenRouter"}
    assert {vendor: paid[vendor] for vendor in exact} == pytest.approx(dict.fromkeys(exact, bill))
    assert not any(usage.is_estimated for usage in found.values())


FIELDS: Mapping[str, tuple[str, ...]] = {
    "openai": (
        *("prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details", "completion_tokens_details"),
        *("prompt_cache_hit_tokens", "cached_tokens", "reasoning_tokens"),
    ),
    "anthropic": (
        *("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "cache_creation"),
        *("output_tokens_details", "server_tool_use", "total_tokens"),
    ),
    "responses": ("input_tokens", "output_tokens", "total_tokens", "input_tokens_details", "output_tokens_details"),
}
PARTS = ("cached_tokens", "cache_write_tokens", "reasoning_tokens", "thinking_tokens", "ephemeral_5m_input_tokens")
ODD = st.sampled_from([0, 7, 2**63, 10**300, -(10**300), 1e308, 12.5, "", "70", "many", [], [7], {}])
JUNK = st.one_of(st.none(), st.booleans(), st.integers(-(10**9), -1), ODD)


@pytest.mark.parametrize("provider", FIELDS)
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_nonsense_is_estimated(provider: str, data: st.DataObject) -> None:
    """Nothing fails, no count is negative, and neither input nor output is free."""
    nested = st.dictionaries(st.sampled_from(PARTS), JUNK, max_size=3)
    whole = st.dictionaries(st.sampled_from(FIELDS[provider]), JUNK | nested, max_size=6)
    usages = data.draw(st.lists(JUNK | whole, min_size=8, max_size=8))
    for usage in used_by(usages, provider):
        assert min(usage.input, usage.output, usage.cache_read, usage.cache_write, usage.reasoning) >= 0
        assert usage.output > 0 and usage.tokens > usage.output, usage


CACHED = {"ephemeral_5m_input_tokens": 30, "ephemeral_1h_input_tokens": 12}
FIRST = {"input_tokens": 9, "output_tokens": 1, "cache_creation": CACHED}
LAST = {"output_tokens": 70, "input_tokens": 0, "output_tokens_details": {"thinking_tokens": 40}}
BOOLS = dict.fromkeys(("prompt_tokens", "completion_tokens", "total_tokens"), True)
READ: Mapping[str, tuple[str, list[Json], tuple[int, int, int, int] | None]] = {
    "60 visible tokens, 3,000 of reasoning beside": (
        *("openai", [VENDORS["xAI"](Counted(1_000, 0, 60, 3_000))]),
        (1_000, 3_060, 3_000, 0),
    ),
    "parts of a cache that is written, and an end without input": ("anthropic", [FIRST, LAST], (9, 70, 40, 42)),
    "true is no number": ("openai", [BOOLS], None),
}
"""Input, output, reasoning, and what was written to the cache; None where it is estimated."""


@pytest.mark.parametrize(("provider", "usages", "counted"), READ.values(), ids=READ)
async def test_what_a_server_counts_in_parts_is_added_up(
    provider: str, usages: list[Json], counted: tuple[int, int, int, int] | None
) -> None:
    """A count of the beginning stays if the last event has none."""
    usage = (await reply_of(provider, reply_with(provider, *usages))).usage

    if counted:
        assert (usage.input, usage.output, usage.reasoning, usage.cache_write) == counted
        assert (usage.tokens, usage.is_estimated) == (counted[0] + counted[1] + counted[3], False)
    else:
        assert usage.is_estimated and usage.output > 40 and usage.input > 20


async def used(monkeypatch: pytest.MonkeyPatch, which: str, *usages: Any) -> Usage:
    """What a whole reply with these usages used, at the provider's own name."""
    meter, came = await replied(monkeypatch, which, reply_with(MODELS[which][0], *usages))
    assert isinstance(came, Reply), came
    assert (meter.lost, meter.wasted, [use.tokens for use in meter.replies]) == ([], [], [came.usage.tokens])
    return came.usage


def usage(which: str, input_tokens: Any, output: Any, **more: Any) -> Json:
    """A usage in the words of the API of a model."""
    words = ("prompt", "completion") if which == "chat" else ("input", "output")
    return {f"{words[0]}_tokens": input_tokens, f"{words[1]}_tokens": output, **more}


@pytest.mark.parametrize("which", MODELS)
async def test_the_last_of_several_counts_holds(monkeypatch: pytest.MonkeyPatch, which: str) -> None:
    """They are totals, not parts."""
    seen = await used(monkeypatch, which, *(usage(which, 900, output) for output in (1, 40, 70)))

    assert (seen.tokens, seen.output, seen.is_estimated) == (970, 70, False)


ABSURD = {
    "none": None,
    "negative": (-900, -70),
    "too large": (10**300, 10**300),
    "words": ("many", None),
    "zero": (0, 0),
}


@pytest.mark.parametrize("which", MODELS)
@pytest.mark.parametrize("pair", ABSURD.values(), ids=ABSURD)
async def test_a_count_that_is_none_is_replaced_by_the_most_that_it_can_be(
    monkeypatch: pytest.MonkeyPatch, which: str, pair: tuple[Any, Any] | None
) -> None:
    """A token is a byte or more; a model that reasons in silence may have used all that it was allowed."""
    first = [usage(which, 0, 1)] if which == "anthropic" else []
    seen = await used(monkeypatch, which, *first, usage(which, *pair) if pair else None)

    assert seen.is_estimated and len(TEXT) <= seen.output <= LIMIT and 0 < seen.input < 200
    assert (seen.output == LIMIT) is (which == "reasoning")


@pytest.mark.parametrize("which", MODELS)
async def test_cached_and_reasoning_tokens_are_counted_once(monkeypatch: pytest.MonkeyPatch, which: str) -> None:
    """OpenAI's totals contain them, Anthropic's do not."""
    price = PriceList().price_of(f"{MAKER[MODELS[which][0]]}:{MODELS[which][1]}")
    if which == "anthropic":
        last = usage(which, 400, 300, cache_read_input_tokens=500, cache_creation_input_tokens=100)
    else:
        names = ("prompt", "completion") if which == "chat" else ("input", "output")
        parts = {f"{names[0]}_tokens_details": {"cached_tokens": 500}}
        last = usage(which, 1_000, 300, **parts, **{f"{names[1]}_tokens_details": {"reasoning_tokens": 200}})
    seen = await used(monkeypatch, which, usage(which, 400, 1), last)
    written = 100 if which == "anthropic" else 0

    assert price and seen.tokens == 1_300
    read = (500 - written) * price.input + 500 * price.cache_read + written * price.cache_write
    assert cost_in_usd(seen, price) == pytest.approx((read + 300 * price.output) / 1e6)


@pytest.mark.full
@pytest.mark.parametrize("which", MODELS)
async def test_a_reply_over_the_size_limit_counts_as_the_most(monkeypatch: pytest.MonkeyPatch, which: str) -> None:
    """The model may have written all that it was allowed, before a comment of 128 MiB."""
    comments = (b": " + b"x" * 65_532 + b"\n\n") * 2_048
    meter, came = await replied(monkeypatch, which, Streamed(LONG, events=4, then=comments))

    assert "exceeds 64 MiB" in str(came)
    assert [lost.use.tokens > LIMIT for lost in meter.lost] == [True]


class Grok(OpenAIApi):
    """Counts reasoning beside the completion, and keeps the bill."""

    usd = 0.0

    def respond(self, heard: ReceivedRequest) -> Response:
        """A model that goes on calling as long as it may."""
        prompt = len(str(self.bodies[-1])) // 4
        counted = VENDORS["xAI"](Counted(prompt, 0, 60, 3_000))
        self.usd += (prompt * PRICE.input + 3_060 * PRICE.output) / 1e6
        if not heard.may_call:
            return stream(chunk({"content": "24.50"}), chunk({}, "stop"), chunk(usage=counted), {})
        made = call_delta(json.dumps({"sku": f"A-{len(self.bodies)}"}))
        made["tool_calls"][0]["function"]["name"] = "get_price"
        return stream(chunk(made), chunk({}, "tool_calls"), chunk(usage=counted), {})


async def test_a_limit_of_money_counts_reasoning_beside_the_completion(client: Client, tmp_path: Path) -> None:
    """The task ends at its limit, and is charged the whole bill of the server."""
    api = Grok([])
    api.script = [api.respond]
    async with running(api):
        planner = ModelPlanner(adapter_of("openai", api), price=PRICE)
        async with staged(client, tmp_path, TOOLS, planner) as stage:
            ended = await stage.run(react(usd=0.5, tool_calls=60))

    assert (ended.status, ended.code) == ("over_budget", "usd"), ended.reason
    assert ended.spent.usd == pytest.approx(api.usd) and 0.4 < api.usd <= 0.5
