"""The adapters alone, against servers that hold every request to the providers' rules."""

import json
from pathlib import Path

import pytest
from pydantic import JsonValue
from temporalio.client import Client

from activities.borders import classify
from activities.planning.text_calls import read_move, whole_calls
from activities.providers.arguments import parse_call
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
from evals.fakes.model_api import event_bytes, running
from evals.fakes.script import ModelReply, RawBytes, finishes
from tests.gate import sampled
from tests.providers.acting import acting
from tests.providers.asking import ASKED, PARIS, ROME, WEATHER, ask, asked, reply_of, request
from tests.providers.planning import PROVIDERS, api_of, model_of
from tests.providers.wire import body, calling, chunk, stream
from workflows.account.task import Task, TaskStatus
from workflows.limits.budget import Limits

ROMA = ModelReply(text="Rome.")
TOLD: list[Turn] = [
    *ASKED,
    AssistantTurn("I look.", (PARIS, ROME)),
    UserTurn("Go on.", (ToolResult("call_a", "12"), ToolResult("call_b", "no station", is_error=True))),
]


async def test_results_go_back_paired_and_first(provider: str) -> None:
    """With the same ids, in the same order, before all words; a failure says so where the protocol has a mark.

    What begins the next request is marked for Anthropic's cache: tools, system and all turns so far.
    """
    api, _ = await ask(provider, ROMA, turns=TOLD)
    body = api.bodies[0]

    assert api.violations == []
    assert [result.is_error for result in api.requests[0].results] == [False, provider == "anthropic"]
    if provider == "anthropic":
        marked = [block for message in body["messages"] for block in message["content"] if "cache_control" in block]
        assert "cache_control" in body["tools"][-1] and "cache_control" in body["system"][-1]
        assert [block["text"] for block in marked] == ["Go on."]


async def test_a_model_is_offered_and_may_call_what_the_request_says(provider: str) -> None:
    """Without tools, neither an empty list nor a choice is sent; tools of earlier calls stay where none may be made."""
    async with running(api_of(provider, ROMA)) as api:
        await model_of(provider, api).reply(Request("Summarise.", [], ASKED))
        await model_of(provider, api).reply(Request("Answer.", [WEATHER], TOLD, may_call=False))

    assert ("tools" in api.bodies[0], api.requests[1].tools, api.requests[1].may_call) == (False, ("weather",), False)
    assert api.violations == []


async def test_usage_is_the_provider_s_own(provider: str) -> None:
    """What was read from a cache or written to one is counted apart; a `retry-after` on a success is no error."""
    api, reply = await ask(provider, ModelReply(text="Rome.", headers={"retry-after": "25"}))

    assert (reply.usage, reply.usage.tokens) == (Usage(input=100, output=7, cache_read=3, cache_write=20), 130)
    assert (reply.turn.text, len(api.bodies)) == ("Rome.", 1)


async def test_equal_ids_of_one_turn_are_told_apart(provider: str) -> None:
    """Some servers give all calls one id, such as the tool's name: each has a result of its own, as providers want."""
    async with running(api_of(provider, ROMA)) as api:
        model = model_of(provider, api)
        pair = [ToolCall("weather", "weather", {"place": place}) for place in ("Paris", "Rome")]
        blocks: tuple[dict[str, JsonValue], ...] = tuple(
            {"type": "tool_use", "id": one.id, "name": one.name, "input": {**one.args}} for one in pair
        )
        results = UserTurn("", (ToolResult("weather", "12"), ToolResult("weather", "20")))
        await model.reply(request([*ASKED, AssistantTurn("", tuple(pair), blocks, model.name), results]))

    assert (api.violations, [result.text for result in api.requests[0].results]) == ([], ["12", "20"])


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
    turns: list[Turn] = [*ASKED]
    for call in calls:
        turns += [AssistantTurn(calls=(call,), by="another"), UserTurn("Go on.", (ToolResult(call.id, call.name),))]
    api, _ = await ask(provider, ROMA, turns=turns)
    texts = [turn.results[0].text for turn in api.requests[0].turns[2::2] if isinstance(turn, UserTurn)]

    assert (api.violations, texts) == ([], [call.name for call in calls])


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
    _, reply = await ask(whose, ModelReply(text="It", stop=word))

    assert reply.stop is stop


# Arguments that nobody can be sure of are the model's mistake: it is told which, and no call is made


DEEP = f'{{"to": "ann", "x": {"[" * 1_200}{"]" * 1_200}}}'
OPEN = f'{{"to": "ann", "x": {"[" * 1_200}'
TWICE = '{"to": "ann", "amount": 1, "amount": 900}'
BROKEN: dict[str, tuple[str, str]] = {
    "deep": (DEEP, "nested deeper than 100"),
    "deeper than it looks": (f'{{"x": {"[" * 101}{"]" * 101}}}', "nested deeper than 100"),
    "a hundred thousand brackets": ("[" * 100_000, "nested deeper than 100"),
    "a key twice": (TWICE, "the key 'amount' more than once"),
    "a key twice, with one value": ('{"amount": 1, "amount": 1}', "more than once"),
    "a key twice, in other letters": ('{"amount": 1, "\\u0061mount": 900}', "the key 'amount' more than once"),
    "a key twice, in a list in an object": ('{"pay": [{"by": {"n": 1, "n": 2}}]}', "the key 'n' more than once"),
    "too large for a float": ('{"amount": 1e999}', "no JSON"),
    "a whole number too large for a float": (f'{{"amount": {"9" * 400}}}', "no JSON"),
    "5,000 digits": (f'{{"amount": {"9" * 5_000}}}', "no JSON"),
    "NaN": ('{"amount": NaN}', "no JSON"),
    "-Infinity": ('{"amount": -Infinity}', "no JSON"),
    "half a character": ('{"to": "ann\\ud83d"}', "half a character"),
    "half a character in a key": ('{"to\\udc00": "ann"}', "half a character"),
    "two objects": ('{"to": "ann"}{"to": "bob"}', "no JSON"),
    "a list": ('[{"to": "ann"}]', "a JSON list"),
    "a text with an object": ('"{\\"to\\": \\"ann\\"}"', "a JSON str"),
    "no value": ('{"to": }', "no JSON"),
    "an open text": ('{"to": "ann', "no JSON"),
}


@pytest.mark.parametrize(("written", "why"), BROKEN.values(), ids=BROKEN)
def test_broken_arguments_are_said_to_be(written: str, why: str) -> None:
    call = parse_call("c", "pay", written)

    assert call.args == {} and why in call.broken, call.broken


GOOD = [
    '{"a": "\\u0000"}',
    '{"a": 9007199254740993}',
    '{"a": {"b": 1}, "b": {"b": 1}}',
    f'{{"x": {"[" * 99}{"]" * 99}}}',
]
NONE = ["", " ", '""', "null", " {} "]


@pytest.mark.parametrize("written", [*GOOD, *NONE])
async def test_unusual_arguments_are_no_mistake(provider: str, written: str) -> None:
    """Large numbers are exact, and no arguments are none, however a server writes them."""
    (call,) = (await reply_of(provider, calling(provider, written))).turn.calls

    assert (call.args, call.broken) == ({} if written in NONE else json.loads(written), "")


@pytest.mark.parametrize("name", [None, 7, ["pay"], {"pay": 1}])
def test_a_name_or_an_id_that_is_no_text_is_none(name: object) -> None:
    """So a call with it is one of an unknown kind."""
    call = parse_call(name, name, "{}")

    assert (call.id, call.name) == ("", "")


HARD = ["deep", "an open text", "a key twice", "a key twice, in other letters", "too large for a float"]


@pytest.mark.parametrize("written", HARD)
@pytest.mark.parametrize("is_streamed", [True, False])
async def test_no_wire_makes_them_good(provider: str, written: str, is_streamed: bool) -> None:
    """As a text or as JSON itself, in a stream or at once: what the server counted is known, and the reply is whole."""
    for as_object in {False, written != "an open text"}:
        raw = calling(provider, BROKEN[written][0], as_object=as_object, is_streamed=is_streamed)
        reply = await reply_of(provider, raw)
        (call,) = reply.turn.calls

        assert (call.name, call.args) == ("weather", {}) and BROKEN[written][1] in call.broken, call
        assert (reply.usage.tokens, reply.usage.is_estimated) == (120, False) or provider == "anthropic"


@pytest.mark.parametrize("is_streamed", [True, False])
async def test_an_object_in_place_of_a_text_is_read(provider: str, is_streamed: bool) -> None:
    args = {"place": 'a "}{[', "arguments": {"input": {"x": "\\"}}, "ü": [1.5, None, True]}
    for ensure_ascii in (True, False):
        written = json.dumps(args, ensure_ascii=ensure_ascii)
        reply = await reply_of(provider, calling(provider, written, as_object=True, is_streamed=is_streamed))

        assert [(call.args, call.broken) for call in reply.turn.calls] == [(args, "")]


DEEP_TEXT = event_bytes(chunk({"content": "@"})).replace(b'"@"', b"[" * 5_000 + b"]" * 5_000)
DEEP_BODIES: dict[str, RawBytes] = {
    "an event": stream(DEEP_TEXT),
    "a body": body("[" * 200_000),
    "a field of a body": body(f'{{"choices": {"[" * 5_000}{"]" * 5_000}}}'),
}


@pytest.mark.parametrize("raw", DEEP_BODIES.values(), ids=DEEP_BODIES)
async def test_a_deep_response_is_no_bug_of_a_tool(provider: str, raw: RawBytes) -> None:
    """As any other that is no reply: a proxy may have sent it."""
    _, _, error = await asked(provider, raw)

    assert isinstance(error, Exception) and classify(error).quadrant.is_transient, error


BESIDE = f'"x": {"[" * 600}{"]" * 600}'
WHOLE_ITEM = '"output": [{"type": "message", "content": [{"type": "output_text", "text": "Rome."}]}]'
UNUSED_DEPTH = {
    "anthropic": f'{{"content": [{{"type": "text", "text": "Rome."}}], "stop_reason": "end_turn", {BESIDE}}}',
    "openai": f'{{"choices": [{{"message": {{"content": "Rome."}}, "finish_reason": "stop"}}], {BESIDE}}}',
    "responses": f'{{"status": "completed", {BESIDE}, {WHOLE_ITEM}}}',
}


async def test_depth_that_nobody_reads_is_no_mistake(provider: str) -> None:
    """In a field that Replan does not know, of a reply without a count."""
    reply = await reply_of(provider, body(UNUSED_DEPTH[provider]))

    assert (reply.turn.text, reply.usage.is_estimated) == ("Rome.", True) and reply.usage.output > 0


REPAIRED = {
    f"{provider}, {how}": (provider, how, raw)
    for provider in PROVIDERS
    for how, raw in {
        "a key twice": calling(provider, TWICE),
        "deep": calling(provider, DEEP),
        "open": calling(provider, OPEN),
        "a deep object": calling(provider, DEEP, as_object=True),
        "a deep object in a body": calling(provider, DEEP, as_object=True, is_streamed=False),
    }.items()
}


@pytest.mark.parametrize(("whose", "how", "raw"), sampled(REPAIRED, "anthropic, deep", "openai, a deep object"))
async def test_a_model_is_told_of_broken_arguments(
    client: Client, tmp_path: Path, whose: str, how: str, raw: RawBytes
) -> None:
    async with acting(client, tmp_path, whose, raw, ModelReply(text="All is paid.")) as one:
        ended = await one.run("pay")

    assert (ended.status, ended.result, ended.steps) == (TaskStatus.COMPLETED, "All is paid.", ()), ended.reason
    assert "the arguments of weather cannot be read" in one.api.requests[1].results[0].text
    assert (len(one.api.bodies), one.api.violations) == (2, [])


async def test_a_model_is_told_twice_at_most(client: Client, tmp_path: Path, provider: str) -> None:
    async with acting(client, tmp_path, provider, calling(provider, TWICE)) as one:
        ended = await one.run("pay")

    assert (ended.status, ended.code, len(one.api.bodies)) == (TaskStatus.ESCALATED, "proposals_rejected", 3)


def plan_of(provider: str, steps: str) -> RawBytes:
    """A reply that proposes these steps."""
    raw = calling(provider, f'{{"steps": [{steps}]}}')
    return RawBytes(raw.sent.replace(b'"weather"', b'"propose_plan"').replace(b"content-length", b"x-length"))


async def test_a_key_twice_in_a_step_of_a_plan_is_a_mistake(client: Client, tmp_path: Path, provider: str) -> None:
    steps = '{"id": "a", "kind": "book", "args": {"at": "14:00", "at": "15:00"}}'
    async with acting(client, tmp_path, provider, plan_of(provider, steps), finishes("It is not booked.")) as one:
        ended = await one.stage.run(Task(text="book a slot", limits=Limits(replans=5)))

    assert (ended.status, ended.steps) == (TaskStatus.COMPLETED, ()), ended.reason
    assert "the key 'at' more than once" in one.api.requests[1].results[0].text


AS_TEXT = {
    "JSON": f'{{"name": "pay", "arguments": {TWICE}}}',
    "arguments as a text": json.dumps({"name": "pay", "arguments": TWICE}),
    "a key of the call": '{"name": "pay", "arguments": {"amount": 1}, "arguments": {"amount": 900}}',
    "in a list": f'[{{"name": "pay", "arguments": {TWICE}}}]',
    "Hermes": f'<tool_call>\n{{"name": "pay", "arguments": {TWICE}}}\n</tool_call>',
    "Llama, custom": f"<function=pay>{TWICE}</function>",
    "Mistral": f"[TOOL_CALLS]pay[ARGS]{TWICE}",
    "parameters": "<function=pay><parameter=amount>1</parameter><parameter=amount>900</parameter></function>",
    "half a parameter": "<function=pay><parameter=to>ann</parameter><parameter=amount>1</function>",
    "Python": "[pay(amount=1, amount=900)]",
    "Python, an object": '[pay(what={"amount": 1, "amount": 900})]',
    "Python, keys that are no texts": "[pay(amount={1: 2, 1: 3})]",
    "Python, no JSON": "[pay(amount={1, 2})]",
    "Python, infinite": "[pay(amount=1e999)]",
    "JSON, infinite": '{"name": "pay", "arguments": {"amount": Infinity}}',
}


NO_CALLS = {
    "a deep object": f'{{"name": "pay", "arguments": {DEEP}}}',
    "cut": '{"name": "pay", "arguments": {"to": "ann", "am',
    "cut in Python": '[pay(to="ann", amount=1',
    "marks in marks": "<tool_call>" * 5_000,
    "other marks in marks": "<|python_tag|>" * 5_000,
    "deep lists": "[" * 700 + "]" * 700,
    "Python with more arguments": '[pay(**{"amount": 1})]',
}


@pytest.mark.parametrize("name", [*AS_TEXT, *NO_CALLS])
def test_broken_arguments_as_text_are_said_to_be(name: str) -> None:
    """In each form of a call; a text that was cut or is deep is none."""
    found = whole_calls({**AS_TEXT, **NO_CALLS}[name], ("pay",))

    assert [(call.args, bool(call.broken)) for call in found] == ([] if name in NO_CALLS else [({}, True)])


MOVES = {
    "a key twice": (f"Action: pay\nAction Input: {TWICE}", "more than once"),
    "deep": (f"Action: pay\nAction Input: {DEEP}", "nested deeper"),
    "open": (f"Action: pay\nAction Input: {OPEN}", "nested deeper"),
    "cut before the arguments": ("Thought: I pay.\nAction: pay\n", "Action Input is missing"),
    "cut at the arguments": ("Thought: I pay.\nAction: pay\nAction Input: ", "Action Input is missing"),
    "as in the paper": (f"Action: pay[{TWICE}]", "more than once"),
}


@pytest.mark.parametrize(("written", "why"), MOVES.values(), ids=MOVES)
def test_a_broken_action_is_said_to_be(written: str, why: str) -> None:
    """Where a tool takes arguments; another one may be called without any."""
    (call,) = read_move(written, {"pay": ["amount"], "look": []}).calls
    (without,) = read_move("Action: look", {"pay": ["amount"], "look": []}).calls

    assert (call.name, call.args, without.broken) == ("pay", {}, "") and why in call.broken, call.broken
