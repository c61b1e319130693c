"""The adapter of Anthropic's Messages API."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, ClassVar, NamedTuple

from activities.providers.adapter import (
    ModelAdapter,
    count,
    counts,
    field_of,
    replace_surrogates,
    stop_word,
    with_unique_ids,
)
from activities.providers.arguments import is_too_deep, parse_call
from activities.providers.messages import AssistantTurn, Reply, Request, StopReason, ToolCall, ToolResult, Turn, Usage
from activities.providers.streaming import ReplyDraft, object_in, objects_of, text_of
from activities.providers.strict import ANTHROPIC
from activities.providers.vendor_fields import joined, vendor_fields

DEFAULT_MODEL = "claude-sonnet-5-5"
HOST = "api.anthropic.com"


class StrictRow(NamedTuple):
    """Whether some models take strict schemas at Anthropic's own address."""

    models: tuple[str, ...]
    """Patterns of their names, as of files: `*` is any text, `[5-9]` is one of these digits."""
    is_strict: bool
    sources: tuple[str, ...]


OLD = ("claude-2*", "claude-3*", "claude-instant*", "claude-*-4", "claude-*-4-[01]*", "claude-*-4-20*")
# "Gemini Enterprise Agent Platform supports structured outputs for all Anthropic Claude 4.5 and later models."
VERTEX = (
    "https://docs.cloud.google.com/gemini-enterprise-agent-platform/models/partner-models/claude/structured-outputs"
)
STRICT: Sequence[StrictRow] = (
    # They are not in the list of the models with structured outputs.
    StrictRow(OLD, False, (ANTHROPIC.source,)),
    StrictRow(("claude-*-4-[5-9]*", "claude-mythos-preview"), True, (ANTHROPIC.source,)),
    StrictRow(("claude-*-5", "claude-*-5-*"), True, (ANTHROPIC.source, VERTEX)),
)
"""The first row that matches a model's name decides. A model without a row is probably newer, and gets strict schemas:
if it rejects them, they are left out (see `StrictModel`)."""
EFFORTS = "https://platform.claude.com/docs/en/build-with-claude/effort"
WITHOUT_EFFORT: Sequence[str] = (*OLD, "claude-sonnet-4-5*", "claude-haiku-4*")
"""Patterns of the models that EFFORTS does not list; they reject an effort with a 400."""
CACHED: Mapping[str, Any] = {"cache_control": {"type": "ephemeral"}}
"""Marks the end of the part of a request that the provider shall cache, because the next request begins with the same
part."""
COUNTS = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "total_tokens")
THOUGHTS = ("thinking", "redacted_thinking")
PLAIN: Mapping[str, Sequence[str]] = {
    "text": ("type", "text", "citations"),
    "tool_use": ("type", "id", "name", "input", "caller"),
}
"""By the type of a block, the fields that need not go back as they came, since the turn has what they say."""
ARGUMENTS = "input_json_delta"
BEGINNING: Mapping[str, str] = {"text_delta": "text", "thinking_delta": "thinking"}
"""By the type of a part whose block never began, the type of its block."""
UNFINISHED = "unfinished"
"""The reason to stop of a message with a call whose block has no end, in place of the server's."""
STOP_REASONS: Mapping[str | None, StopReason] = {
    "end_turn": StopReason.DONE,
    "stop_sequence": StopReason.DONE,
    "tool_use": StopReason.CALLS,
    "pause_turn": StopReason.CUT,
    "max_tokens": StopReason.CUT,
    "model_context_window_exceeded": StopReason.CUT,
    UNFINISHED: StopReason.CUT,
    "refusal": StopReason.REFUSED,
}
UNUSED = (StopReason.CUT, StopReason.REFUSED)


def takes_strict(model: str) -> bool:
    """Whether a model takes strict schemas at Anthropic's own address."""
    return next((row.is_strict for row in STRICT if any(fnmatchcase(model, name) for name in row.models)), True)


def takes_effort(model: str) -> bool:
    """Whether a model has efforts at Anthropic's own address; True for an unknown model, which is probably newer."""
    return not any(fnmatchcase(model, pattern) for pattern in WITHOUT_EFFORT)


class AnthropicModel(ModelAdapter):
    sdk = "anthropic"
    client = "AsyncAnthropic"
    api = "Anthropic's API"
    needs_limit = True
    without_spans: ClassVar[Mapping[str, Any]] = {"open_telemetry": {"traces": False, "propagation": False}}

    async def _send(self, client: Any, request: Request, limit: int | None) -> Any:
        return await client.messages.create(
            model=self._model,
            stream=True,
            max_tokens=limit,
            system=[{"type": "text", "text": request.system, **_cache_control(request)}],
            messages=_messages(request, self.name, keeps_after_summary=not self._is_own),
            **_tools(request),
            **_format(request),
        )

    def _draft(self) -> ReplyDraft:
        return _AnthropicDraft()

    def _translate(self, response: Mapping[str, Any], limit: int | None) -> Reply:
        content, stop_reason = response.get("content"), stop_word(response.get("stop_reason"))
        if isinstance(content, str):
            content = [{"type": "text", "text": content}]
        if not isinstance(content, list) and (content is not None or stop_reason is None):
            raise ValueError("the message has no content")
        blocks = objects_of(content)
        text = _text(blocks)
        uses = (block for block in blocks if _kind(block) == "tool_use")
        calls = tuple(parse_call(use.get("id"), use.get("name"), use.get("input")) for use in uses)
        stop = STOP_REASONS.get(stop_reason, StopReason.DONE)
        kept = () if stop is StopReason.CUT and blocks and _is_vendors(blocks[-1]) else _kept_blocks(blocks, calls)
        turn = AssistantTurn(text, calls, kept, self.name)
        return Reply(replace_surrogates(turn), self._usage(response), stop)

    def _usage(self, response: Mapping[str, Any]) -> Usage:
        return _usage(response)


class _AnthropicDraft(ReplyDraft):
    """Joins the events of a reply: the parts of each block's text, reasoning or arguments."""

    arguments_fields = ("input", "partial_json")

    def __init__(self) -> None:
        self._content = list[dict[str, Any]]()
        self._message: dict[str, Any] = {"content": self._content}
        self._is_counted = False
        """Whether the server has counted the whole reply; `message_start` has only the tokens of its beginning."""
        self._arguments = list[str]()
        """For each block, the JSON of its arguments, as far as it came; empty for a block that calls no tool."""
        self._open = dict[Any, int]()
        """For each block that has no end yet, by its index in the events: its place in the message."""

    def _add(self, event: Mapping[str, Any]) -> None:
        index = event.get("index")
        index = index if isinstance(index, int | str) else None
        match event.get("type"):
            case "message_start":
                self._start(object_in(event, "message"))
            case "content_block_start":
                self._begin(index, object_in(event, "content_block"))
            case "content_block_delta":
                self._add_part(index, object_in(event, "delta"))
            case "content_block_stop" if (at := self._open.pop(index, None)) is not None:
                if written := self._arguments[at]:
                    self._content[at]["input"] = written
            case "message_delta":
                self._set_stop(object_in(event, "delta").get("stop_reason"))
                self._count(object_in(event, "usage"))
            case "message_stop":
                self._finish()

    def end(self, *, is_done: bool) -> None:
        if is_done and stop_word(self._message.get("stop_reason")):
            self._finish()

    def _finish(self) -> None:
        if any(_kind(self._content[at]) == "tool_use" for at in self._open.values()):
            self._set_stop(UNFINISHED)
        if not self._is_counted:
            self._message["usage"] = {**self.used, "output_tokens": 0}
        self.response = self._message

    @property
    def hides_thoughts(self) -> bool:
        return any(_kind(block) in THOUGHTS for block in [*self._content])

    def counted(self) -> Usage:
        return _usage(self._message)

    def whole_count(self) -> Usage | None:
        return self.counted() if self._is_counted else None

    def text(self) -> str:
        return _text([*self._content])

    def calls(self) -> list[tuple[str, Any]]:
        return [
            (text_of(block.get("name")), arguments)
            for block, arguments in zip([*self._content], self._arguments, strict=False)
            if _kind(block) == "tool_use"
        ]

    def _start(self, message: Mapping[str, Any]) -> None:
        self.used = object_in(message, "usage")
        self._message |= {**message, "content": self._content, "usage": self.used}
        for block in objects_of(message.get("content")):
            self._content.append({**block})
            self._arguments.append("")

    def _begin(self, index: Any, block: Mapping[str, Any]) -> None:
        if index in self._open and _kind(self._content[self._open[index]]) == "tool_use":
            self._set_stop(UNFINISHED)  # whose parts the next ones are, nobody knows
        self.is_opened = True
        self._open[index] = len(self._arguments)
        self._content.append({**block})
        self._arguments.append("")

    def _add_part(self, index: Any, delta: Mapping[str, Any]) -> None:
        kind, part = text_of(delta.get("type")), {name: value for name, value in delta.items() if name != "type"}
        if kind == ARGUMENTS and index not in self._open:
            self._set_stop(UNFINISHED)  # the call to which this part belongs has another end, or no beginning
            return
        if index not in self._open and kind not in BEGINNING:
            return
        if index not in self._open:
            self._begin(index, {"type": BEGINNING[kind]})
        at = self._open[index]
        if kind == ARGUMENTS:
            self._arguments[at] += text_of(part.get("partial_json"))
        else:
            part = {"citations": [part["citation"]]} if kind == "citations_delta" and "citation" in part else part
            self._content[at] = joined(self._content[at], part)
        self.written += sum(len(value.encode(errors="replace")) for value in part.values() if isinstance(value, str))

    def _set_stop(self, reason: Any) -> None:
        """Set the reason to stop, unless `reason` is none, or it is known already that the reply cannot be used."""
        if stop_word(reason) and STOP_REASONS.get(stop_word(self._message.get("stop_reason"))) not in UNUSED:
            self._message["stop_reason"] = reason

    def _count(self, used: Mapping[str, Any]) -> None:
        """Set the tokens that an event counts: totals, which replace those of `message_start`."""
        # A server may count the input at the beginning alone, and then none.
        larger = {name: used[name] for name in COUNTS if count(used, name) > count(self.used, name)}
        parts = {"output_tokens_details": used["output_tokens_details"]} if used.get("output_tokens_details") else {}
        self.used = self._message["usage"] = {**used, **self.used, **larger, **parts}
        self._is_counted |= count(used, "output_tokens") > 0


def _kind(block: Mapping[str, Any]) -> str:
    """The type of a block; a block with a text needs none."""
    return text_of(block.get("type")) or ("text" if "text" in block else "")


def _text(blocks: Iterable[Mapping[str, Any]]) -> str:
    return "\n".join(filter(None, (text_of(block.get("text")) for block in blocks if _kind(block) == "text")))


def _usage(message: Mapping[str, Any]) -> Usage:
    used = message.get("usage")
    of_cache = field_of(used, "cache_creation")
    written = sum(count(of_cache, f"ephemeral_{time}_input_tokens") for time in ("5m", "1h"))
    return counts(
        used,
        "input",
        "output",
        read=count(used, "cache_read_input_tokens"),
        written=max(written, count(used, "cache_creation_input_tokens")),
        is_cache_apart=True,
    )


def _tools(request: Request) -> dict[str, Any]:
    # A call is never forced (`tool_choice: any`), because newer models reject that.
    if not request.tools:
        return {}
    tools = [
        {
            "name": tool.name,
            "description": tool.description,
            "input_schema": dict(tool.schema),
            **({"strict": True} if tool.strict else {}),
        }
        for tool in request.tools
    ]
    offered = {"tools": [*tools[:-1], {**tools[-1], **_cache_control(request)}]}
    return offered if request.may_call else {**offered, "tool_choice": {"type": "none"}}


def _format(request: Request) -> dict[str, Any]:
    answer, config = request.answer, dict[str, Any]()
    if request.effort:
        config["effort"] = request.effort
    if answer is not None and answer.strict:
        config["format"] = {"type": "json_schema", "schema": dict(answer.schema)}
    return {"output_config": config} if config else {}


def _cache_control(request: Request) -> Mapping[str, Any]:
    return {} if request.skip_cache else CACHED


def _messages(request: Request, model: str, *, keeps_after_summary: bool) -> list[dict[str, Any]]:
    turns = with_unique_ids(request.turns, model, changes_blocks=True)
    messages = [_message(turn, model, keeps_after_summary=keeps_after_summary) for turn in turns]
    last = messages[-1]["content"]
    last[-1] = {**last[-1], **_cache_control(request)}
    return messages


def _message(turn: Turn, model: str, *, keeps_after_summary: bool) -> dict[str, Any]:
    blocks = [{"type": "text", "text": turn.text}] if turn.text.strip() else []
    if isinstance(turn, AssistantTurn):
        # Anthropic's signatures are valid only with the turns that the summary replaced; others want thoughts always.
        own = turn.by == model and turn.blocks and (keeps_after_summary or not turn.follows_summary)
        return {"role": "assistant", "content": [*turn.blocks] if own else [*blocks, *map(_tool_use, turn.calls)]}
    return {"role": "user", "content": [*map(_tool_result, turn.results), *blocks]}


def _tool_use(call: ToolCall) -> dict[str, Any]:
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": call.args}


def _tool_result(result: ToolResult) -> dict[str, Any]:
    plain = {"type": "tool_result", "tool_use_id": result.call_id, "content": result.text}
    return {**plain, "is_error": True} if result.is_error else plain


def _is_vendors(block: Mapping[str, Any]) -> bool:
    """Whether a block has more than a text or a call, so that the vendor may want it back as it is."""
    return bool(vendor_fields(block, PLAIN.get(_kind(block), ())))


def _kept_blocks(blocks: Sequence[Mapping[str, Any]], calls: Sequence[ToolCall]) -> tuple[dict[str, Any], ...]:
    # The API signs thoughts, and wants all blocks of such a turn back unchanged.
    if not any(map(_is_vendors, blocks)) or any(map(is_too_deep, blocks)):
        return ()
    inputs = (call.args for call in calls)
    sendable = (block for block in blocks if _kind(block) != "text" or text_of(block.get("text")).strip())
    return tuple(_with_input(block, inputs) for block in sendable)


def _with_input(block: Mapping[str, Any], inputs: Iterator[Mapping[str, Any]]) -> dict[str, Any]:
    """The block with its input as JSON, since the draft has it as a text; `inputs` are those of the calls."""
    if _kind(block) == "tool_use":
        return {**block, "input": next(inputs)}
    return {**block, "input": parse_call("", "", block["input"]).args} if "input" in block else {**block}
