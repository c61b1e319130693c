"""Nothing is called that the model did not finish writing, and no reply is whole whose end did not come."""

from typing import Any

import pytest

from activities.providers.messages import NoReply, Reply, StopReason
from evals.fakes.script import RawBytes
from tests.providers.test_streams import asked
from tests.providers.wire import (
    START,
    STOP,
    added,
    argued,
    begun,
    call_delta,
    chunk,
    done,
    ended,
    function_call,
    piece,
    response,
    stream,
    text,
    total,
    used,
)

ROME, PARIS = '{"place": "Rome"}', '{"place": "Paris"}'
CALL = (begun(0), piece(0, ROME), ended(0))
LATER = (begun(0, "toolu_2"), piece(0, PARIS), ended(0))


async def reply_of(provider: str, raw: RawBytes) -> Reply:
    """The reply that a model gave."""
    _, _, reply = await asked(provider, raw)
    assert isinstance(reply, Reply), repr(reply)
    return reply


UNFINISHED: dict[str, tuple[str, RawBytes]] = {
    "Messages: no end of the block": ("anthropic", stream(START, begun(0), piece(0, ROME), total("tool_use"), STOP)),
    "Messages: half the arguments": (
        "anthropic",
        stream(START, begun(0), piece(0, ROME[:9]), total("tool_use"), STOP),
    ),
    "Messages: no arguments": ("anthropic", stream(START, begun(0), total("tool_use"), STOP)),
    "Messages: the second has no end": (
        "anthropic",
        stream(START, *CALL, begun(1, "toolu_2"), piece(1, PARIS), total("tool_use"), STOP),
    ),
    "Messages: two at once with one index": (
        "anthropic",
        stream(START, begun(0), begun(0, "b"), piece(0, ROME), ended(0), ended(0), total("tool_use"), STOP),
    ),
    "Messages: cut off": ("anthropic", stream(START, *CALL, total("max_tokens"), STOP)),
    "Messages: cut off, then no reason": ("anthropic", stream(START, *CALL, total("max_tokens"), total(None), STOP)),
    "Messages: cut off, then a milder reason": (
        "anthropic",
        stream(START, *CALL, total("max_tokens"), total("tool_use"), STOP),
    ),
    "Messages: cut off, in capitals": ("anthropic", stream(START, *CALL, total("MAX_TOKENS"), STOP)),
    "Chat: cut off": ("openai", stream(chunk(call_delta(ROME)), chunk({}, "length"), used(), {})),
    "Chat: cut off, in capitals": ("openai", stream(chunk(call_delta(ROME)), chunk({}, "MAX_TOKENS"), used(), {})),
    "Chat: cut off, then a milder reason": (
        "openai",
        stream(chunk(call_delta(ROME)), chunk({}, "length"), chunk({}, "stop"), used(), {}),
    ),
    "Chat: no reason and no arguments": ("openai", stream(chunk(call_delta("")), used(), {})),
    "Responses: incomplete": ("responses", stream(response(function_call(ROME), kind="incomplete", status=None))),
    "Responses: an item is incomplete": ("responses", stream(response(function_call(ROME, "incomplete")))),
    "Responses: an item is in progress": ("responses", stream(response(function_call(ROME, "in_progress")))),
    "Responses: no end of the item": (
        "responses",
        stream(added(function_call(ROME)), argued(ROME), response(function_call(ROME, None))),
    ),
    "Responses: the second has no end": (
        "responses",
        stream(
            added(function_call(ROME)),
            done(function_call(ROME)),
            added(function_call(PARIS, id="b"), 1),
            argued(PARIS, 1),
            response(),
        ),
    ),
    "Responses: the item lost its arguments": (
        "responses",
        stream(added(function_call(ROME)), argued(ROME), done(function_call("")), response()),
    ),
}


@pytest.mark.parametrize(("provider", "raw"), UNFINISHED.values(), ids=UNFINISHED)
async def test_a_call_without_its_end_is_as_in_a_reply_that_was_cut_off(provider: str, raw: RawBytes) -> None:
    """However whole it looks: the model is told, and nothing is called."""
    assert (await reply_of(provider, raw)).stop is StopReason.CUT


DECLINED: dict[str, tuple[str, RawBytes]] = {
    "Messages": ("anthropic", stream(START, *CALL, total("refusal"), total(None), STOP)),
    "Chat": ("openai", stream(chunk(call_delta(ROME)), chunk({}, "content_filter"), chunk({}, "stop"), used(), {})),
    "Chat, in capitals": ("openai", stream(chunk(call_delta(ROME)), chunk({}, "SAFETY"), used(), {})),
}


@pytest.mark.parametrize(("provider", "raw"), DECLINED.values(), ids=DECLINED)
async def test_a_refusal_stays_one(provider: str, raw: RawBytes) -> None:
    """Whatever reason comes after it."""
    assert (await reply_of(provider, raw)).stop is StopReason.REFUSED


AGAIN = {"tool_calls": [{"index": 0, "type": "function", "function": {"arguments": {"place": "Rome"}}}]}
WHOLE: dict[str, tuple[str, RawBytes, list[dict[str, Any]]]] = {
    "Messages: index 0 for each": (
        "anthropic",
        stream(START, *CALL, *LATER, total("tool_use"), STOP),
        [{"place": "Rome"}, {"place": "Paris"}],
    ),
    "Messages: index 0 for a text, too": (
        "anthropic",
        stream(START, *text(0, "I look."), *CALL, total("tool_use"), STOP),
        [{"place": "Rome"}],
    ),
    "Messages: in turns": (
        "anthropic",
        stream(
            START,
            begun(1),
            begun(2, "b"),
            piece(2, PARIS),
            piece(1, ROME),
            ended(2),
            ended(1),
            total("tool_use"),
            STOP,
        ),
        [{"place": "Rome"}, {"place": "Paris"}],
    ),
    "Messages: arguments in the beginning": (
        "anthropic",
        stream(START, begun(0, input={"place": "Rome"}), ended(0), total("tool_use"), STOP),
        [{"place": "Rome"}],
    ),
    "Messages: no count": (
        "anthropic",
        stream(START, *CALL, {"type": "message_delta", "delta": {"stop_reason": "tool_use"}}, STOP),
        [{"place": "Rome"}],
    ),
    "Chat: in capitals": (
        "openai",
        stream(chunk(call_delta(ROME), "null"), chunk({}, "Tool_Calls"), used(), {}),
        [{"place": "Rome"}],
    ),
    "Chat: no reason": ("openai", stream(chunk(call_delta(ROME), "null"), used(), {}), [{"place": "Rome"}]),
    "Chat: no reason, an empty object": ("openai", stream(chunk(call_delta({})), used(), {}), [{}]),
    "Chat: no arguments": ("openai", stream(chunk(call_delta("")), chunk({}, "tool_calls"), used(), {}), [{}]),
    "Chat: the whole arguments again": (
        "openai",
        stream(chunk(call_delta({"place": "Rome"})), chunk(AGAIN), used(), {}),
        [{"place": "Rome"}],
    ),
    "Responses: only the items": (
        "responses",
        stream(added(function_call(ROME)), argued(ROME), done(function_call(ROME)), response()),
        [{"place": "Rome"}],
    ),
    "Responses: only the whole": ("responses", stream(response(function_call(ROME))), [{"place": "Rome"}]),
    "Responses: reformatted, at another place": (
        "responses",
        stream(added(function_call(ROME), 1), argued(ROME, 1), response(function_call('{"place":"Rome"}'))),
        [{"place": "Rome"}],
    ),
}


@pytest.mark.parametrize(("provider", "raw", "args"), WHOLE.values(), ids=WHOLE)
async def test_a_call_with_its_end_is_made(provider: str, raw: RawBytes, args: list[dict[str, Any]]) -> None:
    """Each with its own arguments, however the server numbers its blocks and writes its reasons."""
    reply = await reply_of(provider, raw)

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
