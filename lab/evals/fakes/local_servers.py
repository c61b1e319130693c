"""Servers that run on the user's own machine, with the quirks of Ollama, vLLM, llama.cpp and LM Studio."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from evals.fakes.model_api import Json, json_answer
from evals.fakes.openai_api import OpenAIApi
from evals.fakes.script import ModelCall, ModelError, ModelReply, RawBytes, Response


class Quirk(StrEnum):
    """How a server differs from OpenAI's own."""

    NO_FINISH = "no reason to stop"
    """`finish_reason` stays null, although usage and `[DONE]` come."""
    USAGE_IN_TEXT = "usage in the last delta"
    """`finish_reason` stays null, and the usage comes with the last delta, before `[DONE]`."""
    NO_INDEX = "no index and no id"
    """Each call comes whole, without id and index."""
    SAME_INDEX = "index 0 and no id"
    """Each call comes whole, with the index 0 and without an id."""
    SAME_ID = "index 0 and one id"
    """Each call comes whole, with the index 0 and the same id."""
    IN_PARTS = "index 0, no id, in parts"
    """Calls come in parts, all with the index 0 and without ids; only the first part of a call has its name."""
    NAME_REPEATED = "the name in each part"
    """Each part of a call repeats its name."""
    THINKS = "<think> in the text"
    """The text begins with reasoning between `<think>` and `</think>`."""
    THINKS_UNOPENED = "</think> alone"
    """As THINKS, but without the opening `<think>`, which the server's template wrote."""
    REASONING = "reasoning_content"
    """Reasoning comes in a field of its own."""
    NO_USAGE = "no usage"
    NO_DONE = "no [DONE]"
    ARGUMENTS_AS_OBJECT = "arguments as an object"
    NULL_CONTENT = "content null"


Form = Callable[[Sequence[ModelCall]], str]


def _call_json(call: ModelCall) -> str:
    return json.dumps({"name": call.name, "arguments": call.args})


def _react_text(calls: Sequence[ModelCall]) -> str:
    actions = [f"Action: {call.name}\nAction Input: {json.dumps(call.args)}" for call in calls]
    return "\n".join(["Thought: I make a call.", *actions, "Observation: I made this up."])


TEXT_FORMS: Mapping[str, Form] = {
    "JSON": lambda calls: "\n".join(map(_call_json, calls)),
    "fenced": lambda calls: f"```json\n[{', '.join(map(_call_json, calls))}]\n```",
    "Hermes": lambda calls: "\n".join(f"<tool_call>\n{_call_json(call)}\n</tool_call>" for call in calls),
    "Mistral": lambda calls: f"[TOOL_CALLS][{', '.join(map(_call_json, calls))}]",
    "Llama": lambda calls: "<|python_tag|>" + "; ".join(map(_call_json, calls)),
    "ReAct": _react_text,
}
"""The forms in which models write calls as text."""
THOUGHT = 'I could call purchase. <tool_call>{"name": "purchase", "arguments": {}}</tool_call>'
"""The reasoning that a server with such a quirk sends before each answer; it is no part of the answer."""


@dataclass
class LocalServer(OpenAIApi):
    """Chat Completions as a server on the user's own machine implements them."""

    quirks: frozenset[Quirk] = frozenset()
    form: str = ""
    """The form of TEXT_FORMS in which the model writes calls as text; empty for a server with native calls."""
    is_lax: bool = True
    rejects_tools: bool = False
    """Whether the server rejects requests with tools, as Ollama does; else it accepts them."""
    fields: set[str] = field(default_factory=lambda: {*OpenAIApi([]).fields, "stop"})
    vendor_fields: set[str] = field(default_factory=lambda: {"reasoning_content"})

    def is_authorized(self, headers: Mapping[str, str]) -> bool:
        return True

    def answer(self, path: str, headers: Mapping[str, str], body: Json) -> Response:
        if self.rejects_tools and body.get("tools"):
            return ModelError(400, "invalid_request_error", f"{self.model} does not support tools")
        return super().answer(path, headers, body)

    def reply_body(self, reply: ModelReply) -> Json:
        if self.form and reply.calls:
            reply = replace(reply, calls=(), text=TEXT_FORMS[self.form](reply.calls))
        elif self.form and "Finish[" in str(self.bodies[-1]["messages"][0]["content"]):
            reply = replace(reply, text=f"Thought: I know all.\nFinish[{reply.text}]")
        return super().reply_body(reply)

    def events(self, body: Json) -> Iterator[Json]:
        chunks = [*self._deltas(body)]
        if self._has(Quirk.NO_FINISH, Quirk.USAGE_IN_TEXT):
            for chunk in chunks:
                for choice in chunk["choices"]:
                    choice["finish_reason"] = None
        if self._has(Quirk.USAGE_IN_TEXT) and body.get("usage"):
            chunks[-1]["usage"] = body["usage"]
        elif body.get("usage") and not self._has(Quirk.NO_USAGE):
            chunks.append({**self._chunk_fields(body), "choices": [], "usage": body["usage"]})
        yield from chunks
        if not self._has(Quirk.NO_DONE):
            yield {}

    def _deltas(self, body: Json) -> Iterator[Json]:
        (choice,) = body["choices"]
        message, head = choice["message"], self._chunk_fields(body)
        deltas: list[Json] = [{"role": "assistant", "content": None if self._has(Quirk.NULL_CONTENT) else ""}]
        content = message["content"] or ""
        if self._has(Quirk.REASONING):
            deltas += [{"reasoning_content": part} for part in _halves(THOUGHT)]
        if self._has(Quirk.THINKS, Quirk.THINKS_UNOPENED):
            opened = "<think>\n" if self._has(Quirk.THINKS) else ""
            content = f"{opened}{THOUGHT}\n</think>\n\n{content}"
        deltas += [{"content": part} for part in _halves(content)]
        for index, call in enumerate(message.get("tool_calls", ())):
            deltas += [{"tool_calls": [part]} for part in self._call_parts(index, call)]
        for delta in deltas:
            yield {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
        yield {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]}

    def _call_parts(self, index: int, call: Json) -> list[Json]:
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        if self._has(Quirk.ARGUMENTS_AS_OBJECT):
            arguments = json.loads(arguments)
        if self._has(Quirk.NO_INDEX):
            return [{"type": "function", "function": {"name": name, "arguments": arguments}}]
        if self._has(Quirk.SAME_INDEX, Quirk.SAME_ID, Quirk.ARGUMENTS_AS_OBJECT):
            id = {"id": "call_0"} if self._has(Quirk.SAME_ID) else {}
            return [{**id, "index": 0, "type": "function", "function": {"name": name, "arguments": arguments}}]
        repeats = self._has(Quirk.NAME_REPEATED)
        same = self._has(Quirk.IN_PARTS)
        head: Json = {"index": 0 if same else index, **({} if same else {"id": call["id"]}), "type": "function"}
        first, *rest = _halves(arguments)
        more = [{"name": name, "arguments": part} if repeats else {"arguments": part} for part in rest]
        return [
            {**head, "function": {"name": name, "arguments": first}},
            *({**(head if repeats else {"index": head["index"]}), "function": function} for function in more),
        ]

    def _chunk_fields(self, body: Json) -> Json:
        rest = {name: value for name, value in body.items() if name not in ("usage", "choices")}
        return {**rest, "object": "chat.completion.chunk"}

    def _has(self, *quirks: Quirk) -> bool:
        return bool(self.quirks & {*quirks})


def _halves(text: str) -> list[str]:
    middle = len(text) // 2
    return [text[:middle], text[middle:]]


@dataclass
class OllamaServer(LocalServer):
    """Ollama: besides Chat Completions, it reports the context window and the capabilities of a model."""

    context: int = 4_096
    """The window with which a model is loaded."""
    longest: int = 131_072
    """The longest window of the model."""
    capabilities: tuple[str, ...] | None = ("completion", "tools")
    """What the model can do; None for a version of Ollama that does not report it."""
    pulled: bool = True
    is_loaded: bool = False
    """Whether the model is loaded; the first request loads it."""

    def answer(self, path: str, headers: Mapping[str, str], body: Json) -> Response:
        if path == "/api/show":
            return self._show_answer()
        if path == "/api/ps":
            loaded = [{"name": f"{self.model}:latest", "context_length": self.context}] if self.is_loaded else []
            return _json_answer({"models": loaded})
        if not self.pulled:
            message = f'model "{self.model}" not found, try pulling it first'
            return ModelError(404, "api_error", message)
        self.is_loaded = True
        return super().answer(path, headers, body)

    def _show_answer(self) -> Response:
        if not self.pulled:
            return RawBytes(json_answer(404, b'{"error": "model not found"}'))
        more = {} if self.capabilities is None else {"capabilities": list(self.capabilities)}
        return _json_answer({"model_info": {"llama.context_length": self.longest}, "template": "{{ .Prompt }}", **more})


@dataclass
class LmStudioServer(LocalServer):
    """LM Studio, with its own API beside Chat Completions."""

    context: int = 4_096
    capabilities: tuple[str, ...] | None = ("tool_use",)
    pulled: bool = True

    def answer(self, path: str, headers: Mapping[str, str], body: Json) -> Response:
        if not path.startswith("/api/v0/models/"):
            return super().answer(path, headers, body)
        if not self.pulled:
            return RawBytes(json_answer(404, b'{"error": "Model not found"}'))
        more = {} if self.capabilities is None else {"capabilities": list(self.capabilities)}
        known = {"max_context_length": 131_072, "loaded_context_length": self.context}
        return _json_answer({"id": self.model, "state": "loaded", **known, **more})


def _json_answer(body: Json) -> RawBytes:
    return RawBytes(json_answer(200, json.dumps(body).encode()))
