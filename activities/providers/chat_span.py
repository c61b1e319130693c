"""The span of a model call, as OpenTelemetry's conventions for generative AI describe `chat`."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from activities import tracing
from activities.providers.messages import Reply, Request, StopReason, Turn, UserTurn

FINISH_REASONS: Mapping[StopReason, str] = {
    StopReason.DONE: "stop",
    StopReason.CALLS: "tool_call",
    StopReason.CUT: "length",
    StopReason.REFUSED: "content_filter",
}


@contextmanager
def chat_span(name: str, request: Request) -> Iterator[Callable[[Reply], None]]:
    """Record one request to the model with the full name `name` in a span; call what it yields with the reply."""
    recorder = tracing.RECORDER.get()
    if recorder is None:
        yield lambda _reply: None
        return
    provider, _, rest = name.partition(":")
    model, _, host = rest.partition("@")
    about: tracing.Attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": provider,
        "gen_ai.request.model": model or provider,
        **({"server.address": host.rpartition(":")[0] or host} if host else {}),
        **({"gen_ai.request.max_tokens": request.max_output} if request.max_output else {}),
    }
    with tracing.span(f"chat {model or provider}", about, is_client=True) as span:
        if span is not None and recorder.captures_content:
            span.set_attributes(
                recorder.content(
                    gen_ai__system_instructions=json.dumps([_text(request.system)]),
                    gen_ai__input__messages=json.dumps([_message(turn) for turn in request.turns]),
                )
            )

        def record_reply(reply: Reply) -> None:
            if span is None:
                return
            use, reason = reply.usage, FINISH_REASONS[reply.stop]
            written = {**_message(reply.turn), "finish_reason": reason}
            found: tracing.Attributes = {
                "gen_ai.response.finish_reasons": [reason],
                # The conventions count the cached input, too.
                "gen_ai.usage.input_tokens": use.input + use.cache_read + use.cache_write,
                "gen_ai.usage.output_tokens": use.output,
                **({"gen_ai.usage.cache_read.input_tokens": use.cache_read} if use.cache_read else {}),
                **({"gen_ai.usage.cache_write.input_tokens": use.cache_write} if use.cache_write else {}),
                **({"gen_ai.usage.reasoning.output_tokens": use.reasoning} if use.reasoning else {}),
            }
            content = recorder.content(gen_ai__output__messages=json.dumps([written]))
            span.set_attributes({**found, **content})

        yield record_reply


def _text(text: str) -> dict[str, str]:
    return {"type": "text", "content": text}


def _message(turn: Turn) -> dict[str, Any]:
    text = [_text(turn.text)] if turn.text else []
    if isinstance(turn, UserTurn):
        answers = [
            {"type": "tool_call_response", "id": result.call_id, "response": result.text} for result in turn.results
        ]
        return {"role": "user", "parts": [*answers, *text]}
    calls = [{"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.args} for call in turn.calls]
    return {"role": "assistant", "parts": [*text, *calls]}
