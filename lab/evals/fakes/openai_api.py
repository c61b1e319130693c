"""OpenAI's Chat Completions with a scripted model, as strict as the real API.

The rules are those of https://platform.openai.com/docs/api-reference/chat.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field

from activities.providers.messages import AssistantTurn, ToolCall, ToolResult, Turn, UserTurn
from evals.fakes import strict_schemas
from evals.fakes.model_api import Json, ModelApi, parts, unknown_fields
from evals.fakes.script import ModelError, ModelReply, ReceivedRequest

FIELDS = {
    *("model", "messages", "tools", "tool_choice", "max_completion_tokens", "response_format"),
    *("stream", "stream_options"),
}
FUNCTION = {"name", "description", "parameters", "strict"}
CHOICES = ("auto", "none", "required")
MESSAGES = {
    "system": {"role", "content"},
    "user": {"role", "content"},
    "assistant": {"role", "content", "tool_calls"},
    "tool": {"role", "content", "tool_call_id"},
}
NAME = r"[a-zA-Z0-9_-]{1,64}"


@dataclass
class OpenAIApi(ModelApi):
    """Answers `POST /v1/chat/completions`."""

    path = "/v1/chat/completions"
    fields: set[str] = field(default_factory=lambda: {*FIELDS})
    vendor_fields: set[str] = field(default_factory=set)
    """The fields that an assistant message may have beyond those of OpenAI's API."""

    def is_authorized(self, headers: Mapping[str, str]) -> bool:
        return headers.get("authorization") == f"Bearer {self.key}"

    def wrong_key(self) -> ModelError:
        message = f"Incorrect API key provided: {self.key}. You can find your API key at the usual place."
        return ModelError(401, "invalid_request_error", message, "invalid_api_key")

    def unknown_model(self, model: str) -> ModelError:
        message = f"The model `{model}` does not exist or you do not have access to it."
        return ModelError(404, "invalid_request_error", message, "model_not_found")

    def window_exceeded(self, tokens: int, window: int) -> ModelError:
        most = f"This model's maximum context length is {window} tokens."
        message = f"{most} However, your messages resulted in {tokens}."
        return ModelError(400, "invalid_request_error", message, "context_length_exceeded")

    def schemas(self, body: Json) -> Mapping[str, Json]:
        functions = [tool.get("function", {}) for tool in body.get("tools", ())]
        return {function.get("name", ""): function.get("parameters", {}) for function in functions}

    def broken_rules(self, body: Json, headers: Mapping[str, str]) -> Iterator[str]:
        for tool in body.get("tools", ()):
            yield from unknown_fields("tools", tool, {"type", "function"})
            yield from unknown_fields("tools", tool.get("function", {}), FUNCTION)
            if tool.get("type") != "function" or not re.fullmatch(NAME, tool.get("function", {}).get("name", "")):
                yield "tools: must be functions with a name"
        yield from choice_mistakes(body)
        response_format = body.get("response_format", {})
        yield from unknown_fields("response_format", response_format, {"type", "json_schema"})
        plain = {**response_format, **response_format.get("json_schema", {})}
        functions = [tool.get("function", {}) for tool in body.get("tools", ())]
        yield from strict_mistakes(functions, {name: plain[name] for name in plain if name != "json_schema"})
        yield from _message_mistakes(body.get("messages", []), self.vendor_fields)

    def read(self, body: Json) -> ReceivedRequest:
        functions = [tool["function"] for tool in body.get("tools", ())]
        system, *messages = body["messages"]
        return ReceivedRequest(
            system=system["content"],
            tools=tuple(function["name"] for function in functions),
            may_call="tools" in body and body.get("tool_choice") != "none",
            turns=tuple(_turns(messages)),
            body=body,
        )

    def reply_body(self, reply: ModelReply) -> Json:
        number, (input_tokens, written) = len(self.bodies), self.usage(reply)
        functions = [{"name": call.name, "arguments": call.written} for call in reply.calls]
        calls = [
            {"id": self.call_id("call", index), "type": "function", "function": function}
            for index, function in enumerate(functions)
        ]
        message: Json = {"role": "assistant", "content": reply.text or None, "refusal": reply.refusal}
        message |= {"annotations": [], **({"tool_calls": calls} if calls else {})}
        finish = reply.stop or ("tool_calls" if calls else "stop")
        choice = {"index": 0, "message": message, "logprobs": None}
        return {
            "id": f"chatcmpl-{number}",
            "object": "chat.completion",
            "created": 1_760_000_000,
            "model": self.model,
            "choices": [{**choice, "finish_reason": finish}],
            "usage": {
                "prompt_tokens": input_tokens,
                "completion_tokens": written,
                "total_tokens": input_tokens + written,
                "prompt_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 20, "audio_tokens": 0},
                "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
            },
            "service_tier": "default",
        }

    def events(self, body: Json) -> Iterator[Json]:
        (choice,), usage = body["choices"], body.pop("usage", None)
        chunk = {**body, "object": "chat.completion.chunk"}
        for delta in [*_deltas(choice["message"]), None]:
            stop = choice["finish_reason"] if delta is None else None
            yield {**chunk, "choices": [{"index": 0, "delta": delta or {}, "finish_reason": stop}]}
        if usage and (self.bodies[-1].get("stream_options") or {}).get("include_usage"):
            yield {**chunk, "choices": [], "usage": usage}
        yield {}

    def error_body(self, error: ModelError) -> Json:
        return {"error": {"message": error.message, "type": error.type, "param": None, "code": error.code}}


def _deltas(message: Json) -> Iterator[Json]:
    yield {"role": "assistant", "content": ""}
    yield from ({"content": part} for part in parts(message["content"] or ""))
    yield from ({"refusal": part} for part in parts(message["refusal"] or ""))
    for index, call in enumerate(message.get("tool_calls", ())):
        function = call["function"]
        yield {"tool_calls": [{**call, "index": index, "function": {**function, "arguments": ""}}]}
        for part in parts(function["arguments"]):
            yield {"tool_calls": [{"index": index, "function": {"arguments": part}}]}


def _turns(messages: list[Json]) -> Iterator[Turn]:
    # Each result is a message of its own here, but a part of the next user turn in Replan.
    results: list[ToolResult] = []
    for message in messages:
        if message["role"] == "tool":
            results.append(ToolResult(message["tool_call_id"], message["content"]))
            continue
        if message["role"] == "user" or results:
            yield UserTurn(message["content"] if message["role"] == "user" else "", tuple(results))
        results = []
        if message["role"] == "assistant":
            yield AssistantTurn(message.get("content") or "", tuple(map(_call, message.get("tool_calls", ()))))
    if results:
        yield UserTurn(results=tuple(results))


def _call(call: Json) -> ToolCall:
    return ToolCall(call["id"], call["function"]["name"], json.loads(call["function"]["arguments"]))


def strict_mistakes(functions: Iterable[Json], format: Json) -> Iterator[str]:
    """Yield the mistakes in strict functions and in the output format: `format`, as in the Responses API, or empty."""
    for function in functions:
        if function.get("strict"):
            for mistake in strict_schemas.openai_mistakes(function["parameters"]):
                yield f"Invalid schema for function {function['name']!r}: {mistake}"
    if not format:
        return
    yield from unknown_fields("format", format, {"type", "name", "description", "schema", "strict"})
    if format.get("type") != "json_schema" or not re.fullmatch(NAME, format.get("name", "")):
        yield "format: must be a json_schema with a name"
    for mistake in strict_schemas.openai_mistakes(format.get("schema", {})) if format.get("strict") else ():
        yield f"Invalid schema for response_format {format['name']!r}: {mistake}"


def choice_mistakes(body: Json) -> Iterator[str]:
    """Yield the mistakes in the `tool_choice` of a request, and in an empty list of tools."""
    choice = body.get("tool_choice")
    if choice is not None and not body.get("tools"):
        yield "'tool_choice' is only allowed when 'tools' are specified"
    if choice is not None and choice not in CHOICES:
        yield f"tool_choice: {choice}"
    if body.get("tools") == []:
        yield "'tools': [] is too short"


def _message_mistakes(messages: list[Json], vendor_fields: Set[str]) -> Iterator[str]:
    roles = [message.get("role") for message in messages]
    if roles[:1] != ["system"] or "system" in roles[1:] or roles[-1:] not in (["user"], ["tool"]):
        yield f"messages: roles {roles}"
    open_calls: list[str] = []
    for index, message in enumerate(messages):
        where, role = f"messages[{index}]", str(message.get("role"))
        known = {*MESSAGES.get(role, ()), *(vendor_fields if role == "assistant" else ())}
        yield from unknown_fields(where, message, known)
        if role == "tool":
            if not open_calls or message.get("tool_call_id") != open_calls.pop(0):
                yield f"{where}: messages with role 'tool' must answer 'tool_calls', in their order"
        elif open_calls:
            yield f"{where}: tool_call_ids without response messages: {open_calls}"
        if not isinstance(message.get("content"), str) and not (role == "assistant" and message.get("tool_calls")):
            yield f"{where}: content must be a string"
        if role == "assistant":
            yield from _call_mistakes(where, message.get("tool_calls", []))
            open_calls = [call.get("id", "") for call in message.get("tool_calls", [])]
    if open_calls:
        yield f"messages: tool_call_ids without response messages: {open_calls}"


def _call_mistakes(where: str, calls: list[Json]) -> Iterator[str]:
    for call in calls:
        yield from unknown_fields(where, call, {"id", "type", "function"})
        function = call.get("function", {})
        if not call.get("id") or len(call["id"]) > 40 or not re.fullmatch(NAME, function.get("name", "")):
            yield f"{where}: tool_calls need an id and a name"
        try:
            json.loads(function["arguments"])
        except (KeyError, TypeError, ValueError):
            yield f"{where}: arguments must be JSON"
