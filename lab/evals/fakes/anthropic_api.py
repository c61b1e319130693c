"""Anthropic's Messages API with a scripted model, as strict as the real API.

The rules are those of https://platform.claude.com/docs/en/api/messages.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from activities.planning.prompts import SUMMARISED
from activities.providers.messages import AssistantTurn, ToolCall, ToolResult, Turn, UserTurn
from evals.fakes import strict_schemas
from evals.fakes.model_api import Json, ModelApi, parts, unknown_fields
from evals.fakes.script import ModelCall, ModelError, ModelReply, ReceivedRequest

FIELDS = {"model", "max_tokens", "messages", "system", "tools", "tool_choice", "output_config", "stream"}
TOOL = {"name", "description", "input_schema", "strict", "cache_control"}
CHOICES: tuple[Json, ...] = ({"type": "auto"}, {"type": "none"})
"""The accepted values of `tool_choice`: the newest models reject a request that forces a call."""
BLOCKS = {
    "thinking": {"type", "thinking", "signature"},
    "text": {"type", "text", "cache_control"},
    "tool_use": {"type", "id", "name", "input", "caller", "cache_control"},
    "tool_result": {"type", "tool_use_id", "content", "is_error", "cache_control"},
}
ID = r"[a-zA-Z0-9_-]+"
NAME = r"[a-zA-Z0-9_-]{1,128}"
COMMON_NAME = r"[a-zA-Z0-9_-]{1,64}"
"""The pattern of tool names that every provider accepts."""
EFFORTS = ("low", "medium", "high", "xhigh", "max")
MAX_MARKS = 4
"""How many blocks of a request may carry `cache_control`."""


@dataclass
class AnthropicApi(ModelApi):
    """Answers `POST /v1/messages`."""

    path = "/v1/messages"
    fields: set[str] = field(default_factory=lambda: {*FIELDS})
    thoughts: dict[str, list[Json]] = field(default_factory=dict)
    """For each call, by its id: the thinking blocks of the reply that made the call."""

    def is_authorized(self, headers: Mapping[str, str]) -> bool:
        return self.key in (headers.get("x-api-key"), headers.get("authorization", "").removeprefix("Bearer "))

    def wrong_key(self) -> ModelError:
        message = f"invalid x-api-key {self.key}"
        return ModelError(401, "authentication_error", message, headers={"x-should-retry": "false"})

    def unknown_model(self, model: str) -> ModelError:
        return ModelError(404, "not_found_error", f"model: {model}")

    def window_exceeded(self, tokens: int, window: int) -> ModelError:
        # The real API has no error code for this, only these words.
        return ModelError(400, "invalid_request_error", f"prompt is too long: {tokens} tokens > {window} maximum")

    def schemas(self, body: Json) -> Mapping[str, Json]:
        return {tool.get("name", ""): tool.get("input_schema", {}) for tool in body.get("tools", ())}

    def broken_rules(self, body: Json, headers: Mapping[str, str]) -> Iterator[str]:
        if "anthropic-version" not in headers:
            yield "anthropic-version: header is required"
        if not isinstance(body.get("max_tokens"), int) or body["max_tokens"] < 1:
            yield "max_tokens: required"
        for tool in body.get("tools", ()):
            yield from unknown_fields("tools", tool, TOOL)
            if not re.fullmatch(NAME, tool.get("name", "")):
                yield f"tools: name {tool.get('name')!r}"
        yield from _choice_mistakes(body)
        yield from _strict_mistakes(body)
        yield from _turn_mistakes(body.get("messages", []))
        yield from self._forgotten(body.get("messages", []))
        yield from _cache_mistakes(body)

    def read(self, body: Json) -> ReceivedRequest:
        return ReceivedRequest(
            system="\n".join(block["text"] for block in _blocks_of({"content": body.get("system")})),
            tools=tuple(tool["name"] for tool in body.get("tools", ())),
            may_call="tools" in body and body.get("tool_choice") != {"type": "none"},
            turns=tuple(_turn(message) for message in body["messages"]),
            body=body,
        )

    def reply_body(self, reply: ModelReply) -> Json:
        number, (input_tokens, written) = len(self.bodies), self.usage(reply)
        thinking = {"type": "thinking", "thinking": reply.thinking, "signature": _signature(reply.thinking)}
        blocks: list[Json] = [thinking] if reply.thinking else []
        blocks += [{"type": "text", "text": reply.text}] if reply.text else []
        calls = [_tool_use(call, self.call_id("toolu", index)) for index, call in enumerate(reply.calls)]
        if all(re.fullmatch(COMMON_NAME, call["name"]) for call in calls):  # else the turn is not sent back unchanged
            self.thoughts |= {call["id"]: [block for block in blocks if block["type"] == "thinking"] for call in calls}
        blocks += calls
        return {
            "id": f"msg_{number}",
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": blocks,
            "stop_reason": reply.stop or ("refusal" if reply.refusal else "tool_use" if reply.calls else "end_turn"),
            "stop_sequence": None,
            "usage": {
                # The real API counts the tokens of its cache, here 20 + 3, apart from `input_tokens`.
                "input_tokens": input_tokens - 23,
                "cache_creation_input_tokens": 20,
                "cache_read_input_tokens": 3,
                "cache_creation": {"ephemeral_5m_input_tokens": 20, "ephemeral_1h_input_tokens": 0},
                "output_tokens": written,
                "service_tier": "standard",
                "inference_geo": "not_available",
            },
        }

    def events(self, body: Json) -> Iterator[Json]:
        usage, end = body.get("usage"), {name: body[name] for name in ("stop_reason", "stop_sequence")}
        begun = {**body, "content": [], "stop_reason": None}
        begun |= {"usage": {**usage, "output_tokens": 1}} if usage else {}
        yield {"type": "message_start", "message": begun}
        for index, block in enumerate(body["content"]):
            empty, deltas = _begun(block)
            yield {"type": "content_block_start", "index": index, "content_block": empty}
            yield {"type": "ping"}
            yield from ({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas)
            yield {"type": "content_block_stop", "index": index}
        counted = {"output_tokens": usage["output_tokens"], "input_tokens": usage["input_tokens"]} if usage else {}
        yield {"type": "message_delta", "delta": end, "usage": counted}
        yield {"type": "message_stop"}

    def _forgotten(self, messages: list[Json]) -> Iterator[str]:
        """A mistake for each turn that repeats a call, but changes or lacks the thinking blocks of the call's reply.

        After a summary of the conversation, a request may leave thinking blocks out.
        """
        first = _blocks_of(messages[0]) if messages else []
        is_summarised = any(SUMMARISED in block.get("text", "") for block in first)
        for index, message in enumerate(messages):
            blocks = _blocks_of(message)
            thinking = [block for block in blocks if block["type"] == "thinking"]
            for use in (block for block in blocks if block["type"] == "tool_use"):
                if is_summarised and not thinking:
                    continue
                if self.thoughts.get(use.get("id", ""), thinking) != thinking:
                    yield f"messages.{index}: `thinking` blocks in the assistant message cannot be modified"
                    break

    def error_body(self, error: ModelError) -> Json:
        details = {"details": {"error_code": error.code}} if error.code else {}
        inner = {"type": error.type, "message": error.message, **details}
        return {"type": "error", "error": inner, "request_id": "req_0"}


def _turn(message: Json) -> Turn:
    blocks = _blocks_of(message)
    text = "\n".join(block["text"] for block in blocks if block["type"] == "text")
    if message["role"] == "assistant":
        uses = [block for block in blocks if block["type"] == "tool_use"]
        return AssistantTurn(text, tuple(ToolCall(use["id"], use["name"], use["input"]) for use in uses))
    results = [block for block in blocks if block["type"] == "tool_result"]
    read = (ToolResult(block["tool_use_id"], block["content"], bool(block.get("is_error"))) for block in results)
    return UserTurn(text, tuple(read))


def _tool_use(call: ModelCall, id: str) -> Json:
    return {"type": "tool_use", "id": id, "name": call.name, "input": call.args, "caller": {"type": "direct"}}


def _begun(block: Json) -> tuple[Json, list[Json]]:
    """The empty block with which the stream of a block begins, and the deltas that follow."""
    match block["type"]:
        case "text":
            return {**block, "text": ""}, [{"type": "text_delta", "text": part} for part in parts(block["text"])]
        case "thinking":
            thought = [{"type": "thinking_delta", "thinking": part} for part in parts(block["thinking"])]
            signed = {"type": "signature_delta", "signature": block["signature"]}
            return {**block, "thinking": "", "signature": ""}, [*thought, signed]
        case _:
            written = block["input"] if isinstance(block["input"], str) else json.dumps(dict(block["input"]))
            deltas = [{"type": "input_json_delta", "partial_json": part} for part in ["", *parts(written)]]
            return {**block, "input": {}}, deltas


def _strict_mistakes(body: Json) -> Iterator[str]:
    config = body.get("output_config", {})
    formats = [config["format"]] if "format" in config else []
    yield from unknown_fields("output_config", config, {"format", "effort"})
    if config.get("effort", EFFORTS[0]) not in EFFORTS:
        yield f"output_config.effort: Input should be one of {', '.join(EFFORTS)}, not {config['effort']!r}"
    for output_format in formats:
        yield from unknown_fields("output_config.format", output_format, {"type", "schema"})
        if output_format.get("type") != "json_schema":
            yield f"output_config.format.type: {output_format.get('type')}"
    tools = [tool["input_schema"] for tool in body.get("tools", ()) if tool.get("strict")]
    yield from strict_schemas.anthropic_mistakes(tools, [output_format.get("schema", {}) for output_format in formats])


def _choice_mistakes(body: Json) -> Iterator[str]:
    choice = body.get("tool_choice")
    if choice is not None and not body.get("tools"):
        yield "tool_choice: may only be specified while providing tools"
    if choice is not None and choice not in CHOICES:
        yield f"tool_choice: {choice} is not supported by this model"
    if body.get("tools") == []:
        yield "tools: an empty list"


def _signature(thought: str) -> str:
    # Stands for the provider's signature of a thinking block.
    return hashlib.sha256(thought.encode()).hexdigest()


def _turn_mistakes(messages: list[Json]) -> Iterator[str]:
    if not messages or messages[0].get("role") != "user" or messages[-1].get("role") != "user":
        yield "messages: the first and the last must use the user role"
    open_calls: list[str] = []
    call_ids = set[str]()
    for index, message in enumerate(messages):
        where = f"messages.{index}"
        yield from unknown_fields(where, message, {"role", "content"})
        if index and message.get("role") == messages[index - 1].get("role"):
            yield f"{where}: two turns of one role"  # the API merges them; nobody should rely on it
        blocks = _blocks_of(message)
        if not blocks:
            yield f"{where}: no content"
            continue
        for block in blocks:
            yield from _block_mistakes(where, block)
        yield from _pairing_mistakes(where, message["role"], blocks, open_calls)
        open_calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
        if len({*open_calls}) < len(open_calls) or call_ids & {*open_calls}:
            yield f"{where}: `tool_use` ids must be unique"
        call_ids |= {*open_calls}


def _blocks_of(message: Json) -> list[Json]:
    content = message.get("content")
    plain: list[Json] = [{"type": "text", "text": content}] if isinstance(content, str) else list(content or [])
    return plain


def _pairing_mistakes(where: str, role: str, blocks: list[Json], open_calls: list[str]) -> Iterator[str]:
    results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
    missing = [id for id in open_calls if id not in results]
    if missing:
        yield f"{where}: `tool_use` ids were found without `tool_result` blocks immediately after: {missing}"
    if [id for id in results if id not in open_calls]:
        yield f"{where}: unexpected `tool_use_id` found in `tool_result` blocks: {results}"
    if not missing and results != open_calls:
        yield f"{where}: `tool_result` blocks {results} are not in the order of {open_calls}"  # Replan's own rule
    if any(block["type"] != "tool_result" for block in blocks[: len(results)]):
        yield f"{where}: `tool_result` blocks must come first"
    allowed = {"thinking", "text", "tool_use"} if role == "assistant" else {"text", "tool_result"}
    if any(block["type"] not in allowed for block in blocks):
        yield f"{where}: {role} may not send such a block"


def _block_mistakes(where: str, block: Json) -> Iterator[str]:
    kind = block.get("type", "")
    if kind not in BLOCKS:
        yield f"{where}: Input tag {kind!r}"
        return
    yield from unknown_fields(where, block, BLOCKS[kind])
    if kind == "text" and not block.get("text", "").strip():
        yield f"{where}: text content blocks must be non-empty"
    if kind == "tool_use" and not (re.fullmatch(ID, block.get("id", "")) and isinstance(block.get("input"), dict)):
        yield f"{where}: tool_use.id should match {ID!r}, and its input be an object"
    if kind == "tool_use" and not re.fullmatch(NAME, block.get("name", "")):
        yield f"{where}: tool_use.name should match {NAME!r}"
    if kind == "thinking" and block.get("signature") != _signature(block.get("thinking", "")):
        yield f"{where}: Invalid `signature` in `thinking` block"
    if kind == "tool_result" and not isinstance(block.get("content"), str):
        yield f"{where}: tool_result.content"


def _cache_mistakes(body: Json) -> Iterator[str]:
    """Mistakes in the cache marks (`cache_control`); the rule that each part must end with a mark is Replan's own."""
    # The next request begins with the same tools, system and turns, so the cache can serve all of them.
    blocks = [block for message in body.get("messages", ()) for block in _blocks_of(message)]
    system = body.get("system")
    system = system if isinstance(system, list) else []
    parts: Mapping[str, list[Any]] = {"tools": body.get("tools", []), "system": system, "messages": blocks}
    marked = [(name, block) for name, items in parts.items() for block in items if "cache_control" in block]
    if len(marked) > MAX_MARKS:
        yield f"A maximum of {MAX_MARKS} blocks with cache_control may be provided"
    if any(block["cache_control"] != {"type": "ephemeral"} for _, block in marked):
        yield "cache_control: unknown type"
    if not body.get("tools") or (not marked and len(body.get("messages", ())) == 1):
        return  # a single request needs no cache
    for name, items in parts.items():
        if not (items and "cache_control" in items[-1]):
            yield f"{name}: the end is not marked for the cache"
