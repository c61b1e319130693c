"""What servers count, each in its own way: no consistent reading of a count has a larger bill than ours."""

import asyncio
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from temporalio.client import Client

from activities.planning.model_planner import ModelPlanner
from activities.providers.messages import Reply, Usage
from activities.providers.prices import cost_in_usd
from evals.fakes.model_api import Json, ModelApi, running
from evals.fakes.script import RawBytes, ReceivedRequest, Response
from tests.harness import staged
from tests.providers.asking import ASKED, request
from tests.providers.desk import TOOLS
from tests.providers.planning import PROVIDERS, adapter_of, api_of
from tests.providers.test_budgets import react
from tests.providers.wire import START, STOP, call_delta, chunk, response, stream, text, total
from workflows.plans.catalogue import Price

PRICE = Price(input=3, output=15, cache_read=0.3, cache_write=3.75)
Counted = tuple[int, int, int, int]
"""Tokens: new input, input from the cache, visible output, reasoning."""


def plain(new: int, cached: int, visible: int, thought: int) -> Json:
    """The three sums of OpenAI's usage."""
    prompt, completion = new + cached, visible + thought
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def details(cached: int, thought: int) -> Json:
    """The parts of OpenAI's usage."""
    return {
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens_details": {"reasoning_tokens": thought},
    }


def beside(new: int, cached: int, visible: int, thought: int) -> Json:
    """Reasoning that only the total contains."""
    return {**plain(new, cached, visible, thought), "completion_tokens": visible}


VENDORS: Mapping[str, Callable[[int, int, int, int], Json]] = {
    "OpenAI": lambda new, cached, visible, thought: {
        **plain(new, cached, visible, thought),
        **details(cached, thought),
    },
    "xAI": lambda new, cached, visible, thought: {
        **beside(new, cached, visible, thought),
        **details(cached, thought),
        "num_sources_used": 0,
    },
    "Gemini": lambda new, cached, visible, thought: beside(new, cached, visible, thought),
    "a proxy of Gemini that counts no answer": lambda new, cached, visible, thought: {
        **beside(new, cached, visible, thought),
        "completion_tokens": 0,
        **details(cached, visible + thought),
    },
    "a proxy whose total lacks the reasoning": lambda new, cached, visible, thought: {
        **plain(new, cached, visible, 0),
        **details(cached, thought + visible),
    },
    "DeepSeek": lambda new, cached, visible, thought: {
        **plain(new, cached, visible, thought),
        "prompt_cache_hit_tokens": cached,
        "prompt_cache_miss_tokens": new,
        "completion_tokens_details": {"reasoning_tokens": thought},
    },
    "Mistral": lambda new, cached, visible, thought: {
        **plain(new, cached, visible, thought),
        "prompt_audio_seconds": {},
    },
    "Groq": lambda new, cached, visible, thought: {
        **plain(new, cached, visible, thought),
        **details(cached, thought),
        "queue_time": 0.01,
        "total_time": 0.5,
    },
    "Together, Moonshot": lambda new, cached, visible, thought: {
        **plain(new, cached, visible, thought),
        "cached_tokens": cached,
    },
    "OpenRouter": lambda new, cached, visible, thought: {
        **plain(new, cached, visible, thought),
        **details(cached, thought),
        "cost": 0.0125,
        "cost_details": {"upstream_inference_cost": None},
        "is_byok": False,
    },
    "Perplexity": lambda new, cached, visible, thought: {
        **plain(new, cached, visible, 0),
        "reasoning_tokens": thought + visible,
        "search_context_size": "low",
    },
    "Cohere, Fireworks, vLLM": lambda new, cached, visible, thought: {
        **plain(new, cached, visible, thought),
        "prompt_tokens_details": None,
    },
    "a cache beside the input": lambda new, cached, visible, thought: {
        **plain(new, 0, visible, thought),
        "total_tokens": new + cached + visible + thought,
        **details(cached, thought),
    },
    "no total": lambda new, cached, visible, thought: {
        "prompt_tokens": new + cached,
        "completion_tokens": visible,
        **details(cached, thought),
    },
}


def used_by(usages: list[Any], provider: str = "openai") -> list[Usage]:
    """What whole replies with these usages used, as Replan counts it."""

    async def ask() -> list[Usage]:
        api = api_of(provider, lambda _: reply_with(provider, usages[len(api.bodies) - 1]))
        async with running(api):
            model = adapter_of(provider, api)
            return [(await reply(model)).usage for _ in usages]

    async def reply(model: Any) -> Reply:
        found: Reply = await model.reply(request(ASKED))
        return found

    return asyncio.run(ask())


def reply_with(provider: str, usage: Any) -> RawBytes:
    """A whole reply with this usage."""
    words = "Rome is warmer. " * 10
    match provider:
        case "openai":
            return stream(chunk({"content": words}), chunk({}, "stop"), chunk(usage=usage), {})
        case "anthropic":
            return stream(START, *text(0, words), total("end_turn", usage), STOP)
    part = {"type": "output_text", "text": words, "annotations": []}
    item = {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [part]}
    last = response(item)
    return stream({**last, "response": {**last["response"], "usage": usage}})


@settings(max_examples=30, deadline=None)
@given(st.tuples(*[st.integers(1, 200_000)] * 4))
def test_every_vendor_is_paid_what_it_bills(tokens: Counted) -> None:
    """Reasoning at the price of output wherever it is counted, what came from the cache at its price where it shows."""
    new, cached, visible, thought = tokens
    found = dict(zip(VENDORS, used_by([shape(*tokens) for shape in VENDORS.values()]), strict=True))
    bill = (new * PRICE.input + cached * PRICE.cache_read + (visible + thought) * PRICE.output) / 1e6
    paid = {vendor: cost_in_usd(usage, PRICE) or 0.0 for vendor, usage in found.items()}

    assert {vendor for vendor, usd in paid.items() if usd < bill - 1e-9} == set()
    exact = {"OpenAI", "xAI", "DeepSeek", "Groq", "Together, Moonshot", "OpenRouter"}
    assert {vendor: paid[vendor] for vendor in exact} == pytest.approx(dict.fromkeys(exact, bill))
    assert not any(usage.is_estimated for usage in found.values())


def test_what_is_beside_the_completion_is_output() -> None:
    """As at xAI: 60 visible tokens, 3,000 of reasoning."""
    (usage,) = used_by([VENDORS["xAI"](1_000, 0, 60, 3_000)])

    assert (usage.input, usage.output, usage.reasoning, usage.tokens) == (1_000, 3_060, 3_000, 4_060)


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
JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**9), -1),
    st.sampled_from([0, 7, 2**63, 10**300, -(10**300), 1e308, 12.5, "", "70", "many", [], [7], {}]),
)


@pytest.mark.parametrize("provider", PROVIDERS)
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


def test_a_bool_is_no_count() -> None:
    """Although Python takes it for a number."""
    (usage,) = used_by([{"prompt_tokens": True, "completion_tokens": True, "total_tokens": True}])

    assert usage.is_estimated and usage.output > 40 and usage.input > 20


def test_parts_of_what_anthropic_wrote_to_its_cache_are_added_up() -> None:
    """Where the sum is missing; a count of the beginning stays if the last event has none."""
    parts = {"ephemeral_5m_input_tokens": 30, "ephemeral_1h_input_tokens": 12}
    thought = {"thinking_tokens": 40}
    (usage,) = used_by([{"output_tokens": 70, "input_tokens": 0, "output_tokens_details": thought}], "anthropic")

    async def ask() -> Usage:
        start = {**START["message"], "usage": {"input_tokens": 9, "output_tokens": 1, "cache_creation": parts}}
        raw = stream({"type": "message_start", "message": start}, *text(0, "Rome."), total("end_turn"), STOP)
        async with running(api_of("anthropic", raw)) as api:
            return (await adapter_of("anthropic", api).reply(request(ASKED))).usage

    assert (usage.input, usage.output, usage.reasoning, usage.is_estimated) == (100, 70, 40, False)
    assert (written := asyncio.run(ask())).cache_write == 42 and written.tokens == 9 + 42 + 20


class Grok(api_of("openai").__class__):  # type: ignore[misc]  # the server of Chat Completions
    """Counts reasoning beside the completion, and keeps the bill."""

    usd = 0.0

    def respond(self, heard: ReceivedRequest) -> Response:
        """A model that goes on calling as long as it may."""
        prompt = len(str(self.bodies[-1])) // 4
        counted = VENDORS["xAI"](prompt, 0, 60, 3_000)
        self.usd += (prompt * PRICE.input + 3_060 * PRICE.output) / 1e6
        delta = call_delta(json.dumps({"sku": f"A-{len(self.bodies)}"})) if heard.may_call else {"content": "24.50"}
        reason = "tool_calls" if heard.may_call else "stop"
        delta = {**delta, "tool_calls": named(delta)} if heard.may_call else delta
        return stream(chunk(delta), chunk({}, reason), chunk(usage=counted), {})


def named(delta: Json) -> list[Json]:
    """The call of a delta, of `get_price`."""
    return [{**call, "function": {**call["function"], "name": "get_price"}} for call in delta["tool_calls"]]


async def test_a_limit_of_money_counts_reasoning_beside_the_completion(client: Client, tmp_path: Path) -> None:
    """The task ends at its limit, and is charged the whole bill of the server."""
    api: ModelApi = Grok([])
    api.script = [lambda heard: api.respond(heard)]  # type: ignore[attr-defined]
    async with running(api):
        planner = ModelPlanner(adapter_of("openai", api), price=PRICE)
        async with staged(client, tmp_path, TOOLS, planner) as stage:
            ended = await stage.run(react(usd=0.5, tool_calls=60))
    usd = api.usd  # type: ignore[attr-defined]

    assert (ended.status, ended.code) == ("over_budget", "usd"), ended.reason
    assert ended.spent.usd == pytest.approx(usd) and 0.4 < usd <= 0.5
