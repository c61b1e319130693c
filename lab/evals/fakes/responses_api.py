"""OpenAI's Responses API with a scripted model, as strict as the real API, with `store` false.

The rules are those of the SDK's types (`openai.types.responses`), of the guide to reasoning
(https://developers.openai.com/api/docs/guides/reasoning), and of errors of the real API that users report.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby, pairwise

from activities.planning.prompts import SUMMARISED
from activities.providers.messages import AssistantTurn, ToolCall, ToolResult, Turn, UserTurn
from evals.fakes.model_api import Json, parts, unknown_fields
from evals.fakes.openai_api import NAME, OpenAIApi, choice_mistakes, strict_mistakes
from evals.fakes.script import ModelError, ModelReply, ReceivedRequest

FIELDS = {"include", "input", "instructions", "max_output_tokens", "model", "reasoning", "store", "stream"}
FIELDS |= {"text", "tool_choice", "tools"}
TOOL = {"type", "name", "description", "parameters", "strict"}
"""The fields of a function; `strict` must be set, because the real API takes true if it is missing."""
ITEMS: Mapping[str, tuple[set[str], set[str]]] = {
    "message": ({"role", "content"}, {"type", "phase"}),
    "output_message": ({"type", "id", "role", "status", "content"}, {"phase"}),
    "reasoning": ({"type", "id", "summary"}, {"encrypted_content", "content", "status"}),
    "function_call": ({"type", "call_id", "name", "arguments"}, {"id", "status", "async", "caller", "namespace"}),
    "function_call_output": ({"type", "call_id", "output"}, {"id", "status", "caller", "name", "namespace"}),
}
"""The required and the optional fields of each type of item; an `output_message` is a message with an id."""
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
ENCRYPTED = "reasoning.encrypted_content"
CALL_ID = r"[a-zA-Z0-9_-]{1,64}"
MIN_OUTPUT_TOKENS = 16


@dataclass
class ResponsesApi(OpenAIApi):
    """Answers `POST /v1/responses`; each reply begins with encrypted reasoning, if the request asks for it."""

    path = "/v1/responses"
    fields: set[str] = field(default_factory=lambda: {*FIELDS})
    is_reasoning: bool = True
    """Whether the model reasons; a model that does not reason rejects a request for encrypted reasoning."""
    sent: dict[str, Json] = field(default_factory=dict)
    """Each item of the replies, by its id."""
    before: dict[str, str] = field(default_factory=dict)
    """For each item that followed reasoning directly: the id of the reasoning."""
    wanted: dict[str, str] = field(default_factory=dict)
    """For each call that must come back with all items of its reply, by the id of the call: the id of its item."""

    def unknown_model(self, model: str) -> ModelError:
        message = f"The requested model '{model}' does not exist."
        return ModelError(400, "invalid_request_error", message, "model_not_found")

    def window_exceeded(self, tokens: int, window: int) -> ModelError:
        message = "Your input exceeds the context window of this model. Please adjust your input and try again."
        return ModelError(400, "invalid_request_error", message, "context_length_exceeded")

    def schemas(self, body: Json) -> Mapping[str, Json]:
        return {tool.get("name", ""): tool.get("parameters", {}) for tool in body.get("tools", ())}

    def tokens(self, body: Json) -> int:
        return super().tokens({**body, "system": body.get("instructions"), "messages": body.get("input")})

    def broken_rules(self, body: Json, headers: Mapping[str, str]) -> Iterator[str]:
        if body.get("store") is not False:
            yield "store: must be false"  # Replan's own rule
        if (ENCRYPTED in body.get("include", ())) is not self.is_reasoning:
            unsupported = "Encrypted content is not supported with this model."
            yield f"include: {'must have ' + ENCRYPTED if self.is_reasoning else unsupported}"
        if body.get("max_output_tokens", MIN_OUTPUT_TOKENS) < MIN_OUTPUT_TOKENS:
            yield "max_output_tokens: integer below minimum value. Expected a value >= 16"
        if body.get("reasoning", {"effort": "low"}).get("effort") not in EFFORTS:
            yield f"reasoning.effort: Unsupported value: {body['reasoning']}"
        for tool in body.get("tools", ()):
            yield from unknown_fields("tools", tool, TOOL)
            if tool.get("type") != "function" or not re.fullmatch(NAME, tool.get("name", "")):
                yield "tools: must be functions with a name"
            if not isinstance(tool.get("strict"), bool):
                yield "tools: Missing required parameter: 'strict'"
        yield from choice_mistakes(body)
        yield from unknown_fields("text", body.get("text", {}), {"format"})
        yield from strict_mistakes(body.get("tools", ()), body.get("text", {}).get("format", {}))
        items = body.get("input", [])
        mistakes = [*_field_mistakes(items), *_role_mistakes(body)]
        yield from mistakes
        if not mistakes:
            yield from _pairing_mistakes(items)
            yield from self._changed(items)
            yield from self._left_out(items)

    def read(self, body: Json) -> ReceivedRequest:
        return ReceivedRequest(
            system=body["instructions"],
            tools=tuple(tool["name"] for tool in body.get("tools", ())),
            may_call="tools" in body and body.get("tool_choice") != "none",
            turns=tuple(_turns(body["input"])),
            body=body,
        )

    def reply_body(self, reply: ModelReply) -> Json:
        number, (input_tokens, written) = len(self.bodies), self.usage(reply)
        is_cut = reply.stop not in (None, "completed")
        items = list(self._items(reply, "incomplete" if is_cut else "completed"))
        self._record_sent(items, is_whole=not is_cut and not self.repeats_ids)
        return {
            "id": f"resp_{number}",
            "object": "response",
            "created_at": 1_760_000_000,
            "status": "incomplete" if is_cut else "completed",
            "error": None,
            "incomplete_details": {"reason": reply.stop} if is_cut else None,
            "model": self.model,
            "output": items,
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "store": False,
            "usage": {
                "input_tokens": input_tokens,
                "input_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 20},
                "output_tokens": written,
                "output_tokens_details": {"reasoning_tokens": min(written, len(reply.thinking))},
                "total_tokens": input_tokens + written,
            },
        }

    def events(self, body: Json) -> Iterator[Json]:
        begun = {**body, "status": "in_progress", "output": [], "incomplete_details": None, "usage": None}
        kinds = ("response.created", "response.in_progress")
        plain: list[Json] = [{"type": kind, "response": begun} for kind in kinds]
        for index, item in enumerate(body["output"]):
            plain += ({**event, "output_index": index} for event in _item_events(item))
        plain.append({"type": f"response.{body['status']}", "response": body})
        yield from ({**event, "sequence_number": number} for number, event in enumerate(plain))

    def _items(self, reply: ModelReply, status: str) -> Iterator[Json]:
        prefix = f"{len(self.bodies)}_{len(self.sent)}"  # a test may ask for several replies to one request
        if self.is_reasoning:
            yield _reasoning(f"rs_{prefix}_0", reply.thinking)
        if reply.text or reply.refusal:
            text_part: Json = {"type": "output_text", "text": reply.text, "annotations": [], "logprobs": []}
            part = {"type": "refusal", "refusal": reply.refusal} if reply.refusal else text_part
            message = {"type": "message", "id": f"msg_{prefix}", "role": "assistant", "status": status}
            yield {**message, "content": [part], "phase": "commentary" if reply.calls else "final_answer"}
        if self.is_reasoning and reply.text and reply.calls:
            yield _reasoning(f"rs_{prefix}_1", reply.thinking)  # a model reasons again after it wrote a text
        for index, call in enumerate(reply.calls):
            made = {"call_id": self.call_id("call", index), "name": call.name, "arguments": call.written}
            yield {"type": "function_call", **made, "id": f"fc_{prefix}_{index}", "status": status}

    def _record_sent(self, items: list[Json], *, is_whole: bool) -> None:
        self.sent |= {item["id"]: item for item in items}
        self.before |= {after["id"]: before["id"] for before, after in pairwise(items) if before["type"] == "reasoning"}
        calls = [item for item in items if item["type"] == "function_call"]
        is_valid = all(re.fullmatch(NAME, call["name"]) and _is_json_object(call["arguments"]) for call in calls)
        # Other replies, such as one with half a character, are not sent back unchanged.
        if is_whole and is_valid and json.dumps(items, ensure_ascii=False).isprintable():
            self.wanted |= {call["call_id"]: call["id"] for call in calls}

    def _changed(self, items: list[Json]) -> Iterator[str]:
        """Mistakes: items with an id that were changed, or without the reasoning before them or the item after them."""
        for index, item in enumerate(items):
            where, id = f"input[{index}]", item.get("id")
            if id is None:
                continue
            if self.sent.get(id) != item:
                what = "encrypted content could not be verified" if item["type"] == "reasoning" else "is unknown"
                yield f"{where}: Item '{id}' {what}, or it was changed"
            previous = items[index - 1].get("id") if index else None
            if previous != self.before.get(id, previous):
                yield f"{where}: Item '{id}' was provided without its required 'reasoning' item: '{self.before[id]}'"
            following = items[index + 1].get("id") if index + 1 < len(items) else None
            if item["type"] == "reasoning" and (following is None or self.before.get(following) != id):
                yield f"{where}: Item '{id}' of type 'reasoning' was provided without its required following item"

    def _left_out(self, items: list[Json]) -> Iterator[str]:
        """Mistakes: calls whose reasoning is left out or changed, except after a summary of the conversation."""
        is_summarised = any(SUMMARISED in str(item.get("content")) for item in items[:1])
        for index, item in enumerate(items):
            item_id = self.wanted.get(item["call_id"]) if item.get("type") == "function_call" else None
            # Replan's own rule: the real API takes a call without an id, but then the model has to reason again.
            if item_id not in (None, item.get("id")) and not is_summarised:
                yield f"input[{index}]: the items of the reply with {item['call_id']} were left out or changed"


def _item_events(item: Json) -> Iterator[Json]:
    """The events of an item's stream: messages and calls come in parts, reasoning comes whole with the last event."""
    of = {"item_id": item["id"]}
    begun = {**item, **({"status": "in_progress"} if "status" in item else {})}
    empty: Json = {"message": {"content": []}, "function_call": {"arguments": ""}, "reasoning": {"summary": []}}
    yield {"type": "response.output_item.added", "item": {**begun, **empty[item["type"]]}}
    if item["type"] == "message":
        for index, part in enumerate(item["content"]):
            name = "refusal" if part["type"] == "refusal" else "text"
            at = {**of, "content_index": index}
            yield {"type": "response.content_part.added", **at, "part": {**part, name: ""}}
            kind = "response.refusal" if name == "refusal" else "response.output_text"
            yield from ({"type": f"{kind}.delta", **at, "delta": piece, "logprobs": []} for piece in parts(part[name]))
            yield {"type": f"{kind}.done", **at, name: part[name], "logprobs": []}
            yield {"type": "response.content_part.done", **at, "part": part}
    elif item["type"] == "function_call":
        kind = "response.function_call_arguments"
        yield from ({"type": f"{kind}.delta", **of, "delta": piece} for piece in parts(item["arguments"]))
        yield {"type": f"{kind}.done", **of, "name": item["name"], "arguments": item["arguments"]}
    yield {"type": "response.output_item.done", "item": item}


def _reasoning(id: str, thought: str) -> Json:
    # Stands for the provider's encryption; the id makes each one different.
    encrypted = hashlib.sha256(f"{id}{thought}".encode(errors="replace")).hexdigest()
    summary = [{"type": "summary_text", "text": thought}] if thought else []
    return {"type": "reasoning", "id": id, "summary": summary, "encrypted_content": encrypted}


def _is_json_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def _field_mistakes(items: list[Json]) -> Iterator[str]:
    for index, item in enumerate(items):
        where, kind = f"input[{index}]", str(item.get("type", "message"))
        kind = "output_message" if kind == "message" and "id" in item else kind
        if kind not in ITEMS:
            yield f"{where}: Invalid value: '{kind}'"
            continue
        required, optional = ITEMS[kind]
        yield from unknown_fields(where, item, required | optional)
        yield from (f"{where}: Missing required parameter: {name!r}" for name in sorted(required - item.keys()))
        content = item.get("content")
        if kind == "message" and not (isinstance(content, str) and content.strip()):
            yield f"{where}: content must be a text"
        if kind == "output_message":
            yield from _part_mistakes(where, content)
        if kind == "function_call":
            if not re.fullmatch(NAME, item.get("name", "")):
                yield f"{where}: name: string does not match pattern"
            if not isinstance(item.get("arguments"), str) or not _is_json_object(item["arguments"]):
                yield f"{where}: arguments must be JSON"
        if kind == "function_call_output" and not isinstance(item.get("output"), str):
            yield f"{where}: output must be a text"
        if "call_id" in required and not re.fullmatch(CALL_ID, str(item.get("call_id"))):
            yield f"{where}: call_id: string too long. Expected a string with maximum length 64"


def _part_mistakes(where: str, parts: object) -> Iterator[str]:
    kinds = {"output_text": {"type", "text", "annotations", "logprobs"}, "refusal": {"type", "refusal"}}
    for part in parts if isinstance(parts, list) else [{}]:
        yield from unknown_fields(where, part, kinds.get(part.get("type"), ()))
        if part.get("type") not in kinds:
            yield f"{where}: content must be output_text or refusal"


def _role_mistakes(body: Json) -> Iterator[str]:
    items = body.get("input", [])
    sides = [_side(item) for item in items]
    if not body.get("instructions"):
        yield "instructions: must be a text"
    if not sides or sides[0] != "user" or sides[-1] == "assistant":
        yield f"input: begins or ends with the model: {sides}"
    if any(item.get("role", "user") not in ("user", "assistant") for item in items):
        yield "input: roles must be user or assistant"


def _side(item: Json) -> str:
    """Who wrote an item: the role of a message, `result` for a tool's output, or `assistant` for anything else."""
    if item.get("type", "message") == "message":
        return str(item.get("role"))
    return "result" if item["type"] == "function_call_output" else "assistant"


def _pairing_mistakes(items: list[Json]) -> Iterator[str]:
    calls = [item["call_id"] for item in items if item.get("type") == "function_call"]
    results = [item["call_id"] for item in items if item.get("type") == "function_call_output"]
    yield from (f"No tool output found for function call {id}." for id in calls if id not in results)
    yield from (f"No tool call found for function call output with call_id {id}." for id in results if id not in calls)
    if len({*calls}) < len(calls) or len({*results}) < len(results):
        yield "input: each call_id must have one function_call and one function_call_output"
    sides = [(side, list(group)) for side, group in groupby(items, _side)]
    for (side, before), (next_side, after) in pairwise(sides):
        opened = [item["call_id"] for item in before if item.get("type") == "function_call"]
        closed = [item["call_id"] for item in after if next_side == "result"]
        # Replan's own rule: the results follow their calls at once, in the same order.
        if (opened or next_side == "result") and opened != closed:
            yield f"input: the results {closed} after {side} are not those of the calls {opened}, in their order"


def _turns(items: list[Json]) -> Iterator[Turn]:
    results = tuple[ToolResult, ...]()
    for side, group in groupby(items, _side):
        found = list(group)
        if side == "result":
            results = tuple(ToolResult(item["call_id"], item["output"]) for item in found)
        elif side == "user":
            yield UserTurn("\n".join(item["content"] for item in found), results)
            results = ()
        else:
            if results:
                yield UserTurn(results=results)
            results = ()
            calls = [item for item in found if item.get("type") == "function_call"]
            made = (ToolCall(call["call_id"], call["name"], json.loads(call["arguments"])) for call in calls)
            yield AssistantTurn("\n".join(filter(None, map(_text, found))), tuple(made))
    if results:
        yield UserTurn(results=results)


def _text(item: Json) -> str:
    content = item.get("content") if item.get("type", "message") == "message" else ""
    if isinstance(content, list):
        return "\n".join(part["text"] for part in content if part["type"] == "output_text")
    return content or ""
