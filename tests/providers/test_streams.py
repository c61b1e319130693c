"""Replies that come as streams, and what breaks in them: half a reply is none, and no call is made that has no end."""

import asyncio
import gc
import sys
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from activities.borders import classify
from activities.providers.adapter import Endpoint
from activities.providers.messages import NoReply, Reply, StopReason
from activities.providers.openai import OpenAIModel
from evals.fakes.model_api import KEY, MODEL, running
from evals.fakes.responses_api import ResponsesApi
from evals.fakes.script import Delayed, ModelCall, ModelReply, RawBytes, Response, Streamed
from tests.providers.asking import ASKED, IDLE, asked, number_of_events, reply_of, request
from tests.providers.wire import (
    START,
    STOP,
    added,
    argued,
    begun,
    call_delta,
    chunk,
    deltas,
    done,
    ended,
    events_of,
    function_call,
    piece,
    response,
    stream,
    text,
    total,
    used,
)
from workflows.faults.fault import Code

LOOKS = ModelReply(
    (ModelCall("weather", {"place": "Paris"}), ModelCall("weather", {"place": "Rome"})),
    text="I look at the weather of both.",
    thinking="Rome is in the south.",
)


async def test_a_stream_is_one_reply(provider: str) -> None:
    """Text, calls in their order and usage, however small the parts are in which they come."""
    api, meter, reply = await asked(provider, LOOKS)

    assert isinstance(reply, Reply), reply
    assert (reply.turn.text, reply.stop) == (LOOKS.text, StopReason.CALLS)
    assert [call.args for call in reply.turn.calls] == [{"place": "Paris"}, {"place": "Rome"}]
    assert len({call.id for call in reply.turn.calls}) == 2
    assert (reply.usage.tokens, reply.usage.is_estimated, meter.lost, api.violations) == (130, False, [], [])
    assert api.bodies[0]["stream"] is True


@pytest.mark.parametrize("then", ["end", "drop"])
async def test_a_stream_that_ends_anywhere_is_no_reply(provider: str, then: Any) -> None:
    """Whatever came before: no half of a text, and no call of which the arguments may be cut."""
    whole = number_of_events(provider, LOOKS)
    # Chat Completions tells the reason to stop before the usage and the end.
    last = whole - 2 if provider == "openai" and then == "end" else whole
    faults = list[Code]()
    for events in range(last):
        api, _, error = await asked(provider, Streamed(LOOKS, events=events, then=then))
        assert isinstance(error, Exception), (events, error)
        faults.append(classify(error).code)
        assert len(api.bodies) == 1

    assert faults == [Code.UNREACHABLE] * last


async def test_a_whole_reply_leaves_no_stream_half_read(provider: str) -> None:
    """What is left so is closed whenever it is found, in several tasks at once, and one is in the way of another."""
    hooks, left = sys.get_asyncgen_hooks(), list[str]()

    def finalize(found: AsyncGenerator[Any]) -> None:
        left.append(repr(found))
        assert hooks.finalizer is not None
        hooks.finalizer(found)

    gc.collect()
    sys.set_asyncgen_hooks(finalizer=finalize)
    try:
        reply = await reply_of(provider, Streamed(LOOKS))
        gc.collect()
    finally:
        sys.set_asyncgen_hooks(*hooks)

    assert reply.turn.calls and left == []


@pytest.mark.parametrize("keeps_alive", [False, True])
async def test_a_reply_that_stops_is_a_timeout(provider: str, keeps_alive: bool) -> None:
    """After the seconds of the setting, not those of the whole call; comments alone are a sign of life."""
    stalls = Streamed(LOOKS, events=5, then="stall", keeps_alive=keeps_alive)
    if keeps_alive:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asked(provider, stalls), 3 * IDLE)
        return
    api, _, error = await asked(provider, stalls)

    assert isinstance(error, NoReply) and len(api.bodies) == 1
    assert error.fault.code is Code.TIMEOUT
    assert error.fault.reason == "The model's reply stopped: no byte came for 0.6 s."


NOON = ModelReply(text="Rome, at last.")
SLOW: dict[str, Response] = {
    "pauses": Streamed(NOON, pause=IDLE / 4),
    "a model is loaded first": Delayed(2 * IDLE, NOON),
    "a long prompt is read first": Streamed(NOON, pause_before_words=2 * IDLE),
}


@pytest.mark.parametrize("response", SLOW.values(), ids=SLOW)
async def test_a_slow_stream_is_waited_for(provider: str, response: Response) -> None:
    """Silence between two events counts; at a server of one's own, it begins with the first words."""
    assert (await reply_of(provider, response)).turn.text == NOON.text


class BehindProxy(ResponsesApi):
    """OpenAI's own address, as a proxy is asked for it."""

    path = f"http://api.openai.com{ResponsesApi.path}"


async def test_the_provider_itself_answers_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """At its own address, silence before the first byte is a stall, too."""
    for name in ("NO_PROXY", "no_proxy", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    async with running(BehindProxy([Delayed(30, ModelReply(text="Rome."))])) as api:
        monkeypatch.setenv("HTTP_PROXY", api.url)
        model = OpenAIModel(MODEL, Endpoint(KEY, "http://api.openai.com/v1", IDLE))
        with pytest.raises(NoReply, match=r"OpenAI's API sent nothing for 0\.6 s") as raised:
            await model.reply(request(ASKED))

    assert (raised.value.fault.code, len(api.bodies)) == (Code.TIMEOUT, 1)


GARBAGE = {
    "no JSON": b'event: message_delta\ndata: {"type": \n\n',
    "another shape": b'event: content_block_delta\ndata: {"type": "content_block_delta", "choices": 7}\n\n',
    "no object": b"event: message_delta\ndata: 7\n\n",
    "bytes": b"data: \xff\xfe\xfd\n\n",
    "a page": b"<html><body>Bad gateway</body></html>\n\n",
    "half a line": b'data: {"type"',
}


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE)
async def test_garbage_in_a_stream_is_transient(provider: str, garbage: bytes) -> None:
    """A proxy may have sent it: nothing of the reply is used."""
    for events in (0, 4):
        api, _, error = await asked(provider, Streamed(LOOKS, events=events, then=garbage))

        assert isinstance(error, Exception), error
        assert (classify(error).quadrant.is_transient, len(api.bodies)) == (True, 1), classify(error)


# What a server says of the end of its calls and of its reply

IN_ROME, IN_PARIS = '{"place": "Rome"}', '{"place": "Paris"}'
CALL = (begun(0), piece(0, IN_ROME), ended(0))
LATER = (begun(0, "toolu_2"), piece(0, IN_PARIS), ended(0))
CHAT = call_delta(IN_ROME)
ITEM, OTHER = function_call(IN_ROME), function_call(IN_PARIS, id="b")


def again(*events: Any, first: str, then: str | None) -> RawBytes:
    """A stream of Messages with two reasons to stop, one after the other."""
    return stream(START, *events, total(first), total(then), STOP)


UNFINISHED: dict[str, tuple[str, RawBytes]] = {
    "Messages: no end of the block": ("anthropic", events_of(begun(0), piece(0, IN_ROME), stop="tool_use")),
    "Messages: half the arguments": ("anthropic", events_of(begun(0), piece(0, IN_ROME[:9]), stop="tool_use")),
    "Messages: no arguments": ("anthropic", events_of(begun(0), stop="tool_use")),
    "Messages: the second has no end": (
        "anthropic",
        events_of(*CALL, begun(1, "toolu_2"), piece(1, IN_PARIS), stop="tool_use"),
    ),
    "Messages: two at once with one index": (
        "anthropic",
        events_of(begun(0), begun(0, "b"), piece(0, IN_ROME), ended(0), ended(0), stop="tool_use"),
    ),
    "Messages: cut off": ("anthropic", events_of(*CALL, stop="max_tokens")),
    "Messages: cut off, then no reason": ("anthropic", again(*CALL, first="max_tokens", then=None)),
    "Messages: cut off, then a milder reason": ("anthropic", again(*CALL, first="max_tokens", then="tool_use")),
    "Messages: cut off, in capitals": ("anthropic", events_of(*CALL, stop="MAX_TOKENS")),
    "Chat: cut off": ("openai", deltas(CHAT, stop="length")),
    "Chat: cut off, in capitals": ("openai", deltas(CHAT, stop="MAX_TOKENS")),
    "Chat: cut off, then a milder reason": (
        "openai",
        stream(chunk(CHAT), chunk({}, "length"), chunk({}, "stop"), used(), {}),
    ),
    "Chat: no reason and no arguments": ("openai", stream(chunk(call_delta("")), used(), {})),
    "Responses: incomplete": ("responses", stream(response(ITEM, kind="incomplete", status=None))),
    "Responses: an item is incomplete": ("responses", stream(response(function_call(IN_ROME, "incomplete")))),
    "Responses: an item is in progress": ("responses", stream(response(function_call(IN_ROME, "in_progress")))),
    "Responses: no end of the item": (
        "responses",
        stream(added(ITEM), argued(IN_ROME), response(function_call(IN_ROME, None))),
    ),
    "Responses: the second has no end": (
        "responses",
        stream(added(ITEM), done(ITEM), added(OTHER, 1), argued(IN_PARIS, 1), response()),
    ),
    "Responses: the item lost its arguments": (
        "responses",
        stream(added(ITEM), argued(IN_ROME), done(function_call("")), response()),
    ),
}


@pytest.mark.parametrize(("provider", "raw"), UNFINISHED.values(), ids=UNFINISHED)
async def test_a_call_without_its_end_is_as_in_a_reply_that_was_cut_off(provider: str, raw: RawBytes) -> None:
    """However whole it looks: the model is told, and nothing is called."""
    assert (await reply_of(provider, raw)).stop is StopReason.CUT


DECLINED: dict[str, tuple[str, RawBytes]] = {
    "Messages": ("anthropic", again(*CALL, first="refusal", then=None)),
    "Chat": ("openai", stream(chunk(CHAT), chunk({}, "content_filter"), chunk({}, "stop"), used(), {})),
    "Chat, in capitals": ("openai", deltas(CHAT, stop="SAFETY")),
}


@pytest.mark.parametrize(("provider", "raw"), DECLINED.values(), ids=DECLINED)
async def test_a_refusal_stays_one(provider: str, raw: RawBytes) -> None:
    assert (await reply_of(provider, raw)).stop is StopReason.REFUSED


AGAIN = {"tool_calls": [{"index": 0, "type": "function", "function": {"arguments": {"place": "Rome"}}}]}
UNCOUNTED = {"type": "message_delta", "delta": {"stop_reason": "tool_use"}}
IN_TURNS = (begun(1), begun(2, "b"), piece(2, IN_PARIS), piece(1, IN_ROME), ended(2), ended(1))
WHOLE: dict[str, tuple[str, RawBytes, list[str]]] = {
    "Messages: index 0 for each": ("anthropic", events_of(*CALL, *LATER, stop="tool_use"), ["Rome", "Paris"]),
    "Messages: index 0 for a text, too": (
        "anthropic",
        events_of(*text(0, "I look."), *CALL, stop="tool_use"),
        ["Rome"],
    ),
    "Messages: in turns": ("anthropic", events_of(*IN_TURNS, stop="tool_use"), ["Rome", "Paris"]),
    "Messages: arguments in the beginning": (
        "anthropic",
        events_of(begun(0, input={"place": "Rome"}), ended(0), stop="tool_use"),
        ["Rome"],
    ),
    "Messages: no count": ("anthropic", stream(START, *CALL, UNCOUNTED, STOP), ["Rome"]),
    "Chat: in capitals": ("openai", stream(chunk(CHAT, "null"), chunk({}, "Tool_Calls"), used(), {}), ["Rome"]),
    "Chat: no reason": ("openai", stream(chunk(CHAT, "null"), used(), {}), ["Rome"]),
    "Chat: no reason, an empty object": ("openai", stream(chunk(call_delta({})), used(), {}), [""]),
    "Chat: no arguments": ("openai", deltas(call_delta(""), stop="tool_calls"), [""]),
    "Chat: the whole arguments again": (
        "openai",
        stream(chunk(call_delta({"place": "Rome"})), chunk(AGAIN), used(), {}),
        ["Rome"],
    ),
    "Responses: only the items": ("responses", stream(added(ITEM), argued(IN_ROME), done(ITEM), response()), ["Rome"]),
    "Responses: only the whole": ("responses", stream(response(ITEM)), ["Rome"]),
    "Responses: reformatted, at another place": (
        *("responses", stream(added(ITEM, 1), argued(IN_ROME, 1), response(function_call('{"place":"Rome"}')))),
        ["Rome"],
    ),
}


@pytest.mark.parametrize(("provider", "raw", "places"), WHOLE.values(), ids=WHOLE)
async def test_a_call_with_its_end_is_made(provider: str, raw: RawBytes, places: list[str]) -> None:
    """Each with its own arguments, however the server numbers its blocks and writes its reasons."""
    reply = await reply_of(provider, raw)
    args = [{"place": place} if place else {} for place in places]

    assert [(call.args, call.broken) for call in reply.turn.calls] == [(each, "") for each in args]
    assert reply.stop in (StopReason.CALLS, StopReason.DONE)


PAID = chunk({"role": "assistant", "content": "Paid ann 1. "})
NOT = chunk({"content": "The second payment was NOT"})
CUT: dict[str, RawBytes] = {
    "usage in the middle": stream(PAID, used(100, 4), NOT),
    "usage at the beginning": stream(used(100, 0), PAID, NOT),
    "usage in each chunk": stream({**PAID, "usage": used()["usage"]}, {**NOT, "usage": used()["usage"]}),
    "half a call after it": stream(PAID, used(), chunk(call_delta('{"place": "Ro'))),
    "a reason in the middle": stream(chunk({"content": "Paid ann 1. "}, "stop"), NOT),
}


@pytest.mark.parametrize("raw", CUT.values(), ids=CUT)
async def test_a_count_before_the_end_is_no_end(raw: RawBytes) -> None:
    """The text after it is a part of the reply, and without an end there is no reply."""
    _, _, error = await asked("openai", raw)

    assert isinstance(error, NoReply) and "ended its reply in the middle" in str(error)


ENDED: dict[str, RawBytes] = {
    "usage in the middle, then a reason": stream(PAID, used(100, 4), NOT, chunk({}, "stop"), {}),
    "usage in the middle, then [DONE]": stream(PAID, used(100, 4), NOT, {}),
    "usage at the beginning, then [DONE]": stream(used(100, 0), PAID, NOT, b"data:[DONE]\n\n"),
    "usage at the end": stream(PAID, NOT, used()),
    "usage at both ends": stream(used(100, 0), PAID, NOT, used()),
}


@pytest.mark.parametrize("raw", ENDED.values(), ids=ENDED)
async def test_a_reply_has_all_of_its_text(raw: RawBytes) -> None:
    """Also what came after a count, whose output is then no count of the whole."""
    reply = await reply_of("openai", raw)

    assert (reply.turn.text, reply.stop) == ("Paid ann 1. The second payment was NOT", StopReason.DONE)
    assert reply.usage.output > 10 and (reply.usage.output == 20 or reply.usage.is_estimated)
