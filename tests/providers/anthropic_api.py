"""Anthropic's Messages API as strict as it is: https://platform.claude.com/docs/en/api/messages."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from activities.llm.turns import AssistantTurn, ToolCall, ToolResult, Turn, UserTurn
from activities.prompts import SUMMARISED
from tests.providers import anthropic_rules as rules
from tests.providers.api import Json, ModelApi, unknown
from tests.providers.heard import Heard
from tests.providers.script import Call, Fails, Says

FIELDS = {"model", "max_tokens", "messages", "system", "tools", "tool_choice"}


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
            if not re.fullmatch(rules.NAME, tool.get("name", "")):
                yield f"tools: name {tool.get('name')!r}"
        yield from rules.choosing(body)
        yield from self.offered(body)
        yield from rules.conversing(body.get("messages", []))
        yield from self._forgotten(body.get("messages", []))
        yield from rules.caching(body)

    def heard(self, body: Json) -> Heard:
        """The turns, blocks by blocks."""
        return Heard(
            system="\n".join(block["text"] for block in rules.blocks_of({"content": body.get("system")})),
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
        if all(re.fullmatch(rules.COMMON, call["name"]) for call in calls):  # else the turn cannot come back as it is
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
        is_summarised = any(
            SUMMARISED in block.get("text", "") for one in messages[:1] for block in rules.blocks_of(one)
        )
        for index, message in enumerate(messages):
            blocks = rules.blocks_of(message)
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
    return {"type": "thinking", "thinking": thought, "signature": rules.signature(thought)}


def _turn(message: Json) -> Turn:
    blocks = rules.blocks_of(message)
    text = "\n".join(block["text"] for block in blocks if block["type"] == "text")
    if message["role"] == "assistant":
        uses = [block for block in blocks if block["type"] == "tool_use"]
        return AssistantTurn(text, tuple(ToolCall(use["id"], use["name"], use["input"]) for use in uses))
    results = [block for block in blocks if block["type"] == "tool_result"]
    return UserTurn(text, tuple(_result(block) for block in results))


def _result(block: Json) -> ToolResult:
    return ToolResult(block["tool_use_id"], block["content"], bool(block.get("is_error")))


def _tool_use(call: Call, id: str) -> Json:
    return {"type": "tool_use", "id": id, "name": call.name, "input": call.args, "caller": {"type": "direct"}}
