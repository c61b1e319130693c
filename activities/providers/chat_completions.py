"""The adapter of OpenAI's Chat Completions API, which other servers speak, too: Ollama, vLLM, llama.cpp."""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from activities.borders.model_errors import error_in
from activities.providers import spoken
from activities.providers.adapter import (
    Endpoint,
    ModelAdapter,
    count,
    counts,
    field_of,
    replace_surrogates,
    stop_word,
    with_unique_ids,
)
from activities.providers.arguments import is_object, parse_call
from activities.providers.billing import End
from activities.providers.messages import AssistantTurn, Reply, Request, StopReason, UnusableResponse, Usage
from activities.providers.streaming import Draft
from workflows.json_values import canonical

if TYPE_CHECKING:  # to import the SDK takes a second; the adapter does it at the first request
    from openai.types.chat import ChatCompletion, ChatCompletionChunk

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
REASONING = ("reasoning_content", "reasoning")
"""Fields with a model's reasoning: of DeepSeek, vLLM, llama.cpp and LM Studio; of Ollama and OpenRouter."""


class ChatCompletions(ModelAdapter):
    sdk = "openai"
    client = "AsyncOpenAI"
    api = "OpenAI's API"

    def __init__(
        self, model: str, endpoint: Endpoint, effort: str | None = None, *, is_reasoning: bool | None = None
    ) -> None:
        """`is_reasoning` is whether the model reasons without showing its reasoning; None if that is not known."""
        super().__init__(model, endpoint, effort)
        self._hides_reasoning = self._is_own if is_reasoning is None else is_reasoning

    async def _send(self, client: Any, request: Request, limit: int | None) -> Any:
        return await client.chat.completions.create(
            model=self._model,
            stream=True,
            stream_options={"include_usage": True},
            **({"max_completion_tokens": limit} if limit else {}),
            **({"reasoning_effort": effort} if (effort := request.effort or self._effort) else {}),
            **({"stop": list(request.stop)} if request.stop and not self._is_own else {}),
            messages=list(_messages(request, self.name)),
            **_tools(request),
            **_format(request),
        )

    def _draft(self) -> Draft:
        return _ChatDraft(self._response, self._counts)

    def _response(self, body: dict[str, Any]) -> "ChatCompletion":
        from openai.types.chat import ChatCompletion

        return ChatCompletion.construct(**body)

    def _translate(self, response: "ChatCompletion", limit: int | None) -> Reply:
        choice = response.choices[0]
        if stop_word(choice.finish_reason) in FAILED:
            used = self._usage(response)
            reason = f"{self._server_name} ended its reply in the middle with an error of its own."
            raise UnusableResponse(reason, used if used.tokens else None, End.ERROR_EVENT)
        message = choice.message
        functions = [(call.id or "", getattr(call, "function", None)) for call in message.tool_calls or ()]
        # Only functions were offered, so a call of another type is dropped.
        calls = tuple(parse_call(id, function.name, function.arguments) for id, function in functions if function)
        stop = STOP_REASONS.get(stop_word(choice.finish_reason), StopReason.DONE)
        if message.refusal:
            stop = StopReason.REFUSED
        elif limit is not None and count(response.usage, "completion_tokens") >= limit and stop is StopReason.DONE:
            stop = StopReason.CUT  # it fills its limit, even if the server reports `stop`
        thoughts, text = spoken.split_thoughts(message.content or "")
        aside = "\n".join(filter(None, (_reasoning(message), thoughts)))
        turn = AssistantTurn(text, calls, by=self.name, aside=aside)
        return Reply(replace_surrogates(turn), self._usage(response), stop)

    def _usage(self, response: "ChatCompletion") -> Usage:
        return self._counts(response.usage)

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


class _ChatDraft(Draft):
    """Joins the chunks of a reply: the parts of the text, and the parts of each call's arguments."""

    def __init__(self, completion: Callable[[dict[str, Any]], Any], counts: Callable[[Any], Usage]) -> None:
        self._completion = completion
        self._counts = counts
        self._calls = list[dict[str, Any]]()
        self._message: dict[str, Any] = {"role": "assistant", "content": "", "reasoning": "", "tool_calls": self._calls}
        self._usage: Any = None
        self._has_stale_usage = False
        """Whether a part of the reply came after the newest usage, so that its output is a part of the whole."""
        self._ends_with_usage = False
        """Whether nothing of the reply came after a chunk that has only the usage."""
        self._stop: str | None = None

    def add(self, chunk: "ChatCompletionChunk") -> None:
        if failed := error_in(chunk):
            self.failed = failed
            return
        # In the last chunk, after the reason to stop, or in each chunk; Kimi has it in the choice.
        used = chunk.usage
        for choice in chunk.choices or ():
            self._add_choice(choice)
            used = used or field_of(choice, "usage")
        if used:
            self._usage, self._has_stale_usage, self._ends_with_usage = used, False, not chunk.choices

    def _add_choice(self, choice: Any) -> None:
        delta = choice.delta
        self.written += _bytes_of_texts({**delta.to_dict(warnings=False), "role": None}) if delta else 0
        words, reasoning = getattr(delta, "content", None) or "", _reasoning(delta)
        refusal, parts = getattr(delta, "refusal", None), getattr(delta, "tool_calls", None) or ()
        self._message["content"] += words
        self._message["reasoning"] += reasoning
        if refusal:
            self._message["refusal"] = self._message.get("refusal", "") + refusal
        for part in parts:
            self._add_call(part)
        is_cut = STOP_REASONS.get(self._stop) in UNUSED
        if words or reasoning or refusal or parts:
            # What was the end so far is none.
            self._has_stale_usage, self._ends_with_usage = True, False
            self._stop = self._stop if is_cut else None
        self._stop = self._stop if is_cut else stop_word(choice.finish_reason) or self._stop

    def end(self, *, is_done: bool) -> None:
        # Some servers never give a reason to stop: then `[DONE]` or the end after the usage is the end of the reply.
        if self._stop or self._ends_with_usage or (is_done and self._usage):
            # Without a reason, arguments that never came may have been cut.
            is_cut = not self._stop and not all(call["function"]["arguments"] for call in self._calls)
            ended = {"index": 0, "message": self._message, "finish_reason": "length" if is_cut else self._stop}
            only_input = {"prompt_tokens": field_of(self._usage, "prompt_tokens")}
            usage = only_input if self._has_stale_usage else self._usage
            self.response = self._completion({"choices": [ended], "usage": usage})

    def counted(self) -> Usage:
        return self._counts(self._usage)

    def text(self) -> str:
        return str(self._message["content"])

    def calls(self) -> list[tuple[str, Any]]:
        functions = [call["function"] for call in [*self._calls]]
        return [(function["name"], function["arguments"]) for function in functions]

    def _add_call(self, part: Any) -> None:
        function = part.function
        call = self._open(part)
        call["id"] = call["id"] or part.id
        if function:
            # Some servers repeat the name in each part.
            known = call["function"]["name"]
            call["function"]["name"] += "" if function.name == known else function.name or ""
            call["function"]["arguments"] = _join_arguments(call["function"]["arguments"], function.arguments)

    def _open(self, part: Any) -> dict[str, Any]:
        """The call that a part belongs to, or a new one: some servers give no id, and each call the index 0 or none."""
        index = part.index
        found = next((call for call in reversed(self._calls) if index is None or call["index"] == index), None)
        if found is None or _begins(found, part):
            found = {"index": index, "id": None, "type": "function", "function": {"name": "", "arguments": ""}}
            self._calls.append(found)
        return found


def _begins(open_call: Mapping[str, Any], part: Any) -> bool:
    """Whether a part with the index of an open call begins another call."""
    if not (part.function and part.function.name):
        return False
    if part.id and open_call["id"] and part.id != open_call["id"]:
        return True
    name, written, more = open_call["function"]["name"], open_call["function"]["arguments"], part.function.arguments
    if part.function.name != name:
        return bool(written)  # else the name comes in parts
    return bool(more) and is_object(written)


def _reasoning(delta: Any) -> str:
    return next((text for name in REASONING if isinstance(text := getattr(delta, name, None), str)), "")


def _join_arguments(before: Any, part: Any) -> Any:
    part = "{}" if part == {} else part  # in place of a text, perhaps before the whole object
    if not part or before in ("", "{}"):
        return part or before
    # Some servers repeat the whole arguments. Two texts that differ stay two, and so are no JSON.
    return before if part == before and is_object(before) else before + part


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


def _messages(request: Request, model: str) -> Iterator[dict[str, Any]]:
    yield {"role": "system", "content": request.system}
    for turn in with_unique_ids(request.turns, model):
        if isinstance(turn, AssistantTurn):
            functions = [(call.id, {"name": call.name, "arguments": canonical(call.args)}) for call in turn.calls]
            calls = [{"id": id, "type": "function", "function": function} for id, function in functions]
            yield {"role": "assistant", "content": turn.text or None, **({"tool_calls": calls} if calls else {})}
            continue
        for result in turn.results:
            yield {"role": "tool", "tool_call_id": result.call_id, "content": result.text}
        if turn.text:
            yield {"role": "user", "content": turn.text}
