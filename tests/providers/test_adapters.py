"""The adapters alone, against servers that hold every request to the providers' rules."""

import json
from typing import Any

import pytest
from pydantic import JsonValue

from activities.providers.messages import (
    AssistantTurn,
    Request,
    StopReason,
    ToolCall,
    ToolResult,
    Turn,
    Usage,
    UserTurn,
)
from evals.fakes.model_api import Json, json_answer, running
from evals.fakes.script import ModelCall, ModelReply, RawBytes
from tests.providers.asking import ASKED, PARIS, ROME, WEATHER, ask, request
from tests.providers.planning import api_of, model_of

TOLD: list[Turn] = [
    *ASKED,
    AssistantTurn("I look.", (PARIS, ROME)),
    UserTurn("Go on.", (ToolResult("call_a", "12"), ToolResult("call_b", "no station", is_error=True))),
]
BOTH = ModelReply((ModelCall("weather", {"place": "Paris"}), ModelCall("weather", {"place": "Rome"})), text="I look.")


async def test_parallel_calls_come_back_in_order_with_their_ids(provider: str) -> None:
    """One turn may hold words and several calls."""
    _, reply = await ask(provider, BOTH)

    assert (reply.turn.text, reply.stop) == ("I look.", StopReason.CALLS)
    assert [call.args for call in reply.turn.calls] == [{"place": "Paris"}, {"place": "Rome"}]
    assert len({call.id for call in reply.turn.calls}) == 2


async def test_results_go_back_paired_and_first(provider: str) -> None:
    """Every call has its result, same ids, same order, before all words; a failure says so."""
    api, _ = await ask(provider, ModelReply(text="Rome."), turns=TOLD)

    assert api.violations == []


async def test_a_failed_result_is_marked_where_the_protocol_has_a_mark() -> None:
    """Anthropic's `is_error`; the other result carries none."""
    api, _ = await ask("anthropic", ModelReply(text="Rome."), turns=TOLD)
    blocks = api.bodies[0]["messages"][-1]["content"]

    assert [block.get("is_error") for block in blocks] == [None, True, None]


async def test_what_begins_the_next_request_is_marked_for_the_cache() -> None:
    """Tools, system and all turns so far: the mark moves with the last of them."""
    api, _ = await ask("anthropic", ModelReply(text="Rome."), turns=TOLD)
    body = api.bodies[0]
    marked = [block for message in body["messages"] for block in message["content"] if "cache_control" in block]

    assert "cache_control" in body["tools"][-1] and "cache_control" in body["system"][-1]
    assert [block["text"] for block in marked] == ["Go on."]


async def test_what_a_model_thought_goes_back_unchanged() -> None:
    """To the model that thought it, with the calls that it led to."""
    thinks = ModelReply((ModelCall("weather", {"place": "Rome"}),), thinking="Rome is in the south.")
    async with running(api_of("anthropic", thinks, ModelReply(text="Rome."))) as api:
        model = model_of("anthropic", api)
        first = (await model.reply(request(ASKED))).turn
        told = UserTurn("Go on.", (ToolResult(first.calls[0].id, "30"),))
        await model.reply(request([*ASKED, first, told]))

    assert (len(api.bodies), api.violations) == (2, [])


async def test_what_another_model_thought_is_left_out() -> None:
    """Its signature means nothing to this one."""
    async with running(api_of("anthropic", BOTH, ModelReply(text="Rome."))) as api:
        model = model_of("anthropic", api)
        block: dict[str, JsonValue] = {"type": "thinking", "thinking": "Rome!", "signature": "of another"}
        said = AssistantTurn("I look.", (PARIS, ROME), (block,), by="anthropic:other")
        await model.reply(request([*ASKED, said, TOLD[-1]]))

    assert (len(api.bodies), api.violations) == (1, [])


async def test_a_model_that_is_offered_nothing_is_sent_no_tools(provider: str) -> None:
    """Neither an empty list nor a choice among them."""
    async with running(api_of(provider, ModelReply(text="It was warm."))) as api:
        reply = await model_of(provider, api).reply(Request("Summarise.", [], ASKED))

    assert (reply.turn.text, api.violations) == ("It was warm.", [])
    assert "tools" not in api.bodies[0]


async def test_a_model_that_may_not_call_is_told_so(provider: str) -> None:
    """The tools stay, since the conversation has calls of them."""
    async with running(api_of(provider, ModelReply(text="Rome."))) as api:
        await model_of(provider, api).reply(Request("Answer.", [WEATHER], TOLD, may_call=False))

    assert [heard.may_call for heard in api.requests] == [False]
    assert (api.requests[0].tools, api.violations) == (("weather",), [])


async def test_usage_is_the_provider_s_own(provider: str) -> None:
    """What was read from a cache or written to one is counted apart, and nothing twice."""
    _, reply = await ask(provider, ModelReply(text="Rome."))

    assert (reply.usage, reply.usage.tokens) == (Usage(input=100, output=7, cache_read=3, cache_write=20), 130)


ODD: dict[str, Any] = {
    "empty": {},
    "zero": {"prompt_tokens": 0, "completion_tokens": 0, "input_tokens": 0, "output_tokens": 0},
    "null": {"prompt_tokens": None, "completion_tokens": None, "input_tokens": None, "output_tokens": None},
    "negative": {"prompt_tokens": -900_000, "completion_tokens": -1, "input_tokens": -900_000, "output_tokens": -1},
    "words": {"prompt_tokens": "many", "completion_tokens": "few", "input_tokens": "many", "output_tokens": "few"},
    "other names": {"tokens_in": 4, "tokens_out": 5},
    "a list": [1, 2],
}


@pytest.mark.parametrize("usage", ODD.values(), ids=ODD)
async def test_odd_usage_is_no_usage(provider: str, usage: Any) -> None:
    """A count that cannot be is estimated, and the reply is used."""
    api = api_of(provider)
    body = {**api.reply_body(ModelReply(text="Noon, more or less.")), "usage": usage}
    api.script.append(RawBytes(json_answer(200, json.dumps(body).encode())))
    async with running(api):
        reply = await model_of(provider, api).reply(Request("Answer.", [], ASKED))

    assert (reply.turn.text, reply.usage.is_estimated) == ("Noon, more or less.", True)
    assert 0 < reply.usage.input < 1_000 and 0 < reply.usage.output < 1_000


def had(*calls: ToolCall) -> list[Turn]:
    """A conversation in which each of these calls was a turn of its own."""
    turns: list[Turn] = [*ASKED]
    for call in calls:
        turns += [AssistantTurn(calls=(call,), by="another"), UserTurn("Go on.", (ToolResult(call.id, call.name),))]
    return turns


def called(id: str, name: str = "weather") -> ToolCall:
    """A call that another provider's model made."""
    return ToolCall(id, name, {"place": "Rome"})


STRANGE: dict[str, tuple[ToolCall, ...]] = {
    "the same ids again": (called("call_0"), called("call_0"), called("call_0")),
    "an id with points": (called("functions.weather:0"), called("functions.weather:1")),
    "two that would look alike": (called("a.b"), called("a:b"), called("a_b")),
    "long ids": (called("x" * 60 + "1"), called("x" * 60 + "2")),
    "no id": (called(""), called("")),
    "a name that no tool has": (called("call_0", "functions.weather"), called("call_1", "weather of Rome")),
    "a long name": (called("call_0", "w" * 200),),
    "no name": (called("call_0", ""),),
}


@pytest.mark.parametrize("calls", STRANGE.values(), ids=STRANGE)
async def test_a_conversation_with_another_provider_goes_on(provider: str, calls: tuple[ToolCall, ...]) -> None:
    """Compatible servers repeat ids, and models make up names: each provider is sent what it takes, in pairs."""
    api, _ = await ask(provider, ModelReply(text="Rome."), turns=had(*calls))
    heard = api.requests[0]
    texts = [turn.results[0].text for turn in heard.turns[2::2] if isinstance(turn, UserTurn)]

    assert api.violations == []
    assert texts == [call.name for call in calls]


STOPS = [
    ("anthropic", "end_turn", StopReason.DONE),
    ("anthropic", "stop_sequence", StopReason.DONE),
    ("anthropic", "max_tokens", StopReason.CUT),
    ("anthropic", "model_context_window_exceeded", StopReason.CUT),
    ("anthropic", "refusal", StopReason.REFUSED),
    ("openai", "stop", StopReason.DONE),
    ("openai", "length", StopReason.CUT),
    ("openai", "content_filter", StopReason.REFUSED),
    ("responses", "completed", StopReason.DONE),
    ("responses", "max_output_tokens", StopReason.CUT),
    ("responses", "max_messages", StopReason.CUT),
    ("responses", "content_filter", StopReason.REFUSED),
]


@pytest.mark.parametrize(("whose", "word", "stop"), STOPS)
async def test_why_a_model_stopped(whose: str, word: str, stop: StopReason) -> None:
    """Each provider's word for it."""
    _, reply = await ask(whose, ModelReply(text="It", stop=word))

    assert reply.stop is stop


@pytest.mark.parametrize(
    ("written", "says"),
    [('{"place": "Par', "no JSON"), ("[1]", "a JSON list"), ("NaN", "no JSON"), ("1", "a JSON int")],
)
@pytest.mark.parametrize("whose", ["openai", "responses"])
async def test_arguments_that_are_no_object_are_said_and_never_guessed(whose: str, written: str, says: str) -> None:
    """OpenAI's APIs carry them as the text that the model wrote."""
    _, reply = await ask(whose, ModelReply((ModelCall("weather", written),)))

    assert says in reply.turn.calls[0].broken and reply.turn.calls[0].args == {}


def completed(message: Json, **more: Any) -> RawBytes:
    """An answer of a server that speaks as OpenAI does, as far as it goes."""
    choice = {"index": 0, "message": {"role": "assistant", **message}, **more}
    return RawBytes(
        json_answer(200, json.dumps({"id": "x", "object": "chat.completion", "choices": [choice]}).encode())
    )


def tool_call(**given: Any) -> Json:
    """A message with one call of the weather."""
    function = {"name": "weather", "arguments": '{"place": "Rome"}', **given.pop("function", {})}
    return {"tool_calls": [{"id": "call_1", "type": "function", "function": function, **given}]}


QUIRKS: dict[str, RawBytes] = {
    "no usage, no reason": completed(tool_call()),
    "stop, although it calls": completed(tool_call(), finish_reason="stop"),
    "arguments as an object": completed(tool_call(function={"arguments": {"place": "Rome"}})),
    "an id that is null": completed(tool_call(id=None)),
    "no type": completed(tool_call(type=None)),
    "empty words": completed({"content": "", **tool_call()}),
    "an index": completed(tool_call(index=0), finish_reason="tool_calls"),
}


@pytest.mark.parametrize("raw", QUIRKS.values(), ids=QUIRKS)
async def test_a_compatible_server_is_understood(raw: RawBytes) -> None:
    """However it deviates: the call is the call, and its turn can be sent back."""
    async with running(api_of("openai", raw, ModelReply(text="30"))) as api:
        model = model_of("openai", api)
        said = (await model.reply(request(ASKED))).turn
        told = UserTurn("Go on.", (ToolResult(said.calls[0].id, "30"),))
        await model.reply(request([*ASKED, said, told]))

    assert [(call.name, call.args) for call in said.calls] == [("weather", {"place": "Rome"})]
    assert isinstance(said.calls[0].id, str) and api.violations == []


async def test_a_retry_after_on_a_success_is_no_error(provider: str) -> None:
    """Recorded answers carry one."""
    api, reply = await ask(provider, ModelReply(text="Rome.", headers={"retry-after": "25"}))

    assert (reply.turn.text, len(api.bodies)) == ("Rome.", 1)
