"""The adapter of OpenAI's Chat Completions API, which other servers speak, too: Ollama, vLLM, llama.cpp."""

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import structlog

from activities.borders.model_errors import error_in
from activities.providers import spoken
from activities.providers.adapter import (
    AdapterOptions,
    Endpoint,
    ModelAdapter,
    count,
    counts,
    field_of,
    replace_surrogates,
    stop_word,
    with_unique_ids,
)
from activities.providers.arguments import is_object, is_too_deep, parse_call
from activities.providers.messages import (
    AssistantTurn,
    End,
    Reply,
    Request,
    StopReason,
    ToolCall,
    Turn,
    UnusableResponse,
    Usage,
)
from activities.providers.metering import current_reply
from activities.providers.streaming import ReplyDraft, object_in, objects_of, text_of
from activities.providers.vendor_fields import joined, joined_items, vendor_fields
from workflows.json_values import canonical

log = structlog.get_logger("replan.model")

STOP_REASONS: Mapping[str | None, StopReason] = {
    "stop": StopReason.DONE,
    "tool_calls": StopReason.CALLS,
    "function_call": StopReason.CALLS,
    "length": StopReason.CUT,
    "model_length": StopReason.CUT,  # Mistral
    "error": StopReason.CUT,  # Mistral and OpenRouter
    "abort": StopReason.CUT,  # vLLM
    "insufficient_system_resource": StopReason.CUT,  # DeepSeek
    "max_tokens": StopReason.CUT,  # Gemini and Cohere
    "timeout": StopReason.CUT,  # Cohere
    "cancelled": StopReason.CUT,
    "network_error": StopReason.CUT,  # Z.AI
    "malformed_function_call": StopReason.CUT,  # Gemini
    "content_filter": StopReason.REFUSED,
    "safety": StopReason.REFUSED,  # Gemini
    "recitation": StopReason.REFUSED,  # Gemini
    "error_toxic": StopReason.REFUSED,  # Cohere
    "sensitive": StopReason.REFUSED,  # Z.AI
    "refusal": StopReason.REFUSED,  # Anthropic, through proxies
}
"""By the word of a server, in small letters; any other word means that the reply is whole."""
UNUSED = (StopReason.CUT, StopReason.REFUSED)
FAILED = ("error", "network_error")
"""Reasons to stop which say that the server failed, so that another request may bring the whole reply."""
STANDARD = frozenset(
    {
        *("role", "content", "tool_calls", "name", "index", "tool_call_id"),
        *("refusal", "annotations", "audio", "function_call", "parsed", "usage", "finish_reason", "logprobs", "images"),
        *("citations", "search_results", "executed_tools", "context", "end_turn", "content_filter_results"),
        *("token_ids", "stop_reason", "matched_stop", "hidden_states"),
    }
)
"""The fields of a message that are sent from the turn, or that only answer: servers reject some of them."""
OF_CALL = frozenset({"id", "type", "index", "function"})
OF_FUNCTION = frozenset({"name", "arguments", "parsed_arguments"})
SIGNATURE = "thought_signature"
PLACEHOLDERS: Mapping[str, str] = {"reasoning_content": " ", SIGNATURE: "skip_thought_signature_validator"}
"""What stands for a field that a server wants in each message or call, where the model did not write it: DeepSeek wants
a text that is not empty (https://github.com/NousResearch/hermes-agent/pull/17341), and Gemini this one
(https://ai.google.dev/gemini-api/docs/thought-signatures)."""
MISSING = re.compile(r"must be (?:passed|sent|provided)|missing|required", re.IGNORECASE)
UNWANTED = re.compile(r"extra|unsupported|not (?:permitted|supported|allowed)|un(?:known|expected|recognized)", re.I)
REJECTED = (400, 422)
REASONING = ("reasoning_content", "reasoning")
"""Fields with a model's reasoning: of DeepSeek, vLLM, llama.cpp and LM Studio; of Ollama and OpenRouter."""


class ChatCompletions(ModelAdapter):
    sdk = "openai"
    client = "AsyncOpenAI"
    api = "OpenAI's API"

    def __init__(
        self,
        model: str,
        endpoint: Endpoint,
        effort: str | None = None,
        *,
        is_reasoning: bool | None = None,
        options: AdapterOptions | None = None,
    ) -> None:
        """`is_reasoning` is whether the model reasons without showing its reasoning; None if that is not known."""
        super().__init__(model, endpoint, effort)
        self._options = options or AdapterOptions()
        self._hides_reasoning = self._is_own if is_reasoning is None else is_reasoning

    async def _send(self, client: Any, request: Request, limit: int | None) -> Any:
        return await client.chat.completions.create(
            model=self._model,
            stream=True,
            stream_options={"include_usage": True},
            **({"max_completion_tokens": limit} if limit else {}),
            **({"reasoning_effort": effort} if (effort := request.effort or self._effort) else {}),
            **({"stop": list(request.stop)} if request.stop and not self._is_own else {}),
            messages=list(self._messages(request)),
            **_tools(request),
            **_format(request),
        )

    async def _sent(self, client: Any, request: Request) -> Any:
        before = self._known_fields()
        try:
            return await super()._sent(client, request)
        except Exception as error:  # total: one that teaches nothing is raised
            if getattr(error, "status_code", 0) not in REJECTED:
                raise
            self._learn_fields(request, str(error))
            if self._known_fields() == before:  # else it is known now, perhaps from another request
                raise
        learned = sorted(self._known_fields()[0] - before[0])
        log.warning("vendor_fields", model=self.name, reason=", ".join(learned) or "none is taken back")
        current_reply().rejected += 1
        return await super()._sent(client, request)

    def _known_fields(self) -> tuple[frozenset[str], bool]:
        """The vendor fields that the server wants in all turns, and whether it rejects its own."""
        wanted = self._options.wanted_fields.get(self.name, ())
        return frozenset(wanted), self.name in self._options.without_vendor_fields

    def _learn_fields(self, request: Request, rejection: str) -> None:
        """Record which vendor fields the server wants or rejects, if its words for a request name one."""
        is_missing = MISSING.search(rejection) and not UNWANTED.search(rejection)
        missing = {name for name in PLACEHOLDERS if name in rejection} if is_missing else set[str]()
        self._options.wanted_fields.setdefault(self.name, set()).update(missing)
        sent = {name for turn in request.turns for name in _names_of_fields(turn, self.name)}
        if not missing and any(name in rejection for name in sent):
            self._options.without_vendor_fields.add(self.name)

    def _messages(self, request: Request) -> Iterator[dict[str, Any]]:
        wanted, is_rejected = self._known_fields()
        yield {"role": "system", "content": request.system}
        for turn in with_unique_ids(request.turns, self.name):
            if isinstance(turn, AssistantTurn):
                vendor = turn.vendor if turn.by == self.name else {}
                if is_rejected:
                    vendor = {"content": vendor["content"]} if "content" in vendor else {}
                yield _with_placeholders(_assistant_message(turn, vendor), turn, wanted)
                continue
            for result in turn.results:
                yield {"role": "tool", "tool_call_id": result.call_id, "content": result.text}
            if turn.text:
                yield {"role": "user", "content": turn.text}

    def _draft(self) -> ReplyDraft:
        return _ChatDraft(self._counts)

    def _translate(self, response: Mapping[str, Any], limit: int | None) -> Reply:
        choice = objects_of(response.get("choices"))[0]
        if stop_word(choice.get("finish_reason")) in FAILED:
            used = self._usage(response)
            reason = f"{self._server_name} ended its reply in the middle with an error of its own."
            raise UnusableResponse(reason, used if used.tokens else None, End.ERROR_EVENT)
        message = choice.get("message") or choice.get("delta") or {"content": choice["text"]}
        # Only functions were offered, so a call of another type is dropped.
        parts = [call for call in objects_of(message.get("tool_calls")) if object_in(call, "function")]
        functions = [(call.get("id"), object_in(call, "function")) for call in parts]
        calls = tuple(parse_call(id, function.get("name"), function.get("arguments")) for id, function in functions)
        stop = STOP_REASONS.get(stop_word(choice.get("finish_reason")), StopReason.DONE)
        written = count(response.get("usage"), "completion_tokens")
        if text_of(message.get("refusal")):
            stop = StopReason.REFUSED
        elif limit is not None and written >= limit and stop is StopReason.DONE:
            stop = StopReason.CUT  # it fills its limit, even if the server reports `stop`
        thoughts, text = spoken.split_thoughts(_plain(message.get("content")))
        aside = "\n".join(filter(None, (_reasoning(message), thoughts)))
        turn = AssistantTurn(text, calls, by=self.name, aside=aside, vendor=_vendor_fields(message, parts))
        return Reply(replace_surrogates(turn), self._usage(response), stop)

    def _usage(self, response: Mapping[str, Any]) -> Usage:
        return self._counts(response.get("usage"))

    def _counts(self, used: Any) -> Usage:
        details = field_of(used, "prompt_tokens_details")
        # DeepSeek, and Moonshot and Together, have fields of their own.
        read = (count(details, "cached_tokens"), count(used, "prompt_cache_hit_tokens"), count(used, "cached_tokens"))
        return counts(
            used,
            "prompt",
            "completion",
            read=min(filter(None, read), default=0),
            written=count(details, "cache_write_tokens"),
            is_documented=self._is_own,
        )


class _ChatDraft(ReplyDraft):
    """Joins the chunks of a reply: the parts of the text, of each call's arguments, and of what the vendor adds."""

    def __init__(self, counts: Callable[[Any], Usage]) -> None:
        self._counts = counts
        self._calls = list[dict[str, Any]]()
        self._message: dict[str, Any] = {"role": "assistant", "content": "", "tool_calls": self._calls}
        self._vendor = dict[str, Any]()
        """The fields that the API does not describe."""
        self._choice: Any = None
        """The index of the choice that is read: one was asked for."""
        self._has_stale_usage = False
        """Whether a part of the reply came after the newest usage, so that its output is a part of the whole."""
        self._ends_with_usage = False
        """Whether nothing of the reply came after a chunk that has only the usage."""
        self._stop: str | None = None

    def _add(self, chunk: Mapping[str, Any]) -> None:
        if failed := error_in(chunk):
            self.failed = failed
            return
        # In the last chunk, after the reason to stop, or in each chunk; Kimi has it in the choice.
        used, choices = chunk.get("usage"), objects_of(chunk.get("choices"))
        for choice in choices:
            self._choice = choice.get("index") if self._choice is None else self._choice
            if choice.get("index") in (None, self._choice):
                self._add_choice(choice)
                used = used or choice.get("usage")
        if used:
            self.used = used if isinstance(used, Mapping) else {}
            self._has_stale_usage, self._ends_with_usage = False, not choices

    def _add_choice(self, choice: Mapping[str, Any]) -> None:
        delta = object_in(choice, "delta")
        if not (delta or self.written):  # some servers send the whole message in a chunk
            delta = object_in(choice, "message")
        self.written += _bytes_of_texts({**delta, "role": None})
        content, calls = delta.get("content"), objects_of(delta.get("tool_calls"))
        refusal = text_of(delta.get("refusal"))
        self._vendor = joined(self._vendor, vendor_fields(delta, STANDARD))
        if content:
            self._message["content"] = _with_piece(self._message["content"], content)
        if refusal:
            self._message["refusal"] = self._message.get("refusal", "") + refusal
        for part in calls:
            self._add_call(part)
        is_cut = STOP_REASONS.get(self._stop) in UNUSED
        if content or _reasoning(delta) or refusal or calls:
            # What was the end so far is none.
            self._has_stale_usage, self._ends_with_usage = True, False
            self._stop = self._stop if is_cut else None
        self._stop = self._stop if is_cut else stop_word(choice.get("finish_reason")) or self._stop

    def end(self, *, is_done: bool) -> None:
        # Some servers never give a reason to stop: then `[DONE]` or the end after the usage is the end of the reply.
        if self._stop or self._ends_with_usage or (is_done and self.used):
            # Without a reason, arguments that never came may have been cut.
            is_cut = not self._stop and not all(call["function"]["arguments"] for call in self._calls)
            message = {**self._vendor, **self._message}
            ended = {"index": 0, "message": message, "finish_reason": "length" if is_cut else self._stop}
            only_input = {"prompt_tokens": field_of(self.used, "prompt_tokens")}
            usage = only_input if self._has_stale_usage else self.used
            self.response = {"choices": [ended], "usage": usage}

    def counted(self) -> Usage:
        return self._counts(self.used)

    def whole_count(self) -> Usage | None:
        is_whole = self._ends_with_usage or (self._stop and not self._has_stale_usage)
        return self.counted() if is_whole and self.used else None

    def text(self) -> str:
        return _plain(self._message["content"])

    def calls(self) -> list[tuple[str, Any]]:
        functions = [call["function"] for call in [*self._calls]]
        return [(function["name"], function["arguments"]) for function in functions]

    def _add_call(self, part: Mapping[str, Any]) -> None:
        function, call = object_in(part, "function"), self._open(part)
        call |= joined(vendor_fields(call, OF_CALL), vendor_fields(part, OF_CALL))
        call["id"] = call["id"] or part.get("id")
        known, name = call["function"], text_of(function.get("name"))
        known |= joined(vendor_fields(known, OF_FUNCTION), vendor_fields(function, OF_FUNCTION))
        # Some servers repeat the name in each part.
        known["name"] += "" if name == known["name"] else name
        known["arguments"] = _join_arguments(known["arguments"], function.get("arguments"))

    def _open(self, part: Mapping[str, Any]) -> dict[str, Any]:
        """The call that a part belongs to, or a new one: some servers give no id, and each call the index 0 or none."""
        index, id = part.get("index"), part.get("id")
        near = [call for call in reversed(self._calls) if index is None or call["index"] == index]
        found = next((call for call in near if id and call["id"] == id), near[0] if near else None)
        if found is None or _begins(found, part):
            found = {"index": index, "id": None, "type": "function", "function": {"name": "", "arguments": ""}}
            self._calls.append(found)
        return found


def _begins(open_call: Mapping[str, Any], part: Mapping[str, Any]) -> bool:
    """Whether a part with the index of an open call begins another call."""
    function = object_in(part, "function")
    part_name, more = text_of(function.get("name")), function.get("arguments")
    name, written = open_call["function"]["name"], open_call["function"]["arguments"]
    has_other_id = bool(part.get("id") and open_call["id"] and part["id"] != open_call["id"])
    if has_other_id and part_name:
        return True
    if part_name and part_name != name:
        return bool(written)  # else the name comes in parts
    return bool(part_name or has_other_id) and bool(more) and is_object(written)


def _reasoning(message: Mapping[str, Any]) -> str:
    thoughts = [part for part in objects_of(message.get("content")) if part.get("type") == "thinking"]
    found = [message.get(name) for name in REASONING]
    return next((text for text in found if isinstance(text, str)), "") or "".join(
        _plain(part.get("thinking")) for part in thoughts
    )


def _plain(content: Any) -> str:
    """The text of a content: a text, or a list of parts, of which some may be reasoning."""
    if isinstance(content, list):
        return "".join(map(_plain, content))
    if isinstance(content, Mapping):
        return text_of(content.get("text"))
    is_number = isinstance(content, int | float) and not isinstance(content, bool)
    return json.dumps(content) if is_number else text_of(content)


def _with_piece(before: Any, piece: Any) -> Any:
    """The content so far with its next piece: a text, unless one of them is a list of parts."""
    if not isinstance(before, list) and not isinstance(piece, list | Mapping):
        return before + _plain(piece)
    return joined_items(_parts(before), _parts(piece))


def _parts(content: Any) -> list[Any]:
    if isinstance(content, list):
        return [part if isinstance(part, Mapping) else {"type": "text", "text": _plain(part)} for part in content]
    return [content] if isinstance(content, Mapping) else [{"type": "text", "text": _plain(content)}] if content else []


def _vendor_fields(message: Mapping[str, Any], calls: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What `AssistantTurn.vendor` has: the fields of a message and of its calls that the API does not describe."""
    found = vendor_fields(message, STANDARD)
    parts = _parts(message.get("content"))
    if any(set(part) - {"type", "text"} for part in parts) and not is_too_deep(parts):
        found["content"] = parts
    of_calls = [
        {**vendor_fields(call, OF_CALL), **({"function": inner} if inner else {})}
        for call in calls
        for inner in [vendor_fields(object_in(call, "function"), OF_FUNCTION)]
    ]
    return {**found, **({"tool_calls": of_calls} if any(of_calls) else {})}


def _join_arguments(before: Any, part: Any) -> Any:
    part = "{}" if part == {} else part  # in place of a text, perhaps before the whole object
    if not part or before in ("", "{}"):
        return part or before
    # Some servers repeat the whole arguments. Two texts that differ stay two, and so are no JSON.
    return before if part == before and is_object(before) else f"{before}{part}"


def _bytes_of_texts(value: Any) -> int:
    if isinstance(value, dict):
        return sum(map(_bytes_of_texts, value.values()))
    if isinstance(value, list):
        return sum(map(_bytes_of_texts, value))
    return len(value.encode(errors="replace")) if isinstance(value, str) else 0


def _tools(request: Request) -> dict[str, Any]:
    if not request.tools:
        return {}
    functions = [
        {
            "name": tool.name,
            "description": tool.description,
            "parameters": dict(tool.schema),
            **({"strict": True} if tool.strict else {}),  # some compatible servers reject the field, even if False
        }
        for tool in request.tools
    ]
    offered = {"tools": [{"type": "function", "function": function} for function in functions]}
    return offered if request.may_call else {**offered, "tool_choice": "none"}


def _format(request: Request) -> dict[str, Any]:
    answer = request.answer
    if answer is None or not answer.strict:
        return {}
    schema = {"name": answer.name, "schema": dict(answer.schema), "strict": True}
    return {"response_format": {"type": "json_schema", "json_schema": schema}}


def _assistant_message(turn: AssistantTurn, vendor: Mapping[str, Any]) -> dict[str, Any]:
    message = {**vendor, "role": "assistant", "content": vendor.get("content", turn.text or None)}
    message.pop("tool_calls", None)
    of_calls = objects_of(vendor.get("tool_calls")) or [{}] * len(turn.calls)
    calls = [_call(call, more) for call, more in zip(turn.calls, of_calls, strict=False)]
    return {**message, "tool_calls": calls} if calls else message


def _call(call: ToolCall, vendor: Mapping[str, Any]) -> dict[str, Any]:
    function = {**object_in(vendor, "function"), "name": call.name, "arguments": canonical(call.args)}
    return {**vendor, "id": call.id, "type": "function", "function": function}


def _with_placeholders(message: dict[str, Any], turn: AssistantTurn, wanted: Collection[str]) -> dict[str, Any]:
    """The message with what stands for the `wanted` fields that it lacks."""
    if "reasoning_content" in wanted:
        text = message.get("reasoning_content") or turn.aside or PLACEHOLDERS["reasoning_content"]
        message = {**message, "reasoning_content": text}
    calls = message.get("tool_calls", [])
    if SIGNATURE in wanted and not any("extra_content" in call for call in calls):  # the first of several has it
        unsigned = {"extra_content": {"google": {SIGNATURE: PLACEHOLDERS[SIGNATURE]}}}
        message = {**message, **({"tool_calls": [{**unsigned, **call} for call in calls]} if calls else {})}
    return message


def _names_of_fields(turn: Turn, model: str) -> set[str]:
    """The names of the vendor fields that a turn brings into a request to `model`."""
    if not isinstance(turn, AssistantTurn) or turn.by != model:
        return set()
    of_calls = [name for call in objects_of(turn.vendor.get("tool_calls")) for name in call if name != "function"]
    return {*turn.vendor, *of_calls} - {"content", "tool_calls"}
