"""The servers of these tests are as strict as the providers: each broken rule is found and answered with 400."""

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from evals.fakes.anthropic_api import AnthropicApi
from evals.fakes.model_api import KEY, MODEL, Json, ModelApi
from evals.fakes.openai_api import OpenAIApi
from evals.fakes.responses_api import ResponsesApi
from evals.fakes.script import ModelCall, ModelError, ModelReply, ReceivedRequest

KEEP = {"cache_control": {"type": "ephemeral"}}
SCHEMA = {"type": "object", "properties": {"place": {"type": "string"}}}
USE = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"place": "Rome"}}
OTHER = {**USE, "id": "toolu_2"}
WORDS = {"type": "text", "text": "It is noon.", **KEEP}
RESULTS = [
    {"type": "tool_result", "tool_use_id": "toolu_1", "content": "12"},
    {"type": "tool_result", "tool_use_id": "toolu_2", "content": "no", "is_error": True},
]
TO_ANTHROPIC: Json = {
    "model": MODEL,
    "max_tokens": 100,
    "system": [{"type": "text", "text": "Plan.", **KEEP}],
    "tools": [{"name": "weather", "description": "Say it.", "input_schema": SCHEMA, **KEEP}],
    "messages": [
        {"role": "user", "content": "Where is it warmer?"},
        {"role": "assistant", "content": [USE, OTHER]},
        {"role": "user", "content": [*RESULTS, WORDS]},
    ],
}
CALL = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
TO_OPENAI: Json = {
    "model": MODEL,
    "tools": [{"type": "function", "function": {"name": "weather", "description": "Say it.", "parameters": SCHEMA}}],
    "messages": [
        {"role": "system", "content": "Plan."},
        {"role": "user", "content": "Where is it warmer?"},
        {"role": "assistant", "content": None, "tool_calls": [CALL, {**CALL, "id": "call_2"}]},
        {"role": "tool", "tool_call_id": "call_1", "content": "12"},
        {"role": "tool", "tool_call_id": "call_2", "content": "no"},
        {"role": "user", "content": "It is noon."},
    ],
}


CALLED = {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": "{}"}
RESULT = {"type": "function_call_output", "call_id": "call_1", "output": "12"}
TO_RESPONSES: Json = {
    "model": MODEL,
    "store": False,
    "include": ["reasoning.encrypted_content"],
    "instructions": "Plan.",
    "tools": [{"type": "function", "name": "weather", "description": "Say it.", "parameters": SCHEMA, "strict": False}],
    "input": [
        {"role": "user", "content": "Where is it warmer?"},
        CALLED,
        {**CALLED, "call_id": "call_2"},
        RESULT,
        {**RESULT, "call_id": "call_2", "output": "no"},
        {"role": "user", "content": "It is noon."},
    ],
}


def sent(api: ModelApi, body: Json) -> Any:
    """What a server makes of a request."""
    return api.answer(api.path, {"authorization": f"Bearer {KEY}", "anthropic-version": "2023-06-01"}, body)


Change = Callable[[Json], object]


def repeated(body: Json) -> None:
    """Both calls and both results have one id."""
    for index, name in ((1, "id"), (2, "tool_use_id")):
        for block in body["messages"][index]["content"][:2]:
            block[name] = "toolu_1"


def thought(body: Json) -> None:
    """A thought that the model never had."""
    body["messages"][1]["content"].insert(0, {"type": "thinking", "thinking": "Rome!", "signature": "x"})


ANTHROPIC: dict[str, tuple[Change, str]] = {
    "unknown field": (lambda body: body.update(n=1), "body.n: Extra inputs"),
    "no limit": (lambda body: body.pop("max_tokens"), "max_tokens"),
    "one result is missing": (lambda body: body["messages"][2]["content"].pop(0), "without `tool_result` blocks"),
    "other order": (lambda body: body["messages"][2]["content"].insert(0, RESULTS[1]), "not in the order"),
    "words first": (lambda body: body["messages"][2]["content"].insert(0, WORDS), "must come first"),
    "a result of nothing": (lambda body: body["messages"].__delitem__(slice(0, 2)), "unexpected `tool_use_id`"),
    "one id for two calls": (repeated, "ids must be unique"),
    "a forced call": (lambda body: body.update(tool_choice={"type": "any"}), "is not supported by this model"),
    "a choice without tools": (lambda body: body.update(tools=[], tool_choice={"type": "none"}), "while providing"),
    "calls without tools": (lambda body: body.pop("tools"), "must define tools"),
    "a thought of ours": (thought, "Invalid `signature`"),
    "no result at all": (lambda body: body["messages"].pop(), "the last must use the user role"),
    "two turns of a user": (lambda body: body["messages"].insert(0, {"role": "user", "content": "x"}), "of one role"),
    "empty text": (lambda body: body["messages"][2]["content"][2].update(text=" "), "must be non-empty"),
    "input as text": (lambda body: body["messages"][1]["content"][0].update(input="{}"), "its input be an object"),
    "name of a property": (
        lambda body: body["tools"][0]["input_schema"]["properties"].update({"$from": {}}),
        "'$from'",
    ),
    "union as a schema": (lambda body: body["tools"][0]["input_schema"].update(anyOf=[{}]), "no plain object"),
    "no schema": (lambda body: body["tools"][0]["input_schema"].update(required="place"), "is not of type 'array'"),
    "name of a call": (lambda body: body["messages"][1]["content"][0].update(name="a.b"), "tool_use.name should match"),
    "name of a tool": (lambda body: body["tools"][0].update(name="a b"), "name 'a b'"),
    "system not marked": (lambda body: body["system"][0].pop("cache_control"), "system: the end is not marked"),
    "turns not marked": (lambda body: body["messages"][2]["content"][2].pop("cache_control"), "messages: the end is"),
    "too many marks": (lambda body: [block.update(KEEP) for block in body["messages"][1]["content"]], "A maximum of 4"),
}
OPENAI: dict[str, tuple[Change, str]] = {
    "name of a call": (
        lambda body: body["messages"][2]["tool_calls"][0]["function"].update(name="a.b"),
        "need an id and a name",
    ),
    "a long id": (lambda body: body["messages"][2]["tool_calls"][0].update(id="x" * 41), "need an id and a name"),
    "a choice without tools": (lambda body: body.update(tools=[], tool_choice="none"), "only allowed when"),
    "another choice": (lambda body: body.update(tool_choice={"type": "none"}), "tool_choice"),
    "calls without tools": (lambda body: body.pop("tools"), "must define tools"),
    "unknown field": (lambda body: body.update(max_tokens=1), "body.max_tokens: Extra inputs"),
    "one result is missing": (lambda body: body["messages"].pop(4), "without response messages: ['call_2']"),
    "other order": (lambda body: body["messages"].insert(3, body["messages"].pop(4)), "in their order"),
    "an answer to nothing": (lambda body: body["messages"].pop(2), "must answer 'tool_calls'"),
    "an object as arguments": (
        lambda body: body["messages"][2]["tool_calls"][0]["function"].update(arguments={}),
        "JSON",
    ),
    "no content": (lambda body: body["messages"][1].update(content=None), "content must be a string"),
    "no system": (lambda body: body["messages"].pop(0), "roles"),
    "error mark": (lambda body: body["messages"][3].update(is_error=True), "is_error: Extra inputs"),
    "ends with the model": (lambda body: body["messages"].append({"role": "assistant", "content": "x"}), "roles"),
}
RESPONSES: dict[str, tuple[Change, str]] = {
    "stored": (lambda body: body.pop("store"), "store: must be false"),
    "no encryption": (lambda body: body.pop("include"), "include: must have reasoning.encrypted_content"),
    "unknown field": (lambda body: body.update(max_completion_tokens=1), "max_completion_tokens: Extra inputs"),
    "no instructions": (lambda body: body.pop("instructions"), "instructions: must be a text"),
    "few tokens": (lambda body: body.update(max_output_tokens=15), "integer below minimum value"),
    "effort": (lambda body: body.update(reasoning={"effort": "huge"}), "reasoning.effort"),
    "a choice without tools": (lambda body: body.update(tools=[], tool_choice="none"), "only allowed when"),
    "calls without tools": (lambda body: body.pop("tools"), "must define tools"),
    "strict by default": (lambda body: body["tools"][0].pop("strict"), "Missing required parameter: 'strict'"),
    "a tool of the other API": (lambda body: body["tools"].append({"type": "function", "function": {}}), "tools.func"),
    "no schema": (lambda body: body["tools"][0]["parameters"].update(required="place"), "is not of type 'array'"),
    "no result": (lambda body: body["input"].pop(4), "No tool output found for function call call_2."),
    "no call": (lambda body: body["input"].pop(2), "No tool call found for function call output with call_id call_2."),
    "a call twice": (lambda body: body["input"].insert(1, CALLED), "must have one function_call"),
    "a result twice": (lambda body: body["input"].insert(4, RESULT), "must have one function_call"),
    "other order": (lambda body: body["input"].insert(3, body["input"].pop(4)), "in their order"),
    "words between": (lambda body: body["input"].insert(3, {"role": "user", "content": "x"}), "in their order"),
    "ends with the model": (lambda body: body["input"].append({"role": "assistant", "content": "x"}), "ends with the"),
    "a system role": (lambda body: body["input"].insert(1, {"role": "system", "content": "x"}), "roles must be"),
    "empty words": (lambda body: body["input"][5].update(content=" "), "content must be a text"),
    "a message of the other API": (lambda body: body["input"].insert(1, {"role": "tool", "content": "x"}), "roles"),
    "an unknown item": (lambda body: body["input"].insert(1, {"type": "thinking"}), "Invalid value: 'thinking'"),
    "an error mark": (lambda body: body["input"][3].update(is_error=True), "is_error: Extra inputs"),
    "an object as arguments": (lambda body: body["input"][1].update(arguments={}), "arguments must be JSON"),
    "no arguments": (lambda body: body["input"][1].pop("arguments"), "Missing required parameter: 'arguments'"),
    "a long id": (lambda body: body["input"][1].update(call_id="x" * 65), "maximum length 64"),
    "name of a call": (lambda body: body["input"][1].update(name="a.b"), "string does not match pattern"),
    "an item of nobody": (lambda body: body["input"][1].update(id="fc_1"), "Item 'fc_1' is unknown"),
}
EACH = [(AnthropicApi, TO_ANTHROPIC), (OpenAIApi, TO_OPENAI), (ResponsesApi, TO_RESPONSES)]
each = pytest.mark.parametrize(("form", "body"), EACH)
BROKEN = {
    f"{form.__name__}: {name}": (form, body, *case)
    for (form, body), rules in zip(EACH, (ANTHROPIC, OPENAI, RESPONSES), strict=True)
    for name, case in rules.items()
}


@pytest.mark.parametrize(("form", "body", "change", "says"), BROKEN.values(), ids=BROKEN)
def test_a_broken_rule_is_found(form: type[ModelApi], body: Json, change: Change, says: str) -> None:
    """It is counted, and answered as the provider would."""
    api, wrong = form([ModelReply(text="Rome.")]), copy.deepcopy(body)
    change(wrong)
    answer = sent(api, wrong)

    assert isinstance(answer, ModelError) and answer.status == 400
    assert any(says in violation for violation in api.violations), api.violations


def renamed(body: Json) -> Json:
    """The request with another tool in the place of the one that was called."""
    tool = body["tools"][0]
    form = {"type": "function", "function": {**tool["function"], "name": "time"}} if "function" in tool else None
    return {**body, "tools": [form or {**tool, "name": "time"}]}


@each
def test_a_request_by_the_rules_is_answered(form: type[ModelApi], body: Json) -> None:
    """So that the test above finds its own rule broken; calls of tools that never were may be repeated, too."""
    for request in (copy.deepcopy(body), renamed(body)):
        api = form([ModelReply(text="Rome.")])

        assert (sent(api, request), api.violations) == (ModelReply(text="Rome."), [])


@each
def test_a_tool_that_is_gone_is_missed(form: type[ModelApi], body: Json) -> None:
    """It was offered and called before: a model must not see calls that it cannot make any more."""
    api = form([ModelReply(text="Rome.")])
    sent(api, body)
    sent(api, renamed(body))

    assert api.violations == ["tools: weather was called before and is not offered any more"]


@each
def test_a_wrong_key_and_another_model_are_refused(form: type[ModelApi], body: Json) -> None:
    """A wrong key is no violation, whatever the request says; another model is a name that nobody knows."""
    api = form([ModelReply(text="Rome.")])
    answer = api.answer(api.path, {"authorization": "Bearer other"}, {})
    assert isinstance(answer, ModelError) and (answer.status, api.violations) == (401, [])
    answer = sent(api, {**body, "model": "other"})

    assert isinstance(answer, ModelError) and answer.status == (400 if form is ResponsesApi else 404)
    assert "other" in answer.message


@each
def test_a_window_is_counted_in_tokens_of_four_characters(form: type[ModelApi], body: Json) -> None:
    """What it does not hold is too long: no violation, and the script waits for a shorter request."""
    api = form([ModelReply(text="Rome."), ModelReply(text="Paris.")], window=40)
    answer = sent(api, body)
    api.window = 4_000
    assert isinstance(answer, ModelError) and (answer.status, api.too_long, api.violations) == (400, 1, [])
    assert sent(api, body) == ModelReply(text="Rome.")
    api.bodies.append(body)
    short, _ = api.usage(ModelReply())
    turns = "input" if form is ResponsesApi else "messages"
    api.bodies.append({**body, turns: [*body[turns], {"role": "user", "content": "x" * 4_000}]})
    long, written = api.usage(ModelReply(text="y" * 400))

    assert 1_000 <= long - short < 1_020 and written == 100


def echo(heard: ReceivedRequest) -> ModelReply:
    """A model that says what it hears."""
    results = ",".join(f"{result.call_id}={result.text}" for result in heard.results)
    return ModelReply(text=f"{heard.system}|{heard.tools}|{heard.may_call}|{heard.turn}|{results}|{heard.last_text}")


NONE = {AnthropicApi: {"type": "none"}, OpenAIApi: "none", ResponsesApi: "none"}


@each
def test_a_scripted_model_hears_the_same_from_each(form: type[ModelApi], body: Json) -> None:
    """Instructions, tools, whether it may call, how often it spoke, results with their ids, and the words after."""
    answer = sent(form([echo]), {**body, "tool_choice": NONE[form]})
    first, second = ("toolu_1", "toolu_2") if form is AnthropicApi else ("call_1", "call_2")

    assert answer == ModelReply(text=f"Plan.|('weather',)|False|1|{first}=12,{second}=no|It is noon.")


@each
def test_a_mistake_of_a_script_is_counted(form: type[ModelApi], body: Json) -> None:
    """One that fails must not look as if a connection had broken; a model that may not call does not, if not lax."""
    failing = form([lambda heard: ModelReply(text=heard.calls[9].name)])
    assert isinstance(sent(failing, body), ModelError) and "IndexError" in failing.violations[0]
    for is_lax in (False, True):
        api = form([ModelReply((ModelCall("weather", {}),))], is_lax=is_lax)
        sent(api, {**body, "tool_choice": NONE[form]})

        assert len(api.violations) == (0 if is_lax else 1)


IDS = [
    (AnthropicApi, False, "toolu_2_1"),
    (OpenAIApi, False, "call_2_1"),
    (OpenAIApi, True, "call_1"),
    (ResponsesApi, False, "call_2_1"),
]


@pytest.mark.parametrize(("form", "repeats_ids", "id"), IDS)
def test_calls_have_ids(form: type[ModelApi], repeats_ids: bool, id: str) -> None:
    """Each its own, or in each turn the same again, as some compatible servers do it."""
    api = form([ModelReply()], repeats_ids=repeats_ids)
    api.bodies += [{}, {}]
    calls = ModelReply((ModelCall("weather", {}), ModelCall("weather", {})))

    assert f'"{id}"' in json.dumps(api.reply_body(calls))


def thoughtful() -> tuple[AnthropicApi, Json]:
    """A model that thought before its calls, and the request that answers them."""
    api, body = AnthropicApi([ModelReply(text="Rome.")]), copy.deepcopy(TO_ANTHROPIC)
    said = api.reply_body(ModelReply((ModelCall("weather", {}), ModelCall("weather", {})), thinking="Rome?"))["content"]
    results = body["messages"][2]["content"]
    results[0]["tool_use_id"], results[1]["tool_use_id"] = said[1]["id"], said[2]["id"]
    body["messages"][1]["content"] = said
    return api, body


def test_a_thought_that_does_not_come_back_is_missed() -> None:
    """With its signature, before the calls that it led to, it is as it was; the calls alone are not what was said."""
    api, body = thoughtful()
    assert (sent(api, body), api.violations) == (ModelReply(text="Rome."), [])
    del body["messages"][1]["content"][0]
    sent(api, body)

    assert "cannot be modified" in api.violations[0]


def reasoned() -> tuple[ResponsesApi, Json]:
    """A model that reasoned before its words and before its calls, and the request that answers them."""
    api, body = ResponsesApi([ModelReply(text="Rome.")]), copy.deepcopy(TO_RESPONSES)
    reply = ModelReply((ModelCall("weather", {}), ModelCall("weather", {})), text="I look.")
    said = copy.deepcopy(api.reply_body(reply)["output"])
    results = [{**RESULT, "call_id": item["call_id"]} for item in said[3:]]
    body["input"] = [body["input"][0], *said, *results, body["input"][5]]
    return api, body


REASONING: dict[str, tuple[Change, str]] = {
    "left out": (lambda body: body["input"].pop(1), "was provided without its required 'reasoning' item"),
    "left out before a call": (lambda body: body["input"].pop(3), "was provided without its required 'reasoning'"),
    "its item left out": (lambda body: body["input"].pop(2), "'reasoning' was provided without its required following"),
    "something between": (
        lambda body: body["input"].insert(2, {"role": "assistant", "content": "x"}),
        "'reasoning' was provided without its required following item",
    ),
    "changed": (lambda body: body["input"][1].update(encrypted_content="x"), "could not be verified"),
    "shortened": (lambda body: body["input"][1].pop("encrypted_content"), "could not be verified"),
    "words changed": (lambda body: body["input"][2]["content"][0].update(text="x"), "or it was changed"),
    "words shortened": (lambda body: body["input"][2].pop("phase"), "or it was changed"),
    "without ids": (
        lambda body: body["input"].__setitem__(slice(1, 6), [{**CALLED, "call_id": "call_0_0"}]),
        "No tool call found for function call output",
    ),
}


@pytest.mark.parametrize(("change", "says"), REASONING.values(), ids=REASONING)
def test_an_item_that_is_changed_or_left_out_is_missed(change: Change, says: str) -> None:
    """In the words of the real API, and with its status; what comes back as it was is answered."""
    api, body = reasoned()
    assert (sent(api, copy.deepcopy(body)), api.violations) == (ModelReply(text="Rome."), [])
    change(body)
    answer = sent(api, body)

    assert isinstance(answer, ModelError) and answer.status == 400
    assert any(says in violation for violation in api.violations), api.violations


def test_calls_without_their_reasoning_are_missed() -> None:
    """The real API takes them, but then the model has to reason again."""
    api, body = reasoned()
    body["input"][1:6] = [{name: item[name] for name in CALLED} for item in body["input"][4:6]]
    sent(api, body)

    assert "were left out or changed" in api.violations[0]
