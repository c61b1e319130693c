"""The adapter of OpenAI's Responses API. OpenAI stores nothing: each request contains the whole conversation.

A reply is a list of items: reasoning, which is encrypted, messages, and calls. They are kept in the turn's `blocks`,
and sent back unchanged, because the API wants each item of reasoning directly before the item that followed it.
"""

import importlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx2

from activities.providers.adapter import (
    Endpoint,
    ModelAdapter,
    count,
    counts,
    field_of,
    replace_surrogates,
    with_unique_ids,
)
from activities.providers.arguments import is_too_deep, parse_call
from activities.providers.messages import (
    AssistantTurn,
    Reply,
    Request,
    StopReason,
    ToolCall,
    Usage,
    UserTurn,
)
from activities.providers.streaming import ReplyDraft, object_in, objects_of, text_of
from workflows.json_values import canonical

ENCRYPTED_REASONING = "reasoning.encrypted_content"
UNFINISHED = ("queued", "in_progress", "cancelled")
UNFINISHED_ITEM = ("in_progress", "incomplete")
REFUSED = ("content_filter",)
"""The reasons of an incomplete response that count as a refusal; any other reason means that its end is missing."""


class Responses(ModelAdapter):
    sdk = "openai"
    client = "AsyncOpenAI"
    api = "OpenAI's API"

    def __init__(self, model: str, endpoint: Endpoint, effort: str | None = None, *, is_reasoning: bool = True) -> None:
        """`is_reasoning` is False for a model that does not reason, which rejects a request for encrypted reasoning."""
        super().__init__(model, endpoint, effort)
        self._hides_reasoning = is_reasoning

    async def _send(self, client: Any, request: Request, limit: int | None) -> Any:
        return await client.responses.create(
            model=self._model,
            stream=True,
            store=False,
            instructions=request.system,
            input=list(_items(request, self.name)),
            **({"include": [ENCRYPTED_REASONING]} if self._hides_reasoning else {}),
            **({"max_output_tokens": limit} if limit else {}),
            **({"reasoning": {"effort": effort}} if (effort := request.effort or self._effort) else {}),
            **_tools(request),
            **_format(request),
        )

    def _draft(self) -> ReplyDraft:
        return _ResponsesDraft(self._event_error, self._usage)

    def _translate(self, response: Mapping[str, Any], limit: int | None) -> Reply:
        if response.get("status") == "failed":
            raise self._failure(self._event_error(response.get("error")), self._usage(response))
        if response.get("status") in UNFINISHED:
            raise ValueError(f"the response is {response['status']}")
        if not isinstance(response.get("output"), list):
            raise TypeError("the response has no output")
        items = objects_of(response["output"])
        calls = tuple(
            parse_call(item.get("call_id"), item.get("name"), item.get("arguments"))
            for item in items
            if item.get("type") == "function_call"
        )
        parts = [part for item in items if item.get("type") == "message" for part in _parts(item)]
        said = (text_of(part.get("text")) for part in parts if part.get("type") == "output_text")
        is_refused = any(part.get("type") == "refusal" for part in parts)
        stop = _stop(response, items, calls, is_refused=is_refused)
        is_kept = _is_whole(response, items, calls) and not any(map(is_too_deep, items))
        blocks = tuple({**item} for item in items if is_kept)
        turn = AssistantTurn("\n".join(filter(None, said)), calls, blocks, self.name)
        return Reply(replace_surrogates(turn), self._usage(response), stop)

    def _usage(self, response: Mapping[str, Any]) -> Usage:
        used = response.get("usage")
        details = field_of(used, "input_tokens_details")
        read, written = count(details, "cached_tokens"), count(details, "cache_write_tokens")
        return counts(used, "input", "output", read=read, written=written)

    def _event_error(self, message: Any) -> Exception:
        """The SDK's exception for an error that the API reports in an event."""
        sdk = importlib.import_module(self.sdk)
        body = message if isinstance(message, Mapping) else {"message": message} if message else {}
        request = httpx2.Request("POST", self._endpoint.url or "https://api.openai.com/v1")
        error: Exception = sdk.APIError(str(body.get("message")), request, body=body)
        return error


@dataclass
class _Item:
    """An item of a response that has begun to come, or has come."""

    index: Any
    begun: Mapping[str, Any]
    arguments: list[str] = field(default_factory=list)
    """The parts of a call's arguments."""
    done: Mapping[str, Any] | None = None
    """The complete item."""

    @property
    def order(self) -> float:
        return self.index if isinstance(self.index, int) else math.inf


class _ResponsesDraft(ReplyDraft):
    def __init__(self, error: Callable[[Any], Exception], usage: Callable[[Mapping[str, Any]], Usage]) -> None:
        self._error, self._usage = error, usage
        self._text = list[str]()
        self._items = list[_Item]()

    def text(self) -> str:
        return "".join(self._text)

    def calls(self) -> list[tuple[str, Any]]:
        begun = [item for item in [*self._items] if item.begun.get("type") == "function_call"]
        return [(text_of(item.begun.get("name")), "".join(item.arguments)) for item in begun]

    def _add(self, event: Mapping[str, Any]) -> None:
        type, index, item = text_of(event.get("type")), event.get("output_index"), object_in(event, "item")
        self.is_opened |= type == "response.output_item.added"
        match type:
            case "response.completed" | "response.incomplete" | "response.failed":
                self._end(type.removeprefix("response."), object_in(event, "response"))
            case "error":
                raise self._error(event)
            case "response.output_item.added":
                self._items.append(_Item(index, item))
            case "response.output_item.done":
                self._close(index, item)
            case "response.output_text.delta":
                self._text.append(text_of(event.get("delta")))
            case "response.function_call_arguments.delta" if found := self._open(index, event.get("item_id")):
                found.arguments.append(text_of(event.get("delta")))
        if type.endswith(".delta"):
            self.written += len(str(event.get("delta", "")).encode(errors="replace"))

    def _open(self, index: Any, id: Any) -> _Item | None:
        """The item with an index that has no end yet; of several, which some servers send, that with the `id`."""
        near = [item for item in reversed(self._items) if item.index == index and item.done is None]
        return next((item for item in near if id and item.begun.get("id") == id), near[0] if near else None)

    def _close(self, index: Any, done: Mapping[str, Any]) -> None:
        found = self._open(index, done.get("id"))
        if found is None:
            self._items.append(found := _Item(index, {}))
        found.done = done

    def _end(self, kind: str, response: Mapping[str, Any]) -> None:
        """Set the response of the last event, which is `completed`, `incomplete` or `failed`."""
        self.used = object_in(response, "usage")
        status = text_of(response.get("status"))
        output = response.get("output")
        if not output:  # some servers send the items in their own events alone
            output = [item.done for item in sorted(self._items, key=lambda item: item.order) if item.done is not None]
        if not output and self._text:  # or the text alone
            part = {"type": "output_text", "text": self.text()}
            output = [{"type": "message", "content": [part]}]
        is_cut = (status or kind) == "completed" and not all(
            _is_finished(item, output) for item in self._items if item.begun.get("type") == "function_call"
        )
        status = "incomplete" if is_cut else kind if kind != "completed" or not status else status
        self.response = {**response, "status": status, "output": output}

    def whole_count(self) -> Usage | None:
        return self._usage({"usage": self.used}) if self.used else None


def _is_finished(begun: _Item, output: Any) -> bool:
    """Whether a call that began has an end in the output, with the arguments that came for it."""
    written = "".join(begun.arguments)
    id = begun.begun.get("call_id")
    return any(
        (begun.done is not None or item.get("status") == "completed")
        and not (written and _args(item.get("arguments")) != _args(written))
        for item in objects_of(output)
        if item.get("type") == "function_call" and (id is None or id == item.get("call_id"))
    )


def _args(arguments: Any) -> Mapping[str, Any]:
    return parse_call("", "", arguments).args


def _parts(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    content = message.get("content")
    return [{"type": "output_text", "text": content}] if isinstance(content, str) else objects_of(content)


def _stop(
    response: Mapping[str, Any], items: Iterable[Mapping[str, Any]], calls: Sequence[ToolCall], *, is_refused: bool
) -> StopReason:
    calling = (item for item in items if item.get("type") == "function_call")
    if response.get("status") == "incomplete" or any(item.get("status") in UNFINISHED_ITEM for item in calling):
        is_filtered = object_in(response, "incomplete_details").get("reason") in REFUSED
        return StopReason.REFUSED if is_filtered else StopReason.CUT
    if is_refused:
        return StopReason.REFUSED
    return StopReason.CALLS if calls else StopReason.DONE


def _is_whole(response: Mapping[str, Any], items: Sequence[Mapping[str, Any]], calls: Iterable[ToolCall]) -> bool:
    """Whether the items of a response can be sent back to the API: a complete item must follow each reasoning."""
    last = items[-1].get("type") if items else "reasoning"
    is_complete = response.get("status") != "incomplete" and last != "reasoning"
    is_sendable = all(item.get("type") and (item.get("id") or item["type"] != "message") for item in items)
    return is_complete and is_sendable and not any(call.broken for call in calls)


def _tools(request: Request) -> dict[str, Any]:
    if not request.tools:
        return {}
    tools = [
        {
            "type": "function",
            "name": tool.name,
            "description": tool.description,
            "parameters": dict(tool.schema),
            "strict": tool.strict,  # if it is missing, the API takes true
        }
        for tool in request.tools
    ]
    return {"tools": tools} if request.may_call else {"tools": tools, "tool_choice": "none"}


def _format(request: Request) -> dict[str, Any]:
    answer = request.answer
    if answer is None or not answer.strict:
        return {}
    schema = {"type": "json_schema", "name": answer.name, "schema": dict(answer.schema), "strict": True}
    return {"text": {"format": schema}}


def _items(request: Request, model: str) -> Iterator[Mapping[str, Any]]:
    for turn in with_unique_ids(request.turns, model):
        if isinstance(turn, UserTurn):
            yield from _user_items(turn)
        else:
            # Its signatures are valid only with the turns that a summary replaced.
            is_kept = turn.blocks and turn.by == model and not turn.follows_summary
            yield from turn.blocks if is_kept else _assistant_items(turn)


def _user_items(turn: UserTurn) -> Iterator[dict[str, Any]]:
    for result in turn.results:
        yield {"type": "function_call_output", "call_id": result.call_id, "output": result.text}
    if turn.text.strip():
        yield {"role": "user", "content": turn.text}


def _assistant_items(turn: AssistantTurn) -> Iterator[dict[str, Any]]:
    """Yield the items of a turn without reasoning and ids: the API demands the reasoning of an item that has an id."""
    if turn.text.strip():
        yield {"role": "assistant", "content": turn.text}
    for call in turn.calls:
        yield {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": canonical(call.args)}
