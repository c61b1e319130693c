"""Replies as servers frame and fill them: what is unusual costs itself, and the reply around it is read."""

import json
from collections.abc import Callable, Mapping, Sequence

import pytest

from activities.providers.messages import StopReason, UnreadableReply
from evals.fakes.model_api import Json, event_bytes, json_answer, running
from evals.fakes.script import ModelReply, RawBytes
from tests.providers.asking import ASKED, answered, asked, reply_of, request
from tests.providers.planning import api_of, model_of
from tests.providers.wire import (
    START,
    STOP,
    WHOLE,
    added,
    argued,
    begun,
    blocks,
    body,
    chunk,
    deltas,
    done,
    ended,
    function_call,
    message,
    piece,
    response,
    stream,
    text,
    total,
    used,
    whole_reply,
)
from workflows.plans.catalogue import Price

ROME, PARIS = '{"place": "Rome"}', '{"place": "Paris"}'
PRICE = Price(input=3, output=15, cache_read=0.3, cache_write=3.75)


def unnamed(event: bytes) -> bytes:
    """The event without its name."""
    return b"".join(line for line in event.splitlines(keepends=True) if not line.startswith(b"event:"))


def each(change: Callable[[bytes], bytes]) -> Callable[[Sequence[bytes]], bytes]:
    """Change every event."""
    return lambda events: b"".join(map(change, events))


FRAMES: Mapping[str, Callable[[Sequence[bytes]], bytes]] = {
    "a time to connect again": lambda events: b"retry: 3000\n\n" + b"retry: 10\n\n".join(events),
    "an id alone": each(lambda event: b"id: 7\n\n" + event),
    "an id, comments, empty lines": each(lambda event: b"id: 7\n" + event + b": hi\n\n\n\n"),
    "no names": each(unnamed),
    "one name for all": each(lambda event: b"event: message\n" + unnamed(event)),
    "a byte order mark": lambda events: b"\xef\xbb\xbf" + b"".join(events),
    "a byte order mark, no names": lambda events: b"\xef\xbb\xbf" + b"".join(map(unnamed, events)),
    "CRLF": each(lambda event: event.replace(b"\n", b"\r\n")),
    "CR": each(lambda event: event.replace(b"\n", b"\r")),
    "comments in events": each(lambda event: event.replace(b"data:", b": c\ndata:")),
    "no space": each(lambda event: event.replace(b"data: ", b"data:")),
    "several lines": each(lambda event: event.replace(b', "', b',\ndata: "')),
    "several lines, CRLF": each(lambda event: event.replace(b', "', b',\ndata: "').replace(b"\n", b"\r\n")),
    "no last line end": lambda events: b"".join(events).rstrip(b"\n"),
    "no last line end, no [DONE]": lambda events: b"".join(events).removesuffix(b"data: [DONE]\n\n").rstrip(b"\n"),
    "no empty lines": each(lambda event: event[:-1]),
    "no empty lines, no names": each(lambda event: unnamed(event)[:-1]),
    "[DONE] twice": lambda events: b"".join(events) + b"data: [DONE]\n\n" * 2,
    "[DONE] with spaces": lambda events: b"".join(events).replace(b" [DONE]", b"   [DONE]  "),
    "[DONE] in place of the last event": lambda events: b"".join(
        [*(event for event in events if b"message_stop" not in event), b"data: [DONE]\n\n"]
    ),
    "empty data": each(lambda event: event + b"data:\n\ndata: null\n\n"),
    "a name alone": each(lambda event: event + b"event: x\n\n"),
    "unknown events": each(lambda event: event + b'event: x\ndata: {"type": "x.y", "z": [1]}\n\ndata: {}\n\n'),
    "a ping": each(lambda event: event + b'event: ping\ndata: {"type": "ping"}\n\ndata: {"type": "ping"}\n\n'),
}
TYPES = ["text/event-stream", "Text/Event-Stream; charset=UTF-8", "text/plain", "application/json"]


def framed(provider: str, frame: str, type: str) -> RawBytes:
    """A reply that says `Rome.`."""
    events = [event_bytes(event) for event in WHOLE[provider] if isinstance(event, dict)]
    return RawBytes(json_answer(200, FRAMES[frame](events), **{"content-type": type}))


@pytest.mark.parametrize("frame", FRAMES)
async def test_a_stream_is_read_however_it_is_framed(provider: str, frame: str) -> None:
    """By the rules of event streams, and beyond them; each count once."""
    for type in TYPES if frame == "CRLF" else TYPES[:1]:
        reply = await reply_of(provider, framed(provider, frame, type))

        assert (reply.turn.text, reply.stop) == ("Rome.", StopReason.DONE), type
        assert (reply.usage.tokens, reply.usage.is_estimated) == (120, False)


async def test_a_server_that_keeps_the_connection_open_has_ended_its_reply() -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 999999\r\n\r\n"
    for provider, events in WHOLE.items():
        raw = head + b"".join(event_bytes(event) for event in events if isinstance(event, dict))

        assert (await reply_of(provider, RawBytes(raw))).turn.text == "Rome."


def call(**more: object) -> Json:
    """A delta with a call of `weather` in Rome, and what is unusual of it; None leaves nothing out."""
    function = {"name": more.pop("name", "weather"), "arguments": more.pop("arguments", ROME)}
    return {"tool_calls": [{"index": 0, "id": "c", "type": "function", "function": function, **more}]}


def bare(delta: Json, *names: str) -> Json:
    """The delta whose calls lack some fields."""
    kept = [{name: value for name, value in whole.items() if name not in names} for whole in delta["tool_calls"]]
    functions = [{key: value for key, value in one["function"].items() if key not in names} for one in kept]
    return {"tool_calls": [{**one, "function": function} for one, function in zip(kept, functions, strict=True)]}


USAGE = used()
TEXTS: Mapping[str, RawBytes] = {
    "usage, choices null": stream(chunk({"content": "Rome."}), chunk({}, "stop"), {**USAGE, "choices": None}, {}),
    "usage, no choices": stream(chunk({"content": "Rome."}), chunk({}, "stop"), {"usage": USAGE["usage"]}, {}),
    "usage first": stream(USAGE, chunk({"content": "Rome."}), chunk({}, "stop"), USAGE, {}),
    "choices [null]": stream({**chunk(), "choices": [None]}, *WHOLE["openai"]),
    "choices {}": stream({**chunk(), "choices": {}}, *WHOLE["openai"]),
    "delta null": stream({**chunk(), "choices": [{"index": 0, "delta": None}]}, *WHOLE["openai"]),
    "no delta": stream({**chunk(), "choices": [{"index": 0, "finish_reason": None}]}, *WHOLE["openai"]),
    "content null": deltas({"content": None}, {"content": "Rome."}, {"content": None}),
    "content []": deltas({"content": []}, {"content": "Rome."}),
    "content as a part": deltas({"content": {"type": "text", "text": "Rome."}}),
    "content as parts": deltas({"content": [{"type": "text", "text": "Ro"}]}, {"content": "me."}),
    "content as texts": deltas({"content": ["Rome."]}),
    "content as parts, whole": message({"content": [{"type": "text", "text": "Rome."}, None, 7.5, {"type": "x"}][:1]}),
    "tool_calls null": deltas({"content": "Rome.", "tool_calls": None}),
    "tool_calls [null]": deltas({"content": "Rome.", "tool_calls": [None]}),
    "a call without a function, whole": message({"content": "Rome.", "tool_calls": [{"id": "c", "function": None}]}),
    "a refusal that is no text": deltas({"content": "Rome.", "refusal": 7}),
    "reasoning that is no text": deltas({"content": "Rome.", "reasoning": {"x": 1}, "reasoning_content": 7}),
    "a reason that is no text": deltas({"content": "Rome."}, stop=7),  # type: ignore[arg-type]
    "the message in place of a delta": stream(
        {**chunk(), "choices": [{"index": 0, "message": {"content": "Rome."}, "finish_reason": "stop"}]}, USAGE, {}
    ),
    "the message again": stream(
        chunk({"content": "Rome."}),
        {**chunk(), "choices": [{"index": 0, "message": {"content": "Rome."}, "finish_reason": "stop"}]},
        USAGE,
        {},
    ),
    "two choices": stream(
        chunk({"content": "Rome."}),
        {**chunk(), "choices": [{"index": 1, "delta": {"content": "Paris."}, "finish_reason": "stop"}]},
        chunk({}, "stop"),
        USAGE,
        {},
    ),
    "a completion": whole_reply({"text": "Rome.", "finish_reason": "stop"}),
    "other fields": stream(
        {**chunk({"content": "Rome."}, "stop"), "created": "now", "id": None, "model": 7}, USAGE, {}
    ),
}


WANTED = [("weather", {"place": "Rome"})]
BOTH = [*WANTED, ("weather", {"place": "Paris"})]
SECOND = call(id="d", arguments=PARIS)
SECOND_HALF = call(id="d", index=1, arguments=PARIS[:6])
SECOND_REST = call(id="x", index=1, name=None, arguments=PARIS[6:])
HALVES = [call(arguments=ROME[:6]), call(id="d", arguments=PARIS[:6])]
RESTS = [
    {"index": 0, "id": "c", "function": {"arguments": ROME[6:]}},
    {"index": 0, "id": "d", "function": {"arguments": PARIS[6:]}},
]
CALLS: Mapping[str, tuple[Sequence[Json], Sequence[tuple[str, Json]]]] = {
    "name null later": ([call(arguments=""), call(name=None, id=None)], WANTED),
    "no name later": ([call(arguments=""), bare(call(), "name", "id")], WANTED),
    "no name at all": ([call(name=None)], [("", {"place": "Rome"})]),
    "a name that is no text": ([call(name=7)], [("", {"place": "Rome"})]),
    "id null": ([call(id=None)], WANTED),
    "an id that is no text": ([call(id=7)], WANTED),
    "no type": ([bare(call(), "type")], WANTED),
    "arguments null": ([call(arguments=None)], [("weather", {})]),
    "no arguments": ([bare(call(), "arguments")], [("weather", {})]),
    "arguments null later": ([call(), call(name=None, id=None, arguments=None)], WANTED),
    "arguments as an object": ([call(arguments={"place": "Rome"})], WANTED),
    "empty words": ([{"content": "", **call()}], WANTED),
    "an id in each part": ([HALVES[0], call(arguments=ROME[6:], name=None), SECOND_HALF, SECOND_REST], BOTH),
    "an empty name again": ([HALVES[0], call(arguments=ROME[6:], name="", id=""), SECOND], BOTH),
    "function null first": ([{"tool_calls": [{"index": 0, "id": "c", "function": None}]}, call()], WANTED),
    "one call in place of a list": ([{"tool_calls": call()["tool_calls"][0]}], WANTED),
    "no index": ([bare(call(), "index"), bare(SECOND, "index")], BOTH),
    "index null": ([call(index=None), call(id="d", arguments=PARIS, index=None)], BOTH),
    "one index": ([call(), SECOND], BOTH),
    "one index, in one delta": ([{"tool_calls": [*call()["tool_calls"], *SECOND["tool_calls"]]}], BOTH),
    "one index, in turns": ([*HALVES, *({"tool_calls": [rest]} for rest in RESTS)], BOTH),
    "one index, in turns, in one delta": ([*HALVES, {"tool_calls": RESTS}], BOTH),
    "one index, in turns, with names": ([*HALVES, call(arguments=ROME[6:]), call(id="d", arguments=PARIS[6:])], BOTH),
    "no index, in turns": ([bare(half, "index") for half in (*HALVES, {"tool_calls": RESTS})], BOTH),
    "one index, the second without a name": (
        [call(), call(id="d", name=None, arguments=PARIS)],
        [*WANTED, ("", BOTH[1][1])],
    ),
}


@pytest.mark.parametrize(("parts", "wanted"), CALLS.values(), ids=CALLS)
async def test_odd_calls_of_chat_completions_are_read_and_never_mixed(
    parts: Sequence[Json], wanted: Sequence[tuple[str, Json]]
) -> None:
    """Each has its own arguments, in a stream and at once; and their turn can be sent back."""
    replies = [deltas(*parts, stop="tool_calls"), *([message(parts[0], "tool_calls")] if len(parts) == 1 else [])]
    for raw in replies:
        async with running(api_of("openai", raw, ModelReply(text="30"))) as api:
            model = model_of("openai", api)
            reply = await model.reply(request(ASKED))
            await model.reply(request(answered(reply)))

        assert [(call.name, call.args, call.broken) for call in reply.turn.calls] == [(*one, "") for one in wanted]
        assert (reply.stop, api.violations) == (StopReason.CALLS, [])


async def test_arguments_of_two_types_are_no_arguments() -> None:
    reply = await reply_of("openai", deltas(call(arguments=7), call(name=None, id=None), stop="tool_calls"))

    assert [call.args for call in reply.turn.calls] == [{}] and reply.turn.calls[0].broken


def changed(event: Json, **more: object) -> Json:
    """The event with other fields; those that are `...` are left out."""
    return {name: value for name, value in {**event, **more}.items() if value is not ...}


def start(**more: object) -> Json:
    """The first event of Messages, with other fields of the message."""
    return {**START, "message": changed(START["message"], **more)}


TEXT = text(0, "Rome.")
ROME_CALL = (begun(0), piece(0, ROME), ended(0))
END = (total("end_turn"), STOP)


def opening(**block: object) -> Json:
    """The beginning of a block of Messages."""
    return {"type": "content_block_start", "index": 0, "content_block": block}


def part(**delta: object) -> Json:
    """A part of a block of Messages."""
    return {"type": "content_block_delta", "index": 0, "delta": delta}


ODD_MESSAGES: Mapping[str, RawBytes] = {
    "index 1 first": stream(START, *text(1, "Rome."), *END),
    "no index": stream(START, *(changed(event, index=...) for event in TEXT), *END),
    "no beginning of the block": stream(START, *TEXT[1:], *END),
    "no text in the beginning": stream(START, opening(type="text"), *TEXT[1:], *END),
    "text null in the beginning": stream(START, opening(type="text", text=None), *TEXT[1:], *END),
    "block null": stream(START, {**TEXT[0], "content_block": None}, TEXT[2], *TEXT, *END),
    "delta null": stream(START, TEXT[0], changed(TEXT[1], delta=None), *TEXT[1:], *END),
    "text null": stream(START, TEXT[0], part(type="text_delta", text=None), *TEXT[1:], *END),
    "an end too many": stream(START, *TEXT, ended(0), ended(5), *END, STOP),
    "content null": stream(start(content=None), *TEXT, *END),
    "no content": stream(start(content=...), *TEXT, *END),
    "no end of the block": stream(START, *TEXT[:2], *END),
    "message_delta without a delta": stream(START, *TEXT, END[0], changed(END[0], delta=...), STOP),
    "message_delta, delta null": stream(START, *TEXT, END[0], changed(END[0], delta=None), STOP),
    "a reason that is no text": stream(START, *TEXT, total(7), STOP),  # type: ignore[arg-type]
    "whole: a text": body(
        '{"content": "Rome.", "stop_reason": "end_turn", "usage": {"input_tokens": 100, "output_tokens": 20}}'
    ),
    "whole: null": blocks(None, {"type": "text", "text": "Rome."}),  # type: ignore[arg-type]
    "whole: text null": blocks({"type": "text", "text": None}, {"type": "text"}, {"type": "text", "text": "Rome."}),
    "whole: no type": blocks({"text": "Rome."}),
    "whole: unknown": blocks({"type": "x"}, {"type": "thinking"}, {"type": "text", "text": "Rome."}),
}


USED = (*ROME_CALL[1:], *END)
AN_OBJECT = part(type="input_json_delta", partial_json={"place": "Rome"})
ODD_USES: Mapping[str, tuple[RawBytes, str, bool]] = {
    "part null": (stream(START, begun(0), part(type="input_json_delta", partial_json=None), *USED), "", False),
    "part as an object": (stream(START, begun(0), AN_OBJECT, ended(0), *END), "", False),
    "input null": (stream(START, begun(0, input=None), *USED), "", False),
    "no input": (stream(START, opening(type="tool_use", id="t", name="weather"), *USED), "", False),
    "a part after the end": (
        stream(START, begun(0), piece(0, ROME[:6]), ended(0), piece(0, ROME[6:]), *END),
        "no JSON",
        True,
    ),
    "a part of nothing": (stream(START, *ROME_CALL, piece(5, "{}"), *END), "", True),
}


@pytest.mark.parametrize(("raw", "broken", "is_cut"), ODD_USES.values(), ids=ODD_USES)
async def test_odd_calls_of_messages_are_read_or_cut_off(raw: RawBytes, broken: str, is_cut: bool) -> None:
    """A part that belongs nowhere leaves no call that could be made."""
    reply = await reply_of("anthropic", raw)
    (call,) = reply.turn.calls

    assert broken in call.broken and call.args == ({} if broken else {"place": "Rome"})
    assert (reply.stop is StopReason.CUT) is is_cut


MESSAGE: Json = WHOLE["responses"][1]["response"]["output"][0]  # type: ignore[call-overload]
DELTA = WHOLE["responses"][0]
LAST: Json = response(MESSAGE)
ODD_RESPONSES: Mapping[str, RawBytes] = {
    "output null": stream(DELTA, {**LAST, "response": {**LAST["response"], "output": None}}),
    "no output": stream(DELTA, {**LAST, "response": changed(LAST["response"], output=...)}),
    "items without an index": stream({"type": "response.output_item.done", "item": MESSAGE}, response()),
    "item null": stream({**added({}), "item": None}, {**done({}), "item": None}, DELTA, LAST),
    "output [null]": stream(response(None, MESSAGE)),  # type: ignore[arg-type]
    "an unknown item": stream(response({"type": "x", "id": "x"}, MESSAGE, {"type": "y", "id": "y"})),
    "content null": stream(response({**MESSAGE, "content": None}, MESSAGE)),
    "content as a text": stream(response({**MESSAGE, "content": "Rome."})),
    "content [null]": stream(response({**MESSAGE, "content": [None, {"type": "x"}, *MESSAGE["content"]]})),
    "text null": stream(response({**MESSAGE, "content": [{"type": "output_text", "text": None}, *MESSAGE["content"]]})),
    "an item without a type": stream(response({"id": "x"}, MESSAGE)),
    "no status": stream(DELTA, {**LAST, "response": changed(LAST["response"], status=...)}),
    "an event without a type": stream({"x": 1}, {"type": None}, DELTA, LAST),
    "delta null": stream({**DELTA, "delta": None}, LAST),  # type: ignore[dict-item]
}


ODD = {
    f"{provider}: {name}": (provider, raw)
    for provider, table in {"openai": TEXTS, "anthropic": ODD_MESSAGES, "responses": ODD_RESPONSES}.items()
    for name, raw in table.items()
}


@pytest.mark.parametrize(("provider", "raw"), ODD.values(), ids=ODD)
async def test_an_odd_field_costs_itself(provider: str, raw: RawBytes) -> None:
    """The text around it is the answer, and the count holds."""
    reply = await reply_of(provider, raw)

    assert (reply.turn.text, reply.turn.calls, reply.stop) == ("Rome.", (), StopReason.DONE)
    assert (reply.usage.tokens, reply.usage.is_estimated) == (120, False)


@pytest.mark.parametrize("has_output", [True, False])
async def test_two_calls_with_one_index_stay_two(has_output: bool) -> None:
    other = function_call(PARIS, id="d")
    parts = [[added(one), argued(one["arguments"]), done(one)] for one in (function_call(ROME), other)]
    output = [function_call(ROME), other] if has_output else []
    reply = await reply_of("responses", stream(*parts[0], *parts[1], response(*output)))

    assert [(call.name, call.args) for call in reply.turn.calls] == BOTH and reply.stop is StopReason.CALLS


@pytest.mark.parametrize("is_streamed", [True, False])
async def test_a_key_twice_is_seen_across_lines(is_streamed: bool) -> None:
    """Where a server breaks its JSON over several lines, and sends arguments as JSON itself."""
    delta = json.dumps(call(arguments={"place": "Rome", "x": "Paris"}), indent=1).replace('"x"', '"place"')
    choice = f'{{"index": 0, "{"delta" if is_streamed else "message"}": {delta}, "finish_reason": "tool_calls"}}'
    whole = f'{{"choices": [\n{choice}\n], "usage": {json.dumps(USAGE["usage"], indent=1)}}}'
    lines = "".join(f"data: {line}\n" for line in whole.splitlines())
    reply = await reply_of("openai", stream(f"{lines}\n".encode(), {}) if is_streamed else body(whole))

    assert "more than once" in reply.turn.calls[0].broken


GARBAGE = b'data: {"type": "x", \n\n'


def unread(event: Json) -> bytes:
    """The event, whose JSON is broken at its end."""
    return event_bytes(event).replace(b"}\n\n", b",\n\n")


HALF = json_answer(200, b'{"usage": {"prompt_tokens": 100, "completion_tokens": 20}, "choices": [{"mess')
UNREADABLE: Mapping[str, tuple[str, RawBytes, bool]] = {
    "Chat: after the count": ("openai", stream(*WHOLE["openai"][:3], used(), GARBAGE), True),
    "Chat: in the event that cannot be read": ("openai", stream(*WHOLE["openai"][:2], unread(used())), True),
    "Chat: in half a JSON": ("openai", RawBytes(HALF), True),
    "Chat: in a JSON without a message": ("openai", whole_reply({"message": None}), True),
    "Messages: after the count": ("anthropic", stream(*WHOLE["anthropic"][:-1], GARBAGE), True),
    "Messages: in that event": ("anthropic", stream(*WHOLE["anthropic"][:-2], unread(total("end_turn"))), True),
    "Responses: in that event": ("responses", stream(WHOLE["responses"][0], unread(LAST)), True),
    "Chat: no count": ("openai", stream(*WHOLE["openai"][:1], GARBAGE), False),
    "Chat: the first event": ("openai", stream(GARBAGE), False),
    "Chat: half a JSON": ("openai", RawBytes(json_answer(200, b'{"id": "c", "choices": [{"message": {"conte')), False),
    "Messages: no count": ("anthropic", stream(*WHOLE["anthropic"][:3], GARBAGE), False),
    "Responses: no count": ("responses", stream(WHOLE["responses"][0], GARBAGE), False),
}


@pytest.mark.parametrize(("provider", "raw", "is_counted"), UNREADABLE.values(), ids=UNREADABLE)
async def test_an_unreadable_reply_is_never_free(provider: str, raw: RawBytes, is_counted: bool) -> None:
    """What the server counted is paid, else the most that it can be; after the second nobody asks this model again."""
    _, meter, error = await asked(provider, raw, price=PRICE)

    assert isinstance(error, UnreadableReply), error
    if is_counted:
        assert ([use.tokens for use in meter.wasted], meter.lost) == ([120], [])
        assert meter.wasted[0].usd == pytest.approx(0.0006)
    else:
        assert [bool(lost.use.tokens > 16_000 and lost.use.usd) for lost in meter.lost] == [True]
        assert len(meter.unreadable) == 1
