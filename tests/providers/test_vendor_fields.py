"""What vendors add to their replies, and want back: kept as it came, for the same model at the same address alone."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from activities.planning.transcript import EXCHANGE
from activities.providers.adapter import AdapterOptions
from activities.providers.messages import AssistantTurn, Request, ToolCall, ToolResult, UserTurn, estimate_input
from evals.fakes.model_api import Json, running
from tests.providers.asking import ASKED, WEATHER, answered, request
from tests.providers.wire import (
    DEEPSEEK,
    GEMINI,
    MISTRAL,
    Recorder,
    Rule,
    begun,
    blocks,
    body,
    call_delta,
    deltas,
    done,
    ended,
    events_of,
    function_call,
    message,
    model_at,
    piece,
    response,
    second_request,
    stream,
    text,
)

ROME = '{"place":"Rome"}'
CALLS: Json = {"tool_calls": [{"id": "c", "type": "function", "function": {"name": "weather", "arguments": ROME}}]}


def call_with(**more: Any) -> Json:
    """A whole message that calls `weather`, with further fields of the call."""
    return {"tool_calls": [{**CALLS["tool_calls"][0], **more}]}


SIGNED = {"extra_content": {"google": {"thought_signature": "Sig+/=="}}}
THOUGHT = {"type": "reasoning.text", "text": "I look.", "signature": "S==", "format": "anthropic-v1", "index": 0}
SEALED = [{"type": "reasoning.encrypted", "data": f"E{n}==", "id": f"r{n}", "index": 0} for n in (1, 2)]
PARTS = [
    {"type": "thinking", "thinking": [{"type": "text", "text": "I look."}], "closed": True},
    {"type": "text", "text": "At Rome."},
]
CHAT: Mapping[str, tuple[Json, Sequence[Json]]] = {
    "DeepSeek": (
        {"reasoning_content": "I look.", **CALLS},
        [
            {"role": "assistant", "content": None, "reasoning_content": ""},
            {"reasoning_content": "I "},
            {"reasoning_content": "look.", "content": None},
            call_delta(ROME),
        ],
    ),
    "DeepSeek, nothing": ({"reasoning_content": "", **CALLS}, [{"reasoning_content": ""}, call_delta(ROME)]),
    "two fields": (
        {"reasoning": "I look.", "reasoning_content": "I look.", **CALLS},
        [{"reasoning": f, "reasoning_content": f} for f in ("I ", "look.")] + [call_delta(ROME)],
    ),
    "OpenRouter": (
        {"reasoning_details": [THOUGHT, *SEALED], **CALLS},
        [
            {"reasoning_details": [{**THOUGHT, "text": "I ", "signature": None}]},
            {"reasoning_details": [{"type": "reasoning.text", "text": "look.", "index": 0}]},
            {"reasoning_details": [{"type": "reasoning.text", "signature": "S==", "index": 0}, SEALED[0]]},
            {"reasoning_details": [SEALED[1]]},
            call_delta(ROME),
        ],
    ),
    "LiteLLM": (
        {"thinking_blocks": [{"type": "thinking", "thinking": "I look.", "signature": "S=="}], **CALLS},
        [{"thinking_blocks": [{"type": "thinking", "thinking": f, "signature": ""}]} for f in ("I ", "look.")]
        + [{"thinking_blocks": [{"type": "thinking", "thinking": "", "signature": "S=="}]}, call_delta(ROME)],
    ),
    "Gemini": (call_with(**SIGNED), [call_delta(ROME, **SIGNED)]),
    "Gemini, later": (
        call_with(**SIGNED),
        [call_delta(ROME), {"tool_calls": [{"index": 0, **SIGNED}]}, {"tool_calls": [{"index": 0, **SIGNED}]}],
    ),
    "Gemini, a text": ({"content": "At Rome.", **SIGNED}, [{"content": "At Rome."}, {"content": "", **SIGNED}]),
    "a field of the function": (
        {"tool_calls": [{**CALLS["tool_calls"][0], "function": {"name": "weather", "arguments": ROME, "sig": "S"}}]},
        [{"tool_calls": [{"index": 0, "id": "c", "function": {"name": "weather", "arguments": ROME, "sig": "S"}}]}],
    ),
    "Mistral": (
        {"content": PARTS, **CALLS},
        [
            {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "I "}]}]},
            {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "look."}], "closed": True}]},
            {"content": "At "},
            {"content": [{"type": "text", "text": "Rome."}]},
            call_delta(ROME),
        ],
    ),
    "Mistral, a reference": (
        {"content": [{"type": "text", "text": "At"}, {"type": "reference", "reference_ids": [7]}]},
        [{"content": [{"type": "text", "text": "At"}]}, {"content": [{"type": "reference", "reference_ids": [7]}]}],
    ),
    "what nobody knows yet": (
        {"x_state": {"n": 2, "deep": [1, {"a": None}]}, "x_flag": False, "phase": "final", "signature": "y", **CALLS},
        [
            {"x_state": {"n": 1, "deep": [1, {"a": None}]}, "x_flag": True, "phase": "final", "signature": "x"},
            {"x_state": {"n": 2}, "x_flag": False, "phase": "final", "signature": "y"},
            call_delta(ROME),
        ],
    ),
}


THINKING = {"type": "thinking", "thinking": "I look.", "signature": "S=="}
REDACTED = {"type": "redacted_thinking", "data": "E=="}
USE = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"place": "Rome"}}
MESSAGES: Mapping[str, tuple[Sequence[Json], Sequence[Json]]] = {
    "thoughts": (
        [THINKING, REDACTED, USE],
        [
            {"type": "content_block_start", "index": 0, "content_block": {**THINKING, "thinking": "", "signature": ""}},
            *(
                {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": part}}
                for part in ("I ", "look.")
            ),
            {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "S=="}},
            ended(0),
            {"type": "content_block_start", "index": 1, "content_block": REDACTED},
            ended(1),
            *(begun(2), piece(2, ROME), ended(2)),
        ],
    ),
    "an unknown block": (
        [{"type": "x_state", "x": {"a": [1]}, "note": "ab"}, {"type": "text", "text": "At Rome."}, USE],
        [
            {"type": "content_block_start", "index": 0, "content_block": {"type": "x_state", "x": {"a": [1]}}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "x_delta", "note": "ab"}},
            ended(0),
            *text(1, "At Rome."),
            *(begun(2), piece(2, ROME), ended(2)),
        ],
    ),
    "an unknown field": ([{**USE, "signature": "S=="}], [begun(0, signature="S=="), piece(0, ROME), ended(0)]),
}


async def test_blocks_stay_where_a_server_gives_two_calls_one_id() -> None:
    """Only the id changes, in the call and in its result."""
    twice: list[Json] = [THINKING, {**USE, "id": "weather"}, {**USE, "id": "weather"}]
    _, messages = await second_request("anthropic", blocks(*twice, stop="tool_use"))
    ids = [block["id"] for block in messages[1]["content"][1:]]

    assert messages[1]["content"] == [THINKING, {**USE, "id": ids[0]}, {**USE, "id": ids[1]}]
    assert len({*ids}) == 2 and [block["tool_use_id"] for block in messages[2]["content"][:2]] == ids


ITEMS: Sequence[Json] = [
    {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "E==", "x": 1},
    {"type": "x_state", "id": "x", "state": {"a": [1]}},
    {**function_call(ROME), "x": 1},
]


KEPT = [
    *(("openai", name, *pair) for name, pair in CHAT.items()),
    *(("anthropic", name, *pair) for name, pair in MESSAGES.items()),
    ("responses", "items", ITEMS, [done(item, at) for at, item in enumerate(ITEMS)]),
]


@pytest.mark.parametrize("is_streamed", [True, False])
@pytest.mark.parametrize(("wire", "name", "whole", "parts"), KEPT)
async def test_a_message_goes_back_with_what_its_vendor_added(
    wire: str, name: str, whole: Any, parts: Sequence[Json], is_streamed: bool
) -> None:
    """In each later request, in a stream or not; also an empty text, and a type or a field that no API describes."""
    match wire:
        case "openai":
            stop = "tool_calls" if "tool_calls" in whole else "stop"
            raw = deltas(*parts, stop=stop) if is_streamed else message({"content": None, **whole}, stop)
            kept = [{"role": "assistant", "content": None, **whole}]
        case "anthropic":
            raw = events_of(*parts, stop="tool_use") if is_streamed else blocks(*whole, stop="tool_use")
            kept = [{"role": "assistant", "content": [*whole]}]
        case _:
            raw = stream(*parts, response()) if is_streamed else body(json.dumps(response(*whole)["response"]))
            kept = [*whole]
    _, messages = await second_request(wire, raw)
    first = 2 if wire == "openai" else 1

    assert messages[first : first + len(kept)] == kept


REPLIES = {
    "openai": message({"reasoning_content": "PRIVATE", **call_with(extra_content="PRIVATE"), "content": PARTS}),
    "anthropic": blocks({**THINKING, "thinking": "PRIVATE"}, {"type": "x", "x": "PRIVATE"}, USE),
    "responses": stream(response({**ITEMS[0], "encrypted_content": "PRIVATE"}, function_call(ROME))),
}


@pytest.mark.parametrize("same", ["model", "address"])
@pytest.mark.parametrize("to", REPLIES)
async def test_nobody_else_gets_what_a_vendor_added(provider: str, to: str, same: str) -> None:
    """Neither another vendor, nor another model at the same address, nor the same model at another address."""
    scripts = [REPLIES[provider], REPLIES[to]], [REPLIES[to]]
    async with running(Recorder([*scripts[0]])) as first, running(Recorder([*scripts[1]])) as second:
        reply = await model_at(provider, first).reply(request(ASKED))
        other = model_at(to, first, model="other") if same == "address" else model_at(to, second)
        await other.reply(request(answered(reply)))
    sent = json.dumps([*first.bodies, *second.bodies][1])

    assert "PRIVATE" not in sent and "I look." not in sent and "weather" in sent


async def test_what_only_answers_does_not_go_back() -> None:
    """OpenAI and Mistral reject fields that they do not know."""
    only: Json = dict.fromkeys(("refusal", "audio", "function_call", "x"))
    only |= {"annotations": [], "index": 0, "parsed": {"a": 1}, "images": ["x"], "citations": ["y"]}
    raw = message({"content": "At Rome.", **only, **call_with(index=0)})
    _, messages = await second_request("openai", raw)

    assert messages[2] == {"role": "assistant", "content": "At Rome.", **CALLS}


def wants_reasoning(messages: list[Json]) -> str:
    """The rule of DeepSeek's models: not only a call, and not only the model's own."""
    found = [one for one in messages if one["role"] == "assistant" and not one.get("reasoning_content")]
    return DEEPSEEK if found else ""


def wants_signatures(messages: list[Json]) -> str:
    """The rule of Gemini's models."""
    calls = [call for one in messages for call in one.get("tool_calls", ())]
    return GEMINI if any("extra_content" not in call for call in calls) else ""


def rejects_reasoning(messages: list[Json]) -> str:
    """The rule of Mistral's models."""
    return MISTRAL if any("reasoning_content" in one for one in messages) else ""


SAID = AssistantTurn("", (ToolCall("c", "weather", {"place": "Rome"}),), by="another:model", aside="I look.")
RULES: Mapping[str, tuple[Rule, AssistantTurn]] = {
    "of another model": (wants_reasoning, SAID),
    "of an older worker": (wants_reasoning, replace(SAID, by="own")),
    "a call of another model": (wants_signatures, SAID),
    "one that is not wanted": (rejects_reasoning, replace(SAID, by="own", vendor={"reasoning_content": "I look."})),
}


@pytest.mark.parametrize("name", RULES)
async def test_what_a_server_wants_of_a_turn_is_learned_from_its_rejection(name: str) -> None:
    """The request is sent once more, and later ones are right at once."""
    rule, turn = RULES[name]
    options = AdapterOptions()
    async with running(Recorder([message({"content": "30."})], rule=rule)) as api:
        model = model_at("openai", api, options)
        turn = replace(turn, by=model.name if turn.by == "own" else turn.by)
        told = request([*ASKED, turn, UserTurn("Go on.", (ToolResult("c", "30"),))])
        replies = [await model.reply(told), await model_at("openai", api, options).reply(told)]

    assert ([reply.turn.text for reply in replies], len(api.bodies)) == (["30.", "30."], 3)
    assert (name != "of an older worker") or api.bodies[1]["messages"][2]["reasoning_content"] == "I look."


async def test_a_rejection_that_teaches_nothing_is_not_repeated() -> None:
    async with running(Recorder([message({"content": "30."})], rule=lambda _: "reasoning_content is odd")) as api:
        with pytest.raises(Exception, match="is odd"):
            await model_at("openai", api).reply(request(ASKED))

    assert len(api.bodies) == 1


OLDER = {
    "told": {"text": "Hello", "results": []},
    "said": {"text": "", "calls": [{"id": "c", "name": "weather", "args": {}, "broken": ""}], "blocks": [], "by": "x"},
    "stop": "calls",
    "usage": {"input": 1, "output": 1},
}


def test_a_conversation_of_an_older_worker_is_read() -> None:
    """It has no such fields; and a field of a newer worker is passed over."""
    newer = {**OLDER, "said": {**OLDER["said"], "vendor": {"reasoning_content": "I look."}, "later": 1}}  # type: ignore[dict-item]
    old, new = (EXCHANGE.validate_json(json.dumps(one)).said for one in (OLDER, newer))

    assert (old.vendor, new.vendor) == ({}, {"reasoning_content": "I look."})
    assert EXCHANGE.validate_json(EXCHANGE.dump_json(EXCHANGE.validate_python(newer))).said.vendor == new.vendor


async def test_what_is_nested_too_deeply_is_left_out() -> None:
    """The store could not keep it, and nothing else is lost."""
    deep = f'{{"reasoning_content": "I look.", "x": {"[" * 600}{"]" * 600}, "content": "Rome."}}'
    whole = f'{{"choices": [{{"message": {deep}, "finish_reason": "stop"}}]}}'
    reply, messages = await second_request("openai", body(whole))

    assert messages[2] == {"role": "assistant", "content": "Rome.", "reasoning_content": "I look."}
    assert reply.turn.aside == "I look."


def test_a_request_is_estimated_with_what_goes_back() -> None:
    long = replace(SAID, vendor={"reasoning_content": "x" * 3_000})
    sizes = [estimate_input(Request("", [WEATHER], [*ASKED, turn])) for turn in (SAID, long)]

    assert sizes[1] - sizes[0] > 900
