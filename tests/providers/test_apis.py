"""The servers of these tests are as strict as the providers: each broken rule is found and answered with 400."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.providers.anthropic_api import AnthropicApi
from tests.providers.api import KEY, MODEL, Json, ModelApi
from tests.providers.openai_api import OpenAIApi
from tests.providers.script import Fails, Says

KEEP = {"cache_control": {"type": "ephemeral"}}
SCHEMA = {"type": "object", "properties": {"place": {"type": "string"}}}
USE = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"place": "Rome"}}
OTHER = {**USE, "id": "toolu_2"}
RESULTS = [
    {"type": "tool_result", "tool_use_id": "toolu_1", "content": "12"},
    {"type": "tool_result", "tool_use_id": "toolu_2", "content": "no", "is_error": True, **KEEP},
]
TO_ANTHROPIC: Json = {
    "model": MODEL,
    "max_tokens": 100,
    "system": [{"type": "text", "text": "Plan.", **KEEP}],
    "tools": [{"name": "weather", "description": "Say it.", "input_schema": SCHEMA, **KEEP}],
    "messages": [
        {"role": "user", "content": "Where is it warmer?"},
        {"role": "assistant", "content": [USE, OTHER]},
        {"role": "user", "content": [*RESULTS, {"type": "text", "text": "It is noon."}]},
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


def sent(api: ModelApi, body: Json) -> Any:
    """What a server makes of a request."""
    return api.answer(api.path, {"authorization": f"Bearer {KEY}", "anthropic-version": "2023-06-01"}, body)


Change = Callable[[Json], object]

ANTHROPIC: dict[str, tuple[Change, str]] = {
    "unknown field": (lambda body: body.update(n=1), "body.n: Extra inputs"),
    "model": (lambda body: body.update(model="gpt"), "model: gpt"),
    "no limit": (lambda body: body.pop("max_tokens"), "max_tokens"),
    "one result is missing": (lambda body: body["messages"][2]["content"].pop(0), "do not answer"),
    "other order": (lambda body: body["messages"][2]["content"].insert(0, RESULTS[1]), "do not answer"),
    "words first": (lambda body: body["messages"][2]["content"].reverse(), "do not answer"),
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
    "name of a tool": (lambda body: body["tools"][0].update(name="a b"), "name 'a b'"),
    "prefix not marked": (lambda body: body["system"][0].pop("cache_control"), "system: the stable prefix"),
    "news marked": (lambda body: body["messages"][2]["content"][2].update(KEEP), "what is new each time is marked"),
    "too many marks": (lambda body: [block.update(KEEP) for block in body["messages"][1]["content"]], "A maximum of 4"),
}
OPENAI: dict[str, tuple[Change, str]] = {
    "unknown field": (lambda body: body.update(max_tokens=1), "body.max_tokens: Extra inputs"),
    "model": (lambda body: body.update(model="claude"), "model: claude"),
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
BROKEN: list[tuple[type[ModelApi], Json, Change, str]] = [
    (AnthropicApi, TO_ANTHROPIC, *case) for case in ANTHROPIC.values()
]
BROKEN += [(OpenAIApi, TO_OPENAI, *case) for case in OPENAI.values()]


@pytest.mark.parametrize(("form", "body", "change", "says"), BROKEN, ids=[*ANTHROPIC, *OPENAI])
def test_a_broken_rule_is_found(form: type[ModelApi], body: Json, change: Change, says: str) -> None:
    """It is counted, and answered as the provider would."""
    api, wrong = form([Says(text="Rome.")]), copy.deepcopy(body)
    change(wrong)
    answer = sent(api, wrong)

    assert isinstance(answer, Fails) and answer.status == 400
    assert any(says in violation for violation in api.violations), api.violations


@pytest.mark.parametrize(("form", "body"), [(AnthropicApi, TO_ANTHROPIC), (OpenAIApi, TO_OPENAI)])
def test_a_request_by_the_rules_is_answered(form: type[ModelApi], body: Json) -> None:
    """So that the tests above find their own rule broken, and no other."""
    api = form([Says(text="Rome.")])

    assert (sent(api, copy.deepcopy(body)), api.violations) == (Says(text="Rome."), [])


@pytest.mark.parametrize("form", [AnthropicApi, OpenAIApi])
def test_a_wrong_key_is_refused_and_no_violation(form: type[ModelApi]) -> None:
    """Whatever the request says."""
    api = form([Says(text="Rome.")])
    answer = api.answer(api.path, {"authorization": "Bearer other"}, {})

    assert isinstance(answer, Fails) and (answer.status, api.violations) == (401, [])
