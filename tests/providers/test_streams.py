"""Replies that come as streams, and what breaks in them: a typed fault, one request, and what it used is counted."""

import asyncio
import json
from typing import Any

import pytest

from activities.borders import classify
from activities.providers.adapter import Endpoint
from activities.providers.messages import NoReply, Reply, StopReason
from activities.providers.metering import Meter, MeteredModel, start_meter
from activities.providers.openai import OpenAIModel
from evals.fakes.model_api import KEY, MODEL, Json, ModelApi, event_bytes, json_answer, running
from evals.fakes.responses_api import ResponsesApi
from evals.fakes.script import Delayed, ModelCall, ModelReply, RawBytes, Response, Streamed
from tests.providers.asking import ASKED, request
from tests.providers.planning import PROVIDERS, api_of, model_of
from workflows.faults.fault import Code
from workflows.limits.spending import MAX_OUTPUT

IDLE = 0.6
LOOKS = ModelReply(
    (ModelCall("weather", {"place": "Paris"}), ModelCall("weather", {"place": "Rome"})),
    text="I look at the weather of both.",
    thinking="Rome is in the south.",
)
WORDS = {
    "anthropic": ("overloaded_error", Code.OVERLOADED),
    "openai": ("server_error", Code.SERVER_ERROR),
    "responses": ("server_error", Code.SERVER_ERROR),
}


def error_event(provider: str, word: str) -> bytes:
    """The event of an error, in a stream that began with 200."""
    events: dict[str, Json] = {
        "anthropic": {"type": "error", "error": {"type": word, "message": "no"}},
        "openai": {"error": {"type": word, "code": word, "message": "no", "param": None}},
        "responses": {"type": "error", "code": word, "message": "no", "param": None, "sequence_number": 99},
    }
    return event_bytes(events[provider])


async def asked(provider: str, *script: Response) -> tuple[ModelApi, Meter, Reply | Exception]:
    """One request: the reply or the exception, and what was counted."""
    meter = start_meter()
    async with running(api_of(provider, *script)) as api:
        model = MeteredModel(model_of(provider, api, idle_timeout=IDLE), None)
        try:
            return api, meter, await model.reply(request(ASKED))
        except Exception as error:  # which class is the SDK's business
            return api, meter, error


def number_of_events(provider: str, reply: ModelReply) -> int:
    """How many events the stream of a reply has."""
    api = api_of(provider, reply)
    api.bodies.append({"stream_options": {"include_usage": True}})
    return len(list(api.events(api.reply_body(reply))))


async def test_a_stream_is_one_reply(provider: str) -> None:
    """Text, calls and usage, however small the parts are in which they come."""
    api, meter, reply = await asked(provider, LOOKS)

    assert isinstance(reply, Reply), reply
    assert (reply.turn.text, reply.stop) == (LOOKS.text, StopReason.CALLS)
    assert [call.args for call in reply.turn.calls] == [{"place": "Paris"}, {"place": "Rome"}]
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

    assert faults == [Code.UNREACHABLE] * last or (then, {*faults}) == ("drop", {Code.UNREACHABLE})


@pytest.mark.parametrize("keeps_alive", [False, True])
async def test_a_reply_that_stops_is_a_timeout(provider: str, keeps_alive: bool) -> None:
    """After the seconds of the setting, not those of the whole call; comments alone are a sign of life."""
    stalls = Streamed(LOOKS, events=5, then="stall", keeps_alive=keeps_alive)
    if keeps_alive:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asked(provider, stalls), 3 * IDLE)
        return
    api, _, error = await asked(provider, stalls)

    assert isinstance(error, NoReply)
    assert (error.fault.code, error.fault.reason) == (
        Code.TIMEOUT,
        "The model's reply stopped: no byte came for 0.6 s.",
    )
    assert len(api.bodies) == 1


async def test_a_slow_stream_is_waited_for(provider: str) -> None:
    """Silence between two events counts, not the time of all."""
    api, _, reply = await asked(provider, Streamed(ModelReply(text="Rome, at last."), pause=IDLE / 4))

    assert isinstance(reply, Reply), reply
    assert (reply.turn.text, len(api.bodies)) == ("Rome, at last.", 1)


async def test_a_server_of_one_s_own_may_load_its_model_first(provider: str) -> None:
    """The limit begins with the first byte there."""
    _, _, reply = await asked(provider, Delayed(2 * IDLE, ModelReply(text="Rome.")))

    assert isinstance(reply, Reply), reply


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


@pytest.mark.parametrize("events", [0, 1, 6])
async def test_an_error_in_a_stream_is_what_it_says(provider: str, events: int) -> None:
    """The status said 200: the event decides."""
    word, code = WORDS[provider]
    api, _, error = await asked(provider, Streamed(LOOKS, events=events, then=error_event(provider, word)))

    assert isinstance(error, Exception)
    assert (classify(error).code, len(api.bodies), api.violations) == (code, 1, [])


async def test_a_spent_quota_in_a_stream_goes_to_a_person(provider: str) -> None:
    """No retry helps, whenever it is said."""
    word = "billing_error" if provider == "anthropic" else "insufficient_quota"
    _, _, error = await asked(provider, Streamed(LOOKS, events=3, then=error_event(provider, word)))

    assert isinstance(error, Exception)
    assert classify(error).code is Code.QUOTA_EXHAUSTED


GARBAGE = {
    "no JSON": b'event: message_delta\ndata: {"type": \n\n',
    "another shape": b'event: content_block_delta\ndata: {"type": "content_block_delta", "choices": 7}\n\n',
    "no object": b"event: message_delta\ndata: 7\n\n",
    "bytes": b"data: \xff\xfe\xfd\n\n",
    "a page": b"<html><body>Bad gateway</body></html>\n\n",
    "half a line": b'data: {"type"',
}


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE)
@pytest.mark.parametrize("events", [0, 4])
async def test_garbage_in_a_stream_is_transient(provider: str, events: int, garbage: bytes) -> None:
    """A proxy may have sent it: nothing of the reply is used."""
    api, _, error = await asked(provider, Streamed(LOOKS, events=events, then=garbage))

    assert isinstance(error, Exception), error
    fault = classify(error)
    assert (fault.quadrant.is_transient, len(api.bodies)) == (True, 1), fault


async def test_a_server_that_never_streams_is_understood(provider: str) -> None:
    """Some servers answer with one JSON, whatever was asked."""
    api = api_of(provider, LOOKS)
    body = json.dumps(api.reply_body(ModelReply(text="Rome."))).encode()
    _, _, reply = await asked(provider, RawBytes(json_answer(200, body)))

    assert isinstance(reply, Reply), reply
    assert (reply.turn.text, reply.usage.is_estimated) == ("Rome.", False)


async def test_a_stream_that_breaks_off_may_have_used_all_that_it_was_allowed() -> None:
    """The input as the server counted it, and the longest reply: it may have been written, and not arrived."""
    long = ModelReply(text="Rome. " * 500)
    _, meter, error = await asked("anthropic", Streamed(long, events=200, then="drop"))
    (lost,) = meter.lost

    assert isinstance(error, Exception)
    assert (meter.wasted, meter.known_use, lost.use.calls, lost.use.estimated) == ([], None, 1, 1)
    assert lost.use.tokens == 123 + MAX_OUTPUT


async def test_an_error_ends_what_a_model_without_hidden_reasoning_has_used() -> None:
    """All that was written came before it, and no token is shorter than a byte."""
    long = ModelReply(text="Rome. " * 500)
    error_of = {provider: error_event(provider, WORDS[provider][0]) for provider in PROVIDERS}
    used = {
        provider: (await asked(provider, Streamed(long, events=200, then=error_of[provider])))[1].lost[0].use.tokens
        for provider in PROVIDERS
    }

    assert 123 + 1_500 < used["anthropic"] < 123 + 1_700
    assert 1_500 < used["openai"] < 1_800
    assert used["responses"] > MAX_OUTPUT  # it may have reasoned in silence


async def test_arguments_of_anthropic_that_are_no_json_are_no_call() -> None:
    """A part of them is not taken for the whole."""
    _, _, reply = await asked("anthropic", ModelReply((ModelCall("weather", '{"place": "Par'),)))

    assert isinstance(reply, Reply), reply
    (call,) = reply.turn.calls
    assert (call.args, "no JSON" in call.broken) == ({}, True)


def chunks(*deltas: Json) -> RawBytes:
    """A stream of Chat Completions with these deltas."""
    ends: list[Json] = [{"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}, {}]
    events = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    body = b"".join(event_bytes(event) for event in [*events, *ends])
    return RawBytes(json_answer(200, body, **{"content-type": "text/event-stream"}))


def part(index: int | None, id: str | None, name: str | None, arguments: Any) -> Json:
    """A delta with a part of a call, as some server writes it."""
    function = {"name": name, "arguments": arguments}
    return {"tool_calls": [{"index": index, "id": id, "type": "function", "function": function}]}


ROME, PARIS = '{"place": "Rome"}', '{"place": "Paris"}'
TWO_CALLS: dict[str, RawBytes] = {
    "each whole": chunks(part(0, "a", "weather", ROME), part(1, "b", "weather", PARIS)),
    "the same index": chunks(part(0, "a", "weather", ROME), part(0, "b", "weather", PARIS)),
    "no index": chunks(part(None, "a", "weather", ROME), part(None, "b", "weather", PARIS)),
    "an id in each part": chunks(
        part(0, "a", "weather", ROME[:5]),
        part(0, "a", None, ROME[5:]),
        part(1, "b", "weather", PARIS[:5]),
        part(1, "x", None, PARIS[5:]),
    ),
    "both in turns": chunks(
        part(0, "a", "weather", ""),
        part(1, "b", "weather", ""),
        part(0, None, None, ROME),
        part(1, None, None, PARIS),
    ),
    "an object": chunks(part(0, "a", "weather", {"place": "Rome"}), part(1, "b", "weather", {"place": "Paris"})),
    "an empty name again": chunks(
        part(0, "a", "weather", ROME[:5]), part(0, "", "", ROME[5:]), part(1, "b", "weather", PARIS)
    ),
}


@pytest.mark.parametrize("raw", TWO_CALLS.values(), ids=TWO_CALLS)
async def test_the_parts_of_calls_are_joined_as_servers_send_them(raw: RawBytes) -> None:
    """With the same index for all, with none, with an id in each part."""
    _, _, reply = await asked("openai", raw)

    assert isinstance(reply, Reply), reply
    assert [(call.id, call.name, call.args) for call in reply.turn.calls] == [
        ("a", "weather", {"place": "Rome"}),
        ("b", "weather", {"place": "Paris"}),
    ]


def test_every_api_is_here() -> None:
    """No provider is left out above."""
    assert {*WORDS} == {*PROVIDERS}
