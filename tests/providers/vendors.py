"""A server that answers with prepared bytes, and keeps what it was asked: the rules of vendors are added to it."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from activities.providers.adapter import AdapterOptions, Endpoint
from activities.providers.anthropic import AnthropicModel
from activities.providers.messages import LanguageModel, Reply, ToolResult, Turn, UserTurn
from activities.providers.openai import OpenAIModel
from evals.fakes.model_api import KEY, MODEL, Json, ModelApi, running
from evals.fakes.openai_api import OpenAIApi
from evals.fakes.script import ModelError, RawBytes, Response
from tests.providers.asking import ASKED, request
from tests.providers.wire import START, STOP, body, chunk, response, stream, text, total, used

Rule = Callable[[list[Json]], str]
"""Says what is wrong with the messages of a request; an empty text if nothing is."""
DEEPSEEK = "The `reasoning_content` in the thinking mode must be passed back to the API."
GEMINI = "Function call is missing a thought_signature in functionCall parts."
MISTRAL = "body.messages.2.assistant.reasoning_content: Extra inputs are not permitted"


@dataclass
class Recorder(OpenAIApi):
    """Has no rules but `rule`; `bodies` are the requests."""

    rule: Rule = lambda _messages: ""

    def answer(self, path: str, headers: Mapping[str, str], body: Json) -> Response:
        if wrong := self.rule(body.get("messages", [])):
            return ModelError(400, "invalid_request_error", wrong)
        scripted = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        assert isinstance(scripted, RawBytes)
        return scripted


def model_at(provider: str, api: ModelApi, options: AdapterOptions | None = None, model: str = MODEL) -> LanguageModel:
    """The adapter of a server."""
    if provider == "anthropic":
        return AnthropicModel(model, Endpoint(KEY, api.url, 3))
    found = options or AdapterOptions({f"openai:{model}": "responses"} if provider == "responses" else {})
    return OpenAIModel(model, Endpoint(KEY, f"{api.url}/v1", 3), found)


def answered(reply: Reply) -> list[Turn]:
    """The conversation after a reply, whose calls have results."""
    return [*ASKED, reply.turn, UserTurn("Go on.", tuple(ToolResult(call.id, "30") for call in reply.turn.calls))]


async def second_request(provider: str, raw: RawBytes, rule: Rule = lambda _messages: "") -> tuple[Reply, list[Json]]:
    """The reply to a first request, and the turns of the second one, in the words of the API."""
    async with running(Recorder([raw], rule=rule)) as api:
        model = model_at(provider, api)
        reply = await model.reply(request(ASKED))
        await model.reply(request(answered(reply)))
    return reply, api.bodies[-1]["input" if provider == "responses" else "messages"]


def deltas(*each: Json, stop: str = "stop") -> RawBytes:
    """A stream of Chat Completions with these deltas."""
    return stream(*map(chunk, each), chunk({}, stop), used(), {})


def message(whole: Json, stop: str = "stop") -> RawBytes:
    """The same as one JSON."""
    return whole_reply({"index": 0, "message": {"role": "assistant", **whole}, "finish_reason": stop})


def whole_reply(choice: Json) -> RawBytes:
    """One JSON of Chat Completions with this choice."""
    return body(json.dumps({"id": "c", "choices": [choice], "usage": used()["usage"]}))


def blocks(*content: Json, stop: str = "end_turn") -> RawBytes:
    """One JSON of Messages with these blocks."""
    counts = {"input_tokens": 100, "output_tokens": 20}
    return body(json.dumps({**START["message"], "content": [*content], "stop_reason": stop, "usage": counts}))


def events_of(*parts: Json, stop: str = "end_turn") -> RawBytes:
    """A stream of Messages with these events of its blocks."""
    return stream(START, *parts, total(stop), STOP)


WHOLE: Mapping[str, tuple[Json | bytes, ...]] = {
    "openai": (chunk({"role": "assistant", "content": "Ro"}), chunk({"content": "me."}), chunk({}, "stop"), used(), {}),
    "anthropic": (START, *text(0, "Rome."), total("end_turn"), STOP),
    "responses": (
        {"type": "response.output_text.delta", "item_id": "m", "output_index": 0, "content_index": 0, "delta": "Rome."},
        response(
            {
                **{"type": "message", "id": "m", "role": "assistant", "status": "completed"},
                "content": [{"type": "output_text", "text": "Rome.", "annotations": []}],
            }
        ),
    ),
}
"""The events of a reply that says `Rome.`, and counts 100 and 20 tokens."""
