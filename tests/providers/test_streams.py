"""Errors in the middle of a stream that began with 200, as both SDKs raise them: what time can cure is transient.

The product asks without streams as yet; whoever makes it stream relies on this.
"""

import json
from typing import Any

import anthropic
import openai
import pytest

from activities.borders import classify
from replan.testing.model_api import KEY, MODEL, ModelApi, json_answer, running
from replan.testing.script import RawBytes
from tests.providers.planning import api_of
from workflows.faults import Code, Quadrant

SYSTEM = "You know the weather."
BEGUN: dict[str, Any] = {
    "type": "message_start",
    "message": {
        **{"id": "msg_1", "type": "message", "role": "assistant", "model": MODEL, "content": []},
        **{"stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 9, "output_tokens": 1}},
    },
}
CHUNK: dict[str, Any] = {
    **{"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_760_000_000, "model": MODEL},
    "choices": [{"index": 0, "delta": {"role": "assistant", "content": "R"}, "finish_reason": None}],
}


def streamed(*events: dict[str, Any], cut: bool = False) -> RawBytes:
    """A stream of events; one that is `cut` promises more than it sends."""
    named = [f"event: {event['type']}\n" if "type" in event else "" for event in events]
    body = "".join(f"{name}data: {json.dumps(event)}\n\n" for name, event in zip(named, events, strict=True))
    length = {"content-length": str(len(body) + 99)} if cut else {}
    return RawBytes(json_answer(200, body.encode(), **{"content-type": "text/event-stream"}, **length))


def fails(type: str) -> dict[str, Any]:
    """Anthropic's event of an error."""
    return {"type": "error", "error": {"type": type, "message": "no"}}


def failed(**error: str) -> dict[str, Any]:
    """OpenAI's."""
    return {"error": {"message": "no", "param": None, **error}}


async def listen(provider: str, api: ModelApi) -> None:
    """Read a stream to its end, without the SDK's own retries."""
    asked: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "Hello."}], "stream": True}
    if provider == "anthropic":
        async with anthropic.AsyncAnthropic(api_key=KEY, base_url=api.url, max_retries=0) as one:
            async for _ in await one.messages.create(max_tokens=9, system=SYSTEM, **asked):
                pass
        return
    asked["messages"].insert(0, {"role": "system", "content": SYSTEM})
    async with openai.AsyncOpenAI(api_key=KEY, base_url=f"{api.url}/v1", max_retries=0) as other:
        async for _ in await other.chat.completions.create(**asked):
            pass


BROKEN = [
    ("anthropic", streamed(BEGUN, fails("overloaded_error")), Code.OVERLOADED),
    ("anthropic", streamed(BEGUN, fails("api_error")), Code.SERVER_ERROR),
    ("anthropic", streamed(BEGUN, fails("rate_limit_error")), Code.RATE_LIMITED),
    ("anthropic", streamed(fails("overloaded_error")), Code.OVERLOADED),
    ("anthropic", streamed(BEGUN, cut=True), Code.UNREACHABLE),
    ("openai", streamed(CHUNK, failed(type="server_error", code="server_error")), Code.SERVER_ERROR),
    ("openai", streamed(CHUNK, failed(type="overloaded_error")), Code.SERVER_ERROR),
    ("openai", streamed(failed(type="server_error")), Code.SERVER_ERROR),
    ("openai", streamed(CHUNK, cut=True), Code.UNREACHABLE),
]


@pytest.mark.parametrize(("whose", "stream", "code"), BROKEN)
async def test_an_error_inside_a_stream_is_transient(whose: str, stream: RawBytes, code: Code) -> None:
    """The status said 200: the event decides."""
    api = api_of(whose, stream)
    api.fields |= {"stream"}
    async with running(api):
        with pytest.raises(Exception) as raised:  # which class is the SDK's business
            await listen(whose, api)
    fault = classify(raised.value)

    assert (fault.code, len(api.bodies), api.violations) == (code, 1, [])
    assert fault.quadrant in (Quadrant.TRANSIENT_INFRASTRUCTURAL, Quadrant.TRANSIENT_SEMANTIC)
