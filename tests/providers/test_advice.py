"""What to do about a model that does not answer as it should: each cause has its own advice, also within a stream."""

from typing import Any

import pytest

from activities.borders import classify
from activities.providers.messages import Reply
from evals.fakes.model_api import Json, event_bytes, running
from evals.fakes.script import ModelCall, ModelError, ModelReply, Response, Streamed
from tests.providers.asking import ASKED, request
from tests.providers.planning import api_of, model_of
from workflows.faults.fault import Code

WRONG = ("report it", "Fix the tool", "check what answers")
SIGNATURE = "messages.1.content.0: Invalid `signature` in `thinking` block"
FILTERED = "Output blocked by content filtering policy"
AZURE = "The response was filtered due to the prompt triggering Azure OpenAI's content management policy."
WINDOW = "Your input exceeds the context window of this model. Please adjust your input and try again."
VLLM = "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens."
FOUND = (
    "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `text`. When `thinking` is"
    " enabled, a final `assistant` message must start with a thinking block"
)
UNFINISHED = "Could not finish the message because max_tokens or model output limit was reached."
POLICY = "Invalid prompt: your prompt was flagged as potentially violating our usage policy."
LONG = "prompt is too long: 250000 tokens > 200000 maximum"
EFFORT = "Unsupported parameter: 'reasoning.effort' is not supported with this model."
CASES: list[tuple[str, str, Any, Code, str]] = [
    ("anthropic", LONG, None, Code.TOO_LARGE, "split the task"),
    ("anthropic", FILTERED, None, Code.REFUSED, "in other words"),
    ("anthropic", SIGNATURE, None, Code.NEEDS_PERSON, "without that proxy, and start the task again"),
    ("anthropic", "Invalid signature in thinking block", None, Code.NEEDS_PERSON, "without that proxy"),
    ("anthropic", "messages.3.content.0.thinking.signature: Field required", None, Code.NEEDS_PERSON, "that proxy"),
    ("anthropic", FOUND, None, Code.NEEDS_PERSON, "without that proxy"),
    ("openai", SIGNATURE, "invalid_request_body", Code.NEEDS_PERSON, "without that proxy"),
    ("anthropic", "Input is too long for requested model.", None, Code.TOO_LARGE, "split the task"),
    ("openai", UNFINISHED, None, Code.NEEDS_PERSON, "--reply-tokens, or let the model reason less with --effort low"),
    ("openai", POLICY, None, Code.REFUSED, "in other words"),
    ("responses", POLICY, None, Code.REFUSED, "in other words"),
    ("anthropic", "This model does not support the effort parameter.", None, Code.NEEDS_PERSON, "leave out --effort"),
    ("openai", VLLM, None, Code.TOO_LARGE, "split the task"),
    ("openai", VLLM, 400, Code.TOO_LARGE, "split the task"),
    ("openai", AZURE, "content_filter", Code.REFUSED, "in other words"),
    ("openai", AZURE, None, Code.REFUSED, "in other words"),
    ("openai", EFFORT.replace("reasoning.effort", "reasoning_effort"), None, Code.NEEDS_PERSON, "leave out --effort"),
    ("responses", WINDOW, "context_length_exceeded", Code.TOO_LARGE, "split the task"),
    ("responses", WINDOW, None, Code.TOO_LARGE, "split the task"),
    ("responses", AZURE, "content_filter", Code.REFUSED, "in other words"),
    ("responses", LONG, None, Code.TOO_LARGE, "split the task"),
    ("responses", "We cannot read it.", "invalid_encrypted_content", Code.NEEDS_PERSON, "set the earlier key"),
    ("responses", EFFORT, "unsupported_parameter", Code.NEEDS_PERSON, "leave out --effort"),
]
"""What a provider says with the type `invalid_request_error` and a code, and what that means."""


def as_event(provider: str, message: str, code: Any) -> bytes:
    """The error as an event of a stream that began with 200."""
    told = {"type": "invalid_request_error", "message": message, "code": code, "param": None}
    events: dict[str, Json] = {
        "anthropic": {"type": "error", "error": {"type": "invalid_request_error", "message": message}},
        "openai": {"error": told},
        "responses": {**told, "type": "error", "sequence_number": 9},
    }
    return event_bytes(events[provider])


async def said(provider: str, *script: Response) -> Reply | Exception:
    """What came of one request."""
    async with running(api_of(provider, *script)) as api:
        try:
            return await model_of(provider, api).reply(request(ASKED))
        except Exception as error:  # which class is the SDK's business
            return error


@pytest.mark.parametrize("is_in_stream", [False, True], ids=["status", "stream"])
@pytest.mark.parametrize(("provider", "message", "code", "means", "advice"), CASES)
async def test_each_cause_has_its_own_advice(
    provider: str, message: str, code: Any, means: Code, advice: str, is_in_stream: bool
) -> None:
    """The same whether the answer is an error, or breaks off with one."""
    refused = ModelError(400, "invalid_request_error", message, code and str(code))
    broken = Streamed(ModelReply(text="I begin."), events=3, then=as_event(provider, message, code))
    error = await said(provider, broken if is_in_stream else refused)

    assert isinstance(error, Exception)
    fault = classify(error)
    assert (fault.code, advice in fault.reason) == (means, True), fault
    assert not [words for words in WRONG if words in fault.reason]


async def test_an_invalid_request_in_a_stream_is_not_retried(provider: str) -> None:
    """Its type tells that the next one would be rejected, too."""
    broken = Streamed(ModelReply(text="I begin."), events=2, then=as_event(provider, "no", None))
    error = await said(provider, broken)

    assert isinstance(error, Exception)
    expected = Code.SERVER_ERROR if provider == "responses" else Code.MALFORMED_SCHEMA  # its events have no such type
    assert classify(error).code is expected


@pytest.mark.parametrize("arguments", ["", " ", '""', "null", "{}"])
async def test_no_arguments_are_no_arguments(provider: str, arguments: str) -> None:
    """However a server writes them."""
    reply = await said(provider, ModelReply((ModelCall("now", arguments),)))

    assert isinstance(reply, Reply), reply
    assert [(call.name, call.args, call.broken) for call in reply.turn.calls] == [("now", {}, "")]


@pytest.mark.parametrize("end", [{"output": []}, {"output": None}, {}], ids=["empty", "null", "missing"])
async def test_the_items_of_a_stream_are_the_output_that_its_end_leaves_out(end: Json) -> None:
    """Some servers send each item in its own event, and an end without them."""
    made = ModelReply((ModelCall("weather", {"place": "Paris"}),), text="I look.", thinking="Where?")
    api = api_of("responses", made)
    events = [*api.events(api.reply_body(made))]
    response = {key: value for key, value in events[-1]["response"].items() if key != "output"}
    last = {**events[-1], "response": response | end}
    without = Streamed(made, events=len(events) - 1, then=event_bytes(last))
    reply = await said("responses", without)

    assert isinstance(reply, Reply), reply
    assert (reply.turn.text, [call.args for call in reply.turn.calls]) == ("I look.", [{"place": "Paris"}])
    assert [block["type"] for block in reply.turn.blocks] == ["reasoning", "message", "reasoning", "function_call"]
