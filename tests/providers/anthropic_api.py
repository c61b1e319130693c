"""Anthropic's Messages API as strict as it is: https://platform.claude.com/docs/en/api/messages."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from tests.providers.api import Json, ModelApi, unknown
from tests.providers.script import Call, Fails, Says

FIELDS = {"model", "max_tokens", "messages", "system", "tools"}
BLOCKS = {
    "text": {"type", "text", "cache_control"},
    "tool_use": {"type", "id", "name", "input", "caller", "cache_control"},
    "tool_result": {"type", "tool_use_id", "content", "is_error", "cache_control"},
}
ID = r"[a-zA-Z0-9_-]+"
MAX_MARKS = 4


class AnthropicApi(ModelApi):
    """`POST /v1/messages`."""

    path = "/v1/messages"

    def authorized(self, headers: Mapping[str, str]) -> bool:
        """Either header carries the key."""
        return self.key in (headers.get("x-api-key"), headers.get("authorization", "").removeprefix("Bearer "))

    def refused(self) -> Fails:
        """As recorded."""
        return Fails(401, "authentication_error", f"invalid x-api-key {self.key}", headers={"x-should-retry": "false"})

    def schemas(self, body: Json) -> Mapping[str, Json]:
        """By the tools' names."""
        return {tool.get("name", ""): tool.get("input_schema", {}) for tool in body.get("tools", ())}

    def wrong(self, body: Json, headers: Mapping[str, str]) -> Iterator[str]:
        """All rules."""
        if "anthropic-version" not in headers:
            yield "anthropic-version: header is required"
        yield from unknown("body", body, FIELDS)
        if body.get("model") != self.model:
            yield f"model: {body.get('model')}"
        if not isinstance(body.get("max_tokens"), int) or body["max_tokens"] < 1:
            yield "max_tokens: required"
        for tool in body.get("tools", ()):
            yield from unknown("tools", tool, {"name", "description", "input_schema", "cache_control"})
            if not re.fullmatch(r"[a-zA-Z0-9_-]{1,128}", tool.get("name", "")):
                yield f"tools: name {tool.get('name')!r}"
        yield from self.offered(body)
        yield from _messages(body.get("messages", []))
        yield from _marks(body)

    def reply(self, said: Says) -> Json:
        """A message."""
        number = len(self.bodies)
        blocks: list[Json] = [{"type": "text", "text": said.text}] if said.text else []
        blocks += [_tool_use(call, f"toolu_{number}_{index}") for index, call in enumerate(said.calls)]
        return {
            "id": f"msg_{number}",
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": blocks,
            "stop_reason": said.stop or ("refusal" if said.refusal else "tool_use" if said.calls else "end_turn"),
            "stop_sequence": None,
            "usage": {
                "input_tokens": 100,
                "cache_creation_input_tokens": 20,
                "cache_read_input_tokens": 3,
                "output_tokens": 7,
                "service_tier": "standard",
            },
        }

    def error(self, failed: Fails) -> Json:
        """An error."""
        details = {"details": {"error_code": failed.code}} if failed.code else {}
        inner = {"type": failed.type, "message": failed.message, **details}
        return {"type": "error", "error": inner, "request_id": "req_0"}


def _tool_use(call: Call, id: str) -> Json:
    return {"type": "tool_use", "id": id, "name": call.name, "input": call.args, "caller": {"type": "direct"}}


def _messages(messages: list[Json]) -> Iterator[str]:
    if not messages or messages[0].get("role") != "user" or messages[-1].get("role") != "user":
        yield "messages: the first and the last must use the user role"
    open_calls: list[str] = []
    for index, message in enumerate(messages):
        where = f"messages.{index}"
        yield from unknown(where, message, {"role", "content"})
        if index and message.get("role") == messages[index - 1].get("role"):
            yield f"{where}: two turns of one role"  # the API merges them; nobody should rely on it
        blocks = _blocks(message)
        if not blocks:
            yield f"{where}: no content"
            continue
        for block in blocks:
            yield from _block(where, block)
        yield from _pairing(where, message["role"], blocks, open_calls)
        open_calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
    if open_calls:
        yield "messages: `tool_use` ids were found without `tool_result` blocks at the end"


def _blocks(message: Json) -> list[Json]:
    """The blocks of a turn; a string is one block of text."""
    content = message.get("content")
    plain: list[Json] = [{"type": "text", "text": content}] if isinstance(content, str) else list(content or [])
    return plain


def _pairing(where: str, role: str, blocks: list[Json], open_calls: list[str]) -> Iterator[str]:
    results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
    if results != open_calls:
        yield f"{where}: `tool_result` blocks {results} do not answer the `tool_use` ids {open_calls}"
    if any(block["type"] != "tool_result" for block in blocks[: len(results)]):
        yield f"{where}: `tool_result` blocks must come first"
    allowed = {"text", "tool_use"} if role == "assistant" else {"text", "tool_result"}
    if any(block["type"] not in allowed for block in blocks):
        yield f"{where}: {role} may not send such a block"


def _block(where: str, block: Json) -> Iterator[str]:
    kind = block.get("type", "")
    if kind not in BLOCKS:
        yield f"{where}: Input tag {kind!r}"
        return
    yield from unknown(where, block, BLOCKS[kind])
    if kind == "text" and not block.get("text", "").strip():
        yield f"{where}: text content blocks must be non-empty"
    if kind == "tool_use" and not (re.fullmatch(ID, block.get("id", "")) and isinstance(block.get("input"), dict)):
        yield f"{where}: tool_use.id should match {ID!r}, and its input be an object"
    if kind == "tool_result" and not isinstance(block.get("content"), str):
        yield f"{where}: tool_result.content"


def _marks(body: Json) -> Iterator[str]:
    """A rule of ours: the stable prefix is marked: tools, system, and the last block before what is new each time."""
    blocks = [block for message in body.get("messages", ()) for block in _blocks(message)]
    system = body.get("system")
    system = system if isinstance(system, list) else []
    parts: Mapping[str, list[Any]] = {"tools": body.get("tools", []), "system": system, "messages": blocks}
    marked = [(name, one) for name, items in parts.items() for one in items if "cache_control" in one]
    if len(marked) > MAX_MARKS:
        yield f"A maximum of {MAX_MARKS} blocks with cache_control may be provided"
    if any(one["cache_control"] != {"type": "ephemeral"} for _, one in marked):
        yield "cache_control: unknown type"
    for name in parts.keys() - {name for name, _ in marked}:
        yield f"{name}: the stable prefix is not marked"
    if blocks and "cache_control" in blocks[-1]:
        yield "messages: what is new each time is marked"
