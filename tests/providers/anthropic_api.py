"""Anthropic's Messages API as strict as it is: https://platform.claude.com/docs/en/api/messages."""

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from activities.llm.turns import AssistantTurn, ToolCall, ToolResult, Turn, UserTurn
from activities.prompts import SUMMARISED
from tests.providers.api import Json, ModelApi, unknown
from tests.providers.heard import Heard
from tests.providers.script import Call, Fails, Says

FIELDS = {"model", "max_tokens", "messages", "system", "tools", "tool_choice"}
CHOICES: tuple[Json, ...] = ({"type": "auto"}, {"type": "none"})
"""A call cannot be forced: the newest models refuse that."""
BLOCKS = {
    "thinking": {"type", "thinking", "signature"},
    "text": {"type", "text", "cache_control"},
    "tool_use": {"type", "id", "name", "input", "caller", "cache_control"},
    "tool_result": {"type", "tool_use_id", "content", "is_error", "cache_control"},
}
ID = r"[a-zA-Z0-9_-]+"
NAME = r"[a-zA-Z0-9_-]{1,128}"
MAX_MARKS = 4


@dataclass
class AnthropicApi(ModelApi):
    """`POST /v1/messages`."""

    path = "/v1/messages"
    fields: set[str] = field(default_factory=lambda: {*FIELDS})
    thoughts: dict[str, list[Json]] = field(default_factory=dict)
    """What the model thought before a call, by the call's id."""

    def authorized(self, headers: Mapping[str, str]) -> bool:
        """Either header carries the key."""
        return self.key in (headers.get("x-api-key"), headers.get("authorization", "").removeprefix("Bearer "))

    def refused(self) -> Fails:
        """As recorded."""
        return Fails(401, "authentication_error", f"invalid x-api-key {self.key}", headers={"x-should-retry": "false"})

    def no_model(self, model: str) -> Fails:
        """As recorded."""
        return Fails(404, "not_found_error", f"model: {model}")

    def overlong(self, tokens: int, window: int) -> Fails:
        """In its own words, which are all that tells it from other mistakes."""
        return Fails(400, "invalid_request_error", f"prompt is too long: {tokens} tokens > {window} maximum")

    def schemas(self, body: Json) -> Mapping[str, Json]:
        """By the tools' names."""
        return {tool.get("name", ""): tool.get("input_schema", {}) for tool in body.get("tools", ())}

    def wrong(self, body: Json, headers: Mapping[str, str]) -> Iterator[str]:
        """All rules."""
        if "anthropic-version" not in headers:
            yield "anthropic-version: header is required"
        yield from unknown("body", body, self.fields)
        if body.get("model") != self.model:
            yield f"model: {body.get('model')}"
        if not isinstance(body.get("max_tokens"), int) or body["max_tokens"] < 1:
            yield "max_tokens: required"
        for tool in body.get("tools", ()):
            yield from unknown("tools", tool, {"name", "description", "input_schema", "cache_control"})
            if not re.fullmatch(NAME, tool.get("name", "")):
                yield f"tools: name {tool.get('name')!r}"
        yield from _choice(body)
        yield from self.offered(body)
        yield from _messages(body.get("messages", []))
        yield from self._forgotten(body.get("messages", []))
        yield from _marks(body)

    def heard(self, body: Json) -> Heard:
        """The turns, blocks by blocks."""
        return Heard(
            system="\n".join(block["text"] for block in _blocks({"content": body.get("system")})),
            tools=tuple(tool["name"] for tool in body.get("tools", ())),
            may_call="tools" in body and body.get("tool_choice") != {"type": "none"},
            turns=tuple(_turn(message) for message in body["messages"]),
            body=body,
        )

    def reply(self, said: Says) -> Json:
        """A message."""
        number, (told, written) = len(self.bodies), self.used(said)
        blocks: list[Json] = [_thinking(said.thinking)] if said.thinking else []
        blocks += [{"type": "text", "text": said.text}] if said.text else []
        calls = [_tool_use(call, self.id("toolu", index)) for index, call in enumerate(said.calls)]
        if all(re.fullmatch(NAME, call["name"]) for call in calls):  # else the turn cannot come back as it is
            self.thoughts |= {call["id"]: [block for block in blocks if block["type"] == "thinking"] for call in calls}
        blocks += calls
        return {
            "id": f"msg_{number}",
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": blocks,
            "stop_reason": said.stop or ("refusal" if said.refusal else "tool_use" if said.calls else "end_turn"),
            "stop_sequence": None,
            "usage": {
                "input_tokens": told - 23,
                "cache_creation_input_tokens": 20,
                "cache_read_input_tokens": 3,
                "cache_creation": {"ephemeral_5m_input_tokens": 20, "ephemeral_1h_input_tokens": 0},
                "output_tokens": written,
                "service_tier": "standard",
                "inference_geo": "not_available",
            },
        }

    def _forgotten(self, messages: list[Json]) -> Iterator[str]:
        """Thoughts that did not come back, unchanged, with the calls that they led to.

        Where a summary stands for older turns, thoughts of the time before it are left out.
        """
        is_summarised = any(SUMMARISED in block.get("text", "") for one in messages[:1] for block in _blocks(one))
        for index, message in enumerate(messages):
            blocks = _blocks(message)
            thinking = [block for block in blocks if block["type"] == "thinking"]
            for use in (block for block in blocks if block["type"] == "tool_use"):
                if is_summarised and not thinking:
                    continue
                if self.thoughts.get(use.get("id", ""), thinking) != thinking:
                    yield f"messages.{index}: `thinking` blocks in the assistant message cannot be modified"
                    break

    def error(self, failed: Fails) -> Json:
        """An error."""
        details = {"details": {"error_code": failed.code}} if failed.code else {}
        inner = {"type": failed.type, "message": failed.message, **details}
        return {"type": "error", "error": inner, "request_id": "req_0"}


def _thinking(thought: str) -> Json:
    return {"type": "thinking", "thinking": thought, "signature": _signed(thought)}


def _signed(thought: str) -> str:
    return hashlib.sha256(thought.encode()).hexdigest()


def _turn(message: Json) -> Turn:
    blocks = _blocks(message)
    text = "\n".join(block["text"] for block in blocks if block["type"] == "text")
    if message["role"] == "assistant":
        uses = [block for block in blocks if block["type"] == "tool_use"]
        return AssistantTurn(text, tuple(ToolCall(use["id"], use["name"], use["input"]) for use in uses))
    results = [block for block in blocks if block["type"] == "tool_result"]
    return UserTurn(text, tuple(_result(block) for block in results))


def _result(block: Json) -> ToolResult:
    return ToolResult(block["tool_use_id"], block["content"], bool(block.get("is_error")))


def _choice(body: Json) -> Iterator[str]:
    choice = body.get("tool_choice")
    if choice is not None and not body.get("tools"):
        yield "tool_choice: may only be specified while providing tools"
    if choice is not None and choice not in CHOICES:
        yield f"tool_choice: {choice} is not supported by this model"
    if body.get("tools") == []:
        yield "tools: an empty list"


def _tool_use(call: Call, id: str) -> Json:
    return {"type": "tool_use", "id": id, "name": call.name, "input": call.args, "caller": {"type": "direct"}}


def _messages(messages: list[Json]) -> Iterator[str]:
    if not messages or messages[0].get("role") != "user" or messages[-1].get("role") != "user":
        yield "messages: the first and the last must use the user role"
    open_calls: list[str] = []
    seen = set[str]()
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
        if len({*open_calls}) < len(open_calls) or seen & {*open_calls}:
            yield f"{where}: `tool_use` ids must be unique"
        seen |= {*open_calls}


def _blocks(message: Json) -> list[Json]:
    """The blocks of a turn; a string is one block of text."""
    content = message.get("content")
    plain: list[Json] = [{"type": "text", "text": content}] if isinstance(content, str) else list(content or [])
    return plain


def _pairing(where: str, role: str, blocks: list[Json], open_calls: list[str]) -> Iterator[str]:
    results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
    missing = [id for id in open_calls if id not in results]
    if missing:
        yield f"{where}: `tool_use` ids were found without `tool_result` blocks immediately after: {missing}"
    if [id for id in results if id not in open_calls]:
        yield f"{where}: unexpected `tool_use_id` found in `tool_result` blocks: {results}"
    if not missing and results != open_calls:
        yield f"{where}: `tool_result` blocks {results} are not in the order of {open_calls}"  # a rule of ours
    if any(block["type"] != "tool_result" for block in blocks[: len(results)]):
        yield f"{where}: `tool_result` blocks must come first"
    allowed = {"thinking", "text", "tool_use"} if role == "assistant" else {"text", "tool_result"}
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
    if kind == "tool_use" and not re.fullmatch(NAME, block.get("name", "")):
        yield f"{where}: tool_use.name should match {NAME!r}"
    if kind == "thinking" and block.get("signature") != _signed(block.get("thinking", "")):
        yield f"{where}: Invalid `signature` in `thinking` block"
    if kind == "tool_result" and not isinstance(block.get("content"), str):
        yield f"{where}: tool_result.content"


def _marks(body: Json) -> Iterator[str]:
    """A rule of ours: what begins the next request, too, is marked: tools, system, and the last block of all turns."""
    blocks = [block for message in body.get("messages", ()) for block in _blocks(message)]
    system = body.get("system")
    system = system if isinstance(system, list) else []
    parts: Mapping[str, list[Any]] = {"tools": body.get("tools", []), "system": system, "messages": blocks}
    marked = [(name, one) for name, items in parts.items() for one in items if "cache_control" in one]
    if len(marked) > MAX_MARKS:
        yield f"A maximum of {MAX_MARKS} blocks with cache_control may be provided"
    if any(one["cache_control"] != {"type": "ephemeral"} for _, one in marked):
        yield "cache_control: unknown type"
    if not body.get("tools") or (not marked and len(body.get("messages", ())) == 1):
        return  # whoever asks once has no prefix that comes again
    for name, items in parts.items():
        if not (items and "cache_control" in items[-1]):
            yield f"{name}: the end is not marked for the cache"
