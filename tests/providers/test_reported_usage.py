"""Usage that a server reports late, twice, not at all or absurdly; and replies that are too large to read."""

from typing import Any

import pytest

from activities.providers.messages import Reply, Usage
from activities.providers.metering import Meter
from activities.providers.prices import PriceList, cost_in_usd
from evals.fakes.model_api import Json, event_bytes, json_answer
from evals.fakes.script import RawBytes, Response, Streamed
from tests.providers.test_bills import ASKED, LONG, MODELS, maker_of, replied

TEXT = "Rome is warm. " * 30
LIMIT = ASKED.max_output or 0


def streamed(*events: Json) -> RawBytes:
    """A stream of these events; `{}` stands for `[DONE]`."""
    body = b"".join(map(event_bytes, events))
    return RawBytes(json_answer(200, body, **{"content-type": "text/event-stream"}))


def chat(*usages: Json | None) -> RawBytes:
    """A reply of Chat Completions with a usage in its parts, the last of them after the reason to stop."""
    chunk: Json = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    parts = [{**chunk, "choices": [{"index": 0, "delta": {"role": "assistant", "content": TEXT}}]}]
    parts += [{**chunk, "choices": [], "usage": usage} for usage in usages[:-1]]
    parts += [{**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}]
    return streamed(*parts, {**chunk, "choices": [], "usage": usages[-1]}, {})


def responses(*usages: Json | None) -> RawBytes:
    """A reply of Responses with a usage in its first event and in its last."""
    item = {"type": "message", "id": "m", "role": "assistant", "status": "completed"}
    content = [{"type": "output_text", "text": TEXT, "annotations": []}]
    base: Json = {"id": "r", "object": "response", "created_at": 1, "model": "m"}
    first = {**base, "status": "in_progress", "output": [], "usage": usages[0]}
    last = {**base, "status": "completed", "output": [{**item, "content": content}], "usage": usages[-1]}
    delta = {"type": "response.output_text.delta", "item_id": "m", "output_index": 0, "content_index": 0, "delta": TEXT}
    return streamed(
        {"type": "response.created", "response": first}, delta, {"type": "response.completed", "response": last}
    )


def messages(first: Json, *totals: Json | None) -> RawBytes:
    """A reply of Messages: the usage of its beginning, and its totals, each of which replaces the one before."""
    message: Json = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [], "usage": first}
    block: Json = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    delta = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": TEXT}}
    ends = [{"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": total} for total in totals]
    start = {"type": "message_start", "message": message}
    return streamed(start, block, delta, {"type": "content_block_stop", "index": 0}, *ends, {"type": "message_stop"})


def counted(which: str, *usages: Json | None) -> RawBytes:
    """A whole reply of a model with these usages, one after the other."""
    match MODELS[which][0]:
        case "anthropic":
            return messages(usages[0] or {}, *usages[1:])
        case "openai":
            return chat(*usages)
        case _:
            return responses(*usages)


def usage(which: str, input_tokens: Any, output: Any, **more: Any) -> Json:
    """A usage in the words of the API of a model."""
    words = ("prompt", "completion") if which == "chat" else ("input", "output")
    return {f"{words[0]}_tokens": input_tokens, f"{words[1]}_tokens": output, **more}


async def used(monkeypatch: pytest.MonkeyPatch, which: str, response: Response) -> Usage:
    """What a whole reply used."""
    meter, came = await replied(monkeypatch, which, response)
    assert isinstance(came, Reply), came
    assert (meter.lost, meter.wasted, [use.tokens for use in meter.replies]) == ([], [], [came.usage.tokens])
    return came.usage


@pytest.mark.parametrize("which", MODELS)
async def test_the_last_of_several_counts_holds(monkeypatch: pytest.MonkeyPatch, which: str) -> None:
    """They are totals, not parts."""
    each = [usage(which, 900, output) for output in (1, 40, 70)]
    seen = await used(monkeypatch, which, counted(which, *each))

    assert (seen.tokens, seen.output, seen.is_estimated) == (970, 70, False)


ABSURD = {
    "none": None,
    "negative": (-900, -70),
    "too large": (10**300, 10**300),
    "words": ("many", None),
    "zero": (0, 0),
}


@pytest.mark.parametrize("which", MODELS)
@pytest.mark.parametrize("name", ABSURD)
async def test_a_count_that_is_none_is_replaced_by_the_most_that_it_can_be(
    monkeypatch: pytest.MonkeyPatch, which: str, name: str
) -> None:
    """A token is a byte or more; a model that reasons in silence may have used all that it was allowed."""
    pair = ABSURD[name]
    last = [usage(which, *pair)] if pair else [] if which == "anthropic" else [None]
    first = [usage(which, 0, 1)] if which == "anthropic" else []
    seen = await used(monkeypatch, which, counted(which, *first, *last))

    assert seen.is_estimated and len(TEXT) <= seen.output <= LIMIT and 0 < seen.input < 200
    assert (seen.output == LIMIT) is (which == "reasoning")


@pytest.mark.parametrize("which", MODELS)
async def test_cached_and_reasoning_tokens_are_counted_once(monkeypatch: pytest.MonkeyPatch, which: str) -> None:
    """OpenAI's totals contain them, Anthropic's do not."""
    price = PriceList().price_of(f"{maker_of(MODELS[which][0])}:{MODELS[which][1]}")
    if which == "anthropic":
        total = usage(which, 400, 300, cache_read_input_tokens=500, cache_creation_input_tokens=100)
    else:
        names = ("prompt", "completion") if which == "chat" else ("input", "output")
        details = {f"{names[0]}_tokens_details": {"cached_tokens": 500}}
        total = usage(which, 1_000, 300, **details, **{f"{names[1]}_tokens_details": {"reasoning_tokens": 200}})
    seen = await used(monkeypatch, which, counted(which, usage(which, 400, 1), total))
    written = 100 if which == "anthropic" else 0

    assert price and seen.tokens == 1_300
    read = (500 - written) * price.input + 500 * price.cache_read + written * price.cache_write
    assert cost_in_usd(seen, price) == pytest.approx((read + 300 * price.output) / 1e6)


LARGE = b": " + b"x" * 65_532 + b"\n\n"
"""A part of a comment, of which a stream may have any number."""


@pytest.mark.full
@pytest.mark.parametrize("which", MODELS)
async def test_a_reply_over_the_size_limit_counts_as_the_most(monkeypatch: pytest.MonkeyPatch, which: str) -> None:
    """The model may have written all that it was allowed."""
    meter, came = await too_large(monkeypatch, which)

    assert "exceeds 64 MiB" in str(came)
    assert [lost.use.tokens > LIMIT for lost in meter.lost] == [True]


async def too_large(monkeypatch: pytest.MonkeyPatch, which: str) -> tuple[Meter, Reply | Exception]:
    """A stream of 128 MiB."""
    return await replied(monkeypatch, which, Streamed(LONG, events=4, then=LARGE * 2_048))
