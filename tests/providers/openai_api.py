"""OpenAI's Chat Completions as strict as it is: https://platform.openai.com/docs/api-reference/chat."""

import json
import re
from collections.abc import Iterator, Mapping

from tests.providers.api import Json, ModelApi, unknown
from tests.providers.script import Call, Fails, Says

FIELDS = {"model", "messages", "tools", "max_completion_tokens"}
MESSAGES = {
    "system": {"role", "content"},
    "user": {"role", "content"},
    "assistant": {"role", "content", "tool_calls"},
    "tool": {"role", "content", "tool_call_id"},
}
NAME = r"[a-zA-Z0-9_-]{1,64}"


class OpenAIApi(ModelApi):
    """`POST /v1/chat/completions`."""

    path = "/v1/chat/completions"

    def authorized(self, headers: Mapping[str, str]) -> bool:
        """The usual header."""
        return headers.get("authorization") == f"Bearer {self.key}"

    def refused(self) -> Fails:
        """As recorded."""
        said = f"Incorrect API key provided: {self.key}. You can find your API key at the usual place."
        return Fails(401, "invalid_request_error", said, "invalid_api_key")

    def schemas(self, body: Json) -> Mapping[str, Json]:
        """By the functions' names."""
        functions = [tool.get("function", {}) for tool in body.get("tools", ())]
        return {function.get("name", ""): function.get("parameters", {}) for function in functions}

    def wrong(self, body: Json, headers: Mapping[str, str]) -> Iterator[str]:
        """All rules."""
        yield from unknown("body", body, FIELDS)
        if body.get("model") != self.model:
            yield f"model: {body.get('model')}"
        for tool in body.get("tools", ()):
            yield from unknown("tools", tool, {"type", "function"})
            yield from unknown("tools", tool.get("function", {}), {"name", "description", "parameters"})
            if tool.get("type") != "function" or not re.fullmatch(NAME, tool.get("function", {}).get("name", "")):
                yield "tools: must be functions with a name"
        yield from self.offered(body)
        yield from _messages(body.get("messages", []))

    def reply(self, said: Says) -> Json:
        """A completion."""
        number = len(self.bodies)
        calls = [_tool_call(call, f"call_{number}_{index}") for index, call in enumerate(said.calls)]
        message = {"role": "assistant", "content": said.text or None, "refusal": said.refusal}
        finish = said.stop or ("tool_calls" if calls else "stop")
        choice = {"index": 0, "message": {**message, **({"tool_calls": calls} if calls else {})}, "logprobs": None}
        return {
            "id": f"chatcmpl-{number}",
            "object": "chat.completion",
            "created": 1_760_000_000,
            "model": self.model,
            "choices": [{**choice, "finish_reason": finish}],
            "usage": {
                "prompt_tokens": 123,
                "completion_tokens": 7,
                "total_tokens": 130,
                "prompt_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 20},
            },
        }

    def error(self, failed: Fails) -> Json:
        """An error."""
        return {"error": {"message": failed.message, "type": failed.type, "param": None, "code": failed.code}}


def _tool_call(call: Call, id: str) -> Json:
    written = call.args if isinstance(call.args, str) else json.dumps(dict(call.args))
    return {"id": id, "type": "function", "function": {"name": call.name, "arguments": written}}


def _messages(messages: list[Json]) -> Iterator[str]:
    roles = [message.get("role") for message in messages]
    if roles[:1] != ["system"] or "system" in roles[1:] or roles[-1:] not in (["user"], ["tool"]):
        yield f"messages: roles {roles}"
    open_calls: list[str] = []
    for index, message in enumerate(messages):
        where, role = f"messages[{index}]", str(message.get("role"))
        yield from unknown(where, message, MESSAGES.get(role, ()))
        if role == "tool":
            if not open_calls or message.get("tool_call_id") != open_calls.pop(0):
                yield f"{where}: messages with role 'tool' must answer 'tool_calls', in their order"
        elif open_calls:
            yield f"{where}: tool_call_ids without response messages: {open_calls}"
        if not isinstance(message.get("content"), str) and not (role == "assistant" and message.get("tool_calls")):
            yield f"{where}: content must be a string"
        if role == "assistant":
            yield from _calls(where, message.get("tool_calls", []))
            open_calls = [call.get("id", "") for call in message.get("tool_calls", [])]
    if open_calls:
        yield f"messages: tool_call_ids without response messages: {open_calls}"


def _calls(where: str, calls: list[Json]) -> Iterator[str]:
    for call in calls:
        yield from unknown(where, call, {"id", "type", "function"})
        function = call.get("function", {})
        if not call.get("id") or len(call["id"]) > 40 or not re.fullmatch(NAME, function.get("name", "")):
            yield f"{where}: tool_calls need an id and a name"
        try:
            json.loads(function["arguments"])
        except (KeyError, TypeError, ValueError):
            yield f"{where}: arguments must be JSON"
