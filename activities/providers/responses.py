"""The adapter of OpenAI's Responses API. OpenAI stores nothing: each request contains the whole conversation.

A reply is a list of items: reasoning, which is encrypted, messages, and calls. They are kept in the turn's `blocks`,
and sent back unchanged, because the API wants each item of reasoning directly before the item that followed it.
"""

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import httpx2

from activities.providers.adapter import (
    Endpoint,
    ModelAdapter,
    count,
    counts,
    replace_surrogates,
    with_unique_ids,
)
from activities.providers.arguments import parse_call
from activities.providers.messages import (
    AssistantTurn,
    Reply,
    Request,
    StopReason,
    ToolCall,
    Usage,
    UserTurn,
)
from activities.providers.streaming import Draft
from workflows.json_values import canonical

if TYPE_CHECKING:  # to import the SDK takes a second; the adapter does it at the first request
    from openai.types.responses import Response, ResponseStreamEvent

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

    def _draft(self) -> Draft:
        return _ResponsesDraft(self._event_error)

    def _response(self, body: dict[str, Any]) -> "Response":
        from openai.types.responses import Response

        return Response.construct(**body)

    def _translate(self, response: "Response", limit: int | None) -> Reply:
        if response.status == "failed":
            raise self._failure(self._event_error(response.error), self._usage(response))
        if response.status in UNFINISHED:
            raise ValueError(f"the response is {response.status}")
        calls = tuple(
            parse_call(getattr(item, "call_id", None), item.name, item.arguments)
            for item in response.output
            if item.type == "function_call"
        )
        parts = [part for item in response.output if item.type == "message" for part in item.content]
        text = "\n".join(part.text for part in parts if part.type == "output_text" and part.text)
        stop = _stop(response, calls, is_refused=any(part.type == "refusal" for part in parts))
        items: Iterable[Any] = response.output if _is_whole(response, calls) else ()
        blocks = tuple(item.to_dict(mode="python", warnings=False) for item in items)
        return Reply(replace_surrogates(AssistantTurn(text, calls, blocks, self.name)), self._usage(response), stop)

    def _usage(self, response: "Response") -> Usage:
        details = getattr(response.usage, "input_tokens_details", None)
        read, written = count(details, "cached_tokens"), count(details, "cache_write_tokens")
        return counts(response.usage, "input", "output", read=read, written=written)

    def _event_error(self, message: Any) -> Exception:
        """The SDK's exception for an error that the API reports in an event."""
        sdk = importlib.import_module(self.sdk)
        body = message.to_dict(warnings=False) if message else {}
        request = httpx2.Request("POST", self._endpoint.url or "https://api.openai.com/v1")
        error: Exception = sdk.APIError(str(body.get("message")), request, body=body)
        return error


class _ResponsesDraft(Draft):
    def __init__(self, error: Callable[[Any], Exception]) -> None:
        self._error = error
        self._text = list[str]()
        self._begun = dict[int, Any]()
        """The items of calls that have begun, by their index in the response."""
        self._arguments = dict[int, list[str]]()
        """For each call, by the index of its item in the response: the parts of its arguments."""
        self._items = dict[int, Any]()
        """The items that are complete, by their index in the response."""

    def text(self) -> str:
        return "".join(self._text)

    def calls(self) -> list[tuple[str, Any]]:
        return [(item.name, "".join(self._arguments.get(at, ()))) for at, item in [*self._begun.items()]]

    def add(self, event: "ResponseStreamEvent") -> None:
        self.is_opened |= event.type == "response.output_item.added"
        match event.type:
            case "response.completed" | "response.incomplete" | "response.failed":
                self._end(event.type.removeprefix("response."), event.response)
            case "error":
                raise self._error(event)
            case "response.output_item.done":
                self._items[event.output_index] = event.item
            case "response.output_item.added" if event.item.type == "function_call":
                self._begun[event.output_index] = event.item
            case type if type.endswith(".delta"):
                self.written += len(str(getattr(event, "delta", "")).encode(errors="replace"))
        match event.type:
            case "response.output_text.delta":
                self._text.append(event.delta)
            case "response.function_call_arguments.delta":
                self._arguments.setdefault(event.output_index, []).append(event.delta)

    def _end(self, kind: str, response: Any) -> None:
        """Set the response of the last event, which is `completed`, `incomplete` or `failed`."""
        if kind != "completed" or response.status is None:
            response.status = kind
        if response.status == "completed" and not all(self._is_finished(at, response) for at in self._begun):
            response.status = "incomplete"
        if not response.output:  # some servers send the items in their own events alone
            response.output = [item for _, item in sorted(self._items.items())]
        self.response = response

    def _is_finished(self, at: int, response: Any) -> bool:
        """Whether the call that began at an index has an end, with the arguments that came for it."""
        begun, written = self._begun[at], "".join(self._arguments.get(at, ()))
        items = [item for item in response.output or self._items.values() if item.type == "function_call"]
        return any(
            (at in self._items or item.status == "completed")
            and not (written and _args(item.arguments) != _args(written))
            for item in items
            if getattr(begun, "call_id", None) in (None, getattr(item, "call_id", None))
        )


def _args(arguments: Any) -> Mapping[str, Any]:
    return parse_call("", "", arguments).args


def _stop(response: "Response", calls: Sequence[ToolCall], *, is_refused: bool) -> StopReason:
    calling = (item for item in response.output if item.type == "function_call")
    if response.status == "incomplete" or any(item.status in UNFINISHED_ITEM for item in calling):
        details = response.incomplete_details
        return StopReason.REFUSED if details and details.reason in REFUSED else StopReason.CUT
    if is_refused:
        return StopReason.REFUSED
    return StopReason.CALLS if calls else StopReason.DONE


def _is_whole(response: "Response", calls: Iterable[ToolCall]) -> bool:
    """Whether the items of a response can be sent back to the API: a complete item must follow each reasoning."""
    last = response.output[-1].type if response.output else "reasoning"
    return response.status != "incomplete" and last != "reasoning" and not any(call.broken for call in calls)


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
            yield from turn.blocks if turn.blocks and turn.by == model else _assistant_items(turn)


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
