"""Replies as bytes, in the words of each API, also those that no real server should send; and a server of them."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from activities.providers.adapter import AdapterOptions, Endpoint
from activities.providers.anthropic import AnthropicModel
from activities.providers.messages import LanguageModel, Reply
from activities.providers.openai import OpenAIModel
from evals.fakes.model_api import KEY, MODEL, Json, ModelApi, event_bytes, json_answer, running
from evals.fakes.openai_api import OpenAIApi
from evals.fakes.script import ModelError, RawBytes, Response
from tests.providers.asking import ASKED, answered, request

Rule = Callable[[list[Json]], str]
"""Says what is wrong with the messages of a request; an empty text if nothing is."""
DEEPSEEK = "The `reasoning_content` in the thinking mode must be passed back to the API."
GEMINI = "Function call is missing a thought_signature in functionCall parts."
MISTRAL = "body.messages.2.assistant.reasoning_content: Extra inputs are not permitted"


@dataclass
class Recorder(OpenAIApi):
    """Has no rules but `rule`; `bodies` are the requests."""

    rule: Rule = lambda _messages: ""

    def answer(self, path: str, headers: Mapping[str, str], body: Json) -> Response:
        if wrong := self.rule(body.get("messages", [])):
            return ModelError(400, "invalid_request_error", wrong)
        scripted = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        assert isinstance(scripted, RawBytes)
        return scripted


def model_at(provider: str, api: ModelApi, options: AdapterOptions | None = None, model: str = MODEL) -> LanguageModel:
    """The adapter of a server."""
    if provider == "anthropic":
        return AnthropicModel(model, Endpoint(KEY, api.url, 3))
    found = options or AdapterOptions({f"openai:{model}": "responses"} if provider == "responses" else {})
    return OpenAIModel(model, Endpoint(KEY, f"{api.url}/v1", 3), found)


async def second_request(provider: str, raw: RawBytes, rule: Rule = lambda _messages: "") -> tuple[Reply, list[Json]]:
    """The reply to a first request, and the turns of the second one, in the words of the API."""
    async with running(Recorder([raw], rule=rule)) as api:
        model = model_at(provider, api)
        reply = await model.reply(request(ASKED))
        await model.reply(request(answered(reply)))
    return reply, api.bodies[-1]["input" if provider == "responses" else "messages"]


def deltas(*each: Json, stop: str = "stop") -> RawBytes:
    """A stream of Chat Completions with these deltas."""
    return stream(*map(chunk, each), chunk({}, stop), used(), {})


def message(whole: Json, stop: str = "stop") -> RawBytes:
    """The same as one JSON."""
    return whole_reply({"index": 0, "message": {"role": "assistant", **whole}, "finish_reason": stop})


def whole_reply(choice: Json) -> RawBytes:
    """One JSON of Chat Completions with this choice."""
    return body(json.dumps({"id": "c", "choices": [choice], "usage": used()["usage"]}))


def blocks(*content: Json, stop: str = "end_turn") -> RawBytes:
    """One JSON of Messages with these blocks."""
    counts = {"input_tokens": 100, "output_tokens": 20}
    return body(json.dumps({**START["message"], "content": [*content], "stop_reason": stop, "usage": counts}))


def events_of(*parts: Json, stop: str = "end_turn") -> RawBytes:
    """A stream of Messages with these events of its blocks."""
    return stream(START, *parts, total(stop), STOP)


STREAM = {"content-type": "text/event-stream"}


def stream(*events: Json | bytes) -> RawBytes:
    """A stream of these events; `{}` stands for `[DONE]`, and bytes are sent as they are."""
    body = b"".join(event if isinstance(event, bytes) else event_bytes(event) for event in events)
    return RawBytes(json_answer(200, body, **STREAM))


def body(text: str) -> RawBytes:
    """A whole JSON body in place of a stream."""
    return RawBytes(json_answer(200, text.encode()))


def chunk(delta: Json | None = None, stop: Any = None, **more: Any) -> Json:
    """A chunk of Chat Completions; without a delta it has no choices."""
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": stop}]
    return {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices, **more}


def call_delta(arguments: Any, **more: Any) -> Json:
    """A delta of Chat Completions with a whole call of `weather`."""
    function = {"name": "weather", "arguments": arguments}
    return {"tool_calls": [{"index": 0, "id": "c", "type": "function", "function": function, **more}]}


def used(input_tokens: int = 100, output: int = 20, **more: Any) -> Json:
    """A chunk of Chat Completions that has only the usage."""
    counts = {"prompt_tokens": input_tokens, "completion_tokens": output, "total_tokens": input_tokens + output, **more}
    return chunk(usage=counts)


START: Json = {
    "type": "message_start",
    "message": {
        **{"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": None},
        "usage": {"input_tokens": 100, "output_tokens": 1},
    },
}
STOP: Json = {"type": "message_stop"}


def begun(index: int, id: str = "toolu_1", **more: Any) -> Json:
    """The beginning of a block of Messages that calls `weather`."""
    block = {"type": "tool_use", "id": id, "name": "weather", "input": {}, **more}
    return {"type": "content_block_start", "index": index, "content_block": block}


def piece(index: int, arguments: str) -> Json:
    """A part of the arguments of such a call."""
    return {
        "type": "content_block_delta",
        "index": index,
        "delta": {"type": "input_json_delta", "partial_json": arguments},
    }


def ended(index: int) -> Json:
    """The end of a block of Messages."""
    return {"type": "content_block_stop", "index": index}


def text(index: int, words: str) -> tuple[Json, ...]:
    """A whole block of text of Messages."""
    block = {"type": "content_block_start", "index": index, "content_block": {"type": "text", "text": ""}}
    delta = {"type": "content_block_delta", "index": index, "delta": {"type": "text_delta", "text": words}}
    return block, delta, ended(index)


def total(reason: str | None, usage: Json | None = None) -> Json:
    """The event of Messages with the reason to stop and the count of tokens."""
    return {
        "type": "message_delta",
        "delta": {"stop_reason": reason, "stop_sequence": None},
        "usage": {"output_tokens": 20} if usage is None else usage,
    }


def function_call(arguments: Any, status: str | None = "completed", id: str = "call_1") -> Json:
    """An item of Responses that calls `weather`."""
    item = {"type": "function_call", "id": f"fc_{id}", "call_id": id, "name": "weather", "arguments": arguments}
    return {**item, **({"status": status} if status else {})}


def added(item: Json, at: int = 0) -> Json:
    """The beginning of an item of Responses."""
    return {"type": "response.output_item.added", "output_index": at, "item": {**item, "arguments": ""}}


def argued(arguments: str, at: int = 0) -> Json:
    """A part of the arguments of such an item."""
    return {"type": "response.function_call_arguments.delta", "output_index": at, "item_id": "x", "delta": arguments}


def done(item: Json, at: int = 0) -> Json:
    """The end of an item of Responses."""
    return {"type": "response.output_item.done", "output_index": at, "item": item}


def response(*items: Json, kind: str = "completed", status: str | None = "completed") -> Json:
    """The last event of Responses."""
    whole = {"id": "r", "object": "response", "created_at": 1, "model": "m", "status": status, "output": [*items]}
    usage = {"input_tokens": 100, "output_tokens": 20, "total_tokens": 120}
    return {"type": f"response.{kind}", "response": {**whole, "usage": usage}}


def error_event(provider: str, word: str, message: str = "no", code: str | None = None) -> bytes:
    """The event of an error, in a stream that began with 200; each API tells its type, its code, or both."""
    found = {"message": message, "code": code, "param": None}
    events: dict[str, Json] = {
        "anthropic": {"type": "error", "error": {"type": word, "message": message}},
        "openai": {"error": {**found, "type": word}},
        "responses": {**found, "type": "error", "sequence_number": 99},
    }
    return event_bytes(events[provider])


def server_error(provider: str) -> bytes:
    """An error of the server itself, which time cures."""
    word = "overloaded_error" if provider == "anthropic" else "server_error"
    return error_event(provider, word, code=word)


def calling(provider: str, arguments: str, *, as_object: bool = False, is_streamed: bool = True) -> RawBytes:
    """A reply that calls `weather` with arguments that are written so, as a text or (`as_object`) as JSON itself."""
    value = arguments if as_object else json.dumps(arguments)
    match provider:
        case "anthropic" if is_streamed and not as_object:
            return stream(START, begun(0), piece(0, arguments), ended(0), total("tool_use"), STOP)
        case "anthropic" if is_streamed:
            events = [START, begun(0, input="@"), ended(0), total("tool_use"), STOP]
        case "anthropic":
            block = begun(0, input="@")["content_block"]
            message = {**START["message"], "content": [block], "stop_reason": "tool_use"}
            return body(json.dumps(message).replace('"@"', value))
        case "openai" if is_streamed:
            events = [chunk(call_delta("@")), chunk({}, "tool_calls"), used(), {}]
        case "openai":
            call = call_delta("@")["tool_calls"]
            choice = {"index": 0, "message": {"role": "assistant", "tool_calls": call}, "finish_reason": "tool_calls"}
            return body(json.dumps({"choices": [choice], "usage": used()["usage"]}).replace('"@"', value))
        case _:
            item = function_call("@")
            if not is_streamed:
                return body(json.dumps(response(item)["response"]).replace('"@"', value))
            events = [added(item), done(item), response(item)]
    return stream(*(event_bytes(event).replace(b'"@"', value.encode()) for event in events))


WHOLE: Mapping[str, tuple[Json | bytes, ...]] = {
    "openai": (chunk({"role": "assistant", "content": "Ro"}), chunk({"content": "me."}), chunk({}, "stop"), used(), {}),
    "anthropic": (START, *text(0, "Rome."), total("end_turn"), STOP),
    "responses": (
        {"type": "response.output_text.delta", "item_id": "m", "output_index": 0, "content_index": 0, "delta": "Rome."},
        response(
            {
                **{"type": "message", "id": "m", "role": "assistant", "status": "completed"},
                "content": [{"type": "output_text", "text": "Rome.", "annotations": []}],
            }
        ),
    ),
}
"""The events of a reply that says `Rome.`, and counts 100 and 20 tokens."""
