"""Arguments that nobody can be sure of are the model's mistake: it is told which, and no call is made."""

import json
from pathlib import Path

import pytest
from temporalio.client import Client

from activities.borders import classify
from activities.planning.text_calls import read_move, whole_calls
from activities.providers.arguments import parse_call
from evals.fakes.model_api import event_bytes
from evals.fakes.script import ModelReply, RawBytes, finishes
from tests.gate import sampled
from tests.providers.acting import acting
from tests.providers.planning import PROVIDERS
from tests.providers.test_streams import asked
from tests.providers.test_unfinished import reply_of
from tests.providers.wire import body, calling, chunk, stream
from workflows.account.task import Task, TaskStatus
from workflows.limits.budget import Limits

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
    """With what is wrong; nothing of them is kept."""
    call = parse_call("c", "pay", written)

    assert call.args == {} and why in call.broken, call.broken


GOOD = ['{"a": "\\u0000"}', '{"a": 9007199254740993}', '{"a": {"b": 1}, "b": {"b": 1}}', "", "null", '""', " {} "]


@pytest.mark.parametrize("written", [*GOOD, f'{{"x": {"[" * 99}{"]" * 99}}}'])
def test_unusual_arguments_are_no_mistake(written: str) -> None:
    """Large numbers are exact, and none at all are an empty object."""
    assert parse_call("c", "pay", written).broken == ""


@pytest.mark.parametrize("name", [None, 7, ["pay"], {"pay": 1}])
def test_a_name_or_an_id_that_is_no_text_is_none(name: object) -> None:
    """So a call with it is one of an unknown kind."""
    call = parse_call(name, name, "{}")

    assert (call.id, call.name) == ("", "")


HARD = ["deep", "a key twice", "a key twice, in other letters", "too large for a float"]


@pytest.mark.parametrize("written", HARD)
@pytest.mark.parametrize("is_streamed", [True, False])
@pytest.mark.parametrize("as_object", [True, False])
async def test_no_wire_makes_them_good(provider: str, written: str, as_object: bool, is_streamed: bool) -> None:
    """As a text or as JSON itself, in a stream or at once: what the server counted is known, and the reply is whole."""
    raw = calling(provider, BROKEN[written][0], as_object=as_object, is_streamed=is_streamed)
    reply = await reply_of(provider, raw)
    (call,) = reply.turn.calls

    assert (call.name, call.args) == ("weather", {}) and BROKEN[written][1] in call.broken, call
    assert (reply.usage.tokens, reply.usage.is_estimated) == (120, False) or provider == "anthropic"


@pytest.mark.parametrize("is_streamed", [True, False])
async def test_an_object_in_place_of_a_text_is_read(provider: str, is_streamed: bool) -> None:
    """With the marks of JSON in its texts."""
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
UNUSED_DEPTH = {
    "anthropic": f'{{"content": [{{"type": "text", "text": "Rome."}}], "stop_reason": "end_turn", {BESIDE}}}',
    "openai": f'{{"choices": [{{"message": {{"content": "Rome."}}, "finish_reason": "stop"}}], {BESIDE}}}',
    "responses": (
        f'{{"status": "completed", {BESIDE}, "output": [{{"type": "message",'
        ' "content": [{"type": "output_text", "text": "Rome."}]}]}'
    ),
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
    """And goes on; nothing was called."""
    async with acting(client, tmp_path, whose, raw, ModelReply(text="All is paid.")) as one:
        ended = await one.run("pay")

    assert (ended.status, ended.result, ended.steps) == (TaskStatus.COMPLETED, "All is paid.", ()), ended.reason
    assert "the arguments of weather cannot be read" in one.api.requests[1].results[0].text
    assert (len(one.api.bodies), one.api.violations) == (2, [])


async def test_a_model_is_told_twice_at_most(client: Client, tmp_path: Path, provider: str) -> None:
    """Then a person is asked."""
    async with acting(client, tmp_path, provider, calling(provider, TWICE)) as one:
        ended = await one.run("pay")

    assert (ended.status, ended.code, len(one.api.bodies)) == (TaskStatus.ESCALATED, "proposals_rejected", 3)


def plan_of(provider: str, steps: str) -> RawBytes:
    """A reply that proposes these steps."""
    raw = calling(provider, f'{{"steps": [{steps}]}}')
    return RawBytes(raw.sent.replace(b'"weather"', b'"propose_plan"').replace(b"content-length", b"x-length"))


async def test_a_key_twice_in_a_step_of_a_plan_is_a_mistake(client: Client, tmp_path: Path, provider: str) -> None:
    """Nothing of the plan is carried out."""
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


@pytest.mark.parametrize("written", AS_TEXT.values(), ids=AS_TEXT)
def test_broken_arguments_as_text_are_said_to_be(written: str) -> None:
    """In each form of a call."""
    (call,) = whole_calls(written, ("pay",))

    assert call.args == {} and call.broken


NO_CALLS = {
    "deep": f'{{"name": "pay", "arguments": {DEEP}}}',
    "cut": '{"name": "pay", "arguments": {"to": "ann", "am',
    "cut in Python": '[pay(to="ann", amount=1',
    "marks in marks": "<tool_call>" * 5_000,
    "other marks in marks": "<|python_tag|>" * 5_000,
    "deep lists": "[" * 700 + "]" * 700,
    "Python with more arguments": '[pay(**{"amount": 1})]',
}


@pytest.mark.parametrize("written", NO_CALLS.values(), ids=NO_CALLS)
def test_a_text_that_was_cut_or_is_deep_is_no_call(written: str) -> None:
    """And nothing fails."""
    assert whole_calls(written, ("pay",)) == []


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
