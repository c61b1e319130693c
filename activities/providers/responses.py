"""The adapter of OpenAI's Responses API. OpenAI stores nothing: each request contains the whole conversation.

A reply is a list of items: reasoning, which is encrypted, messages, and calls. They are kept in the turn's `blocks`,
and sent back unchanged, because the API wants each item of reasoning directly before the item that followed it.
"""

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import httpx2

from activities.borders import classify
from activities.providers.adapter import Endpoint, ModelAdapter, counts, parse_call, replace_surrogates, with_unique_ids
from activities.providers.messages import (
    AssistantTurn,
    Reply,
    Request,
    StopReason,
    ToolCall,
    UnusableResponse,
    Usage,
    UserTurn,
)
from activities.providers.metering import current_reply
from activities.providers.streaming import Draft
from workflows.json_values import canonical

if TYPE_CHECKING:  # to import the SDK takes a second; the adapter does it at the first request
    from openai.types.responses import Response, ResponseStreamEvent

ENCRYPTED_REASONING = "reasoning.encrypted_content"
UNFINISHED = ("queued", "in_progress", "cancelled")
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
        return _ResponsesDraft(self._error)

    def _response(self, body: dict[str, Any]) -> "Response":
        from openai.types.responses import Response

        return Response.construct(**body)

    def _translate(self, response: "Response") -> Reply:
        if response.status == "failed":
            raise self._failure(response)
        if response.status in UNFINISHED:
            raise ValueError(f"the response is {response.status}")
        calls = tuple(
            parse_call(getattr(item, "call_id", None) or "", item.name or "", item.arguments)
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
        return counts(response.usage, "input", "output")

    def _failure(self, response: "Response") -> Exception:
        """The exception for a response that reports a failure; the tokens that it counts are recorded in the meter."""
        error = self._error(response.error)
        fault, usage = classify(error), self._usage(response)
        if usage.tokens:
            current_reply().failure = usage
        # The tokens are paid, and each retry would use as many again.
        return UnusableResponse(fault.reason, usage) if usage.tokens and fault.quadrant.is_transient else error

    def _error(self, message: Any) -> Exception:
        """The SDK's exception for an error that the API reports in a response or an event with status 200."""
        sdk = importlib.import_module(self.sdk)
        body = message.to_dict(warnings=False) if message else {}
        request = httpx2.Request("POST", self._endpoint.url or "https://api.openai.com/v1")
        error: Exception = sdk.APIError(str(body.get("message")), request, body=body)
        return error


class _ResponsesDraft(Draft):
    def __init__(self, error: Callable[[Any], Exception]) -> None:
        self._error = error
        self._text = list[str]()
        self._names = dict[int, str]()
        self._arguments = dict[int, list[str]]()
        """For each call, by the index of its item in the response: the parts of its arguments."""
        self._items = dict[int, Any]()
        """The items that are complete, by their index in the response."""

    def text(self) -> str:
        return "".join(self._text)

    def calls(self) -> list[tuple[str, Any]]:
        return [(name, "".join(self._arguments.get(at, ()))) for at, name in [*self._names.items()]]

    def add(self, event: "ResponseStreamEvent") -> None:
        self.is_opened |= event.type == "response.output_item.added"
        match event.type:
            case "response.completed" | "response.incomplete" | "response.failed":
                self.response = event.response
                if not self.response.output:  # some servers send the items in their own events alone
                    self.response.output = [item for _, item in sorted(self._items.items())]
            case "error":
                raise self._error(event)
            case "response.output_item.done":
                self._items[event.output_index] = event.item
            case "response.output_item.added" if event.item.type == "function_call":
                self._names[event.output_index] = event.item.name
            case type if type.endswith(".delta"):
                self.written += len(str(getattr(event, "delta", "")).encode(errors="replace"))
        match event.type:
            case "response.output_text.delta":
                self._text.append(event.delta)
            case "response.function_call_arguments.delta":
                self._arguments.setdefault(event.output_index, []).append(event.delta)


def _stop(response: "Response", calls: Sequence[ToolCall], *, is_refused: bool) -> StopReason:
    if response.status == "incomplete":
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
