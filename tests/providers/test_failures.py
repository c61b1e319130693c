"""What providers refuse and what never arrives, on the wire: one request each, and the fault that it is."""

import asyncio
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from activities.borders import classify
from evals.fakes.model_api import json_answer, running
from evals.fakes.script import DROPPED, Delayed, ModelError, ModelReply, RawBytes, Response
from tests.providers.asking import ASKED, failing, request
from tests.providers.planning import api_of, model_of
from workflows.faults.fault import Code

FAILURES: list[tuple[str, Response, Code]] = [
    ("anthropic", ModelError(429, "rate_limit_error"), Code.RATE_LIMITED),
    ("anthropic", ModelError(500, "api_error"), Code.SERVER_ERROR),
    ("anthropic", ModelError(529, "overloaded_error"), Code.OVERLOADED),
    ("anthropic", ModelError(503, "api_error"), Code.OVERLOADED),
    ("anthropic", ModelError(409, "conflict_error"), Code.BUSY),
    ("anthropic", ModelError(404, "not_found_error"), Code.NEEDS_PERSON),
    ("anthropic", ModelError(403, "permission_error"), Code.FORBIDDEN),
    ("anthropic", ModelError(402, "billing_error"), Code.QUOTA_EXHAUSTED),
    ("anthropic", ModelError(400, "invalid_request_error"), Code.MALFORMED_SCHEMA),
    ("anthropic", ModelError(400, "invalid_request_error", "Your credit balance is too low"), Code.QUOTA_EXHAUSTED),
    ("anthropic", ModelError(400, "invalid_request_error", "prompt is too long: 2 > 1"), Code.TOO_LARGE),
    ("anthropic", ModelError(413, "request_too_large"), Code.TOO_LARGE),
    ("anthropic", ModelError(400, "invalid_request_error", code="organization_on_hold"), Code.FORBIDDEN),
    ("anthropic", ModelError(429, "rate_limit_error", code="enforced_spend_limit_reached"), Code.QUOTA_EXHAUSTED),
    ("anthropic", ModelError(429, "rate_limit_error", code="ramp_limit_exceeded"), Code.RATE_LIMITED),
    ("openai", ModelError(429, "requests", code="rate_limit_exceeded"), Code.RATE_LIMITED),
    ("openai", ModelError(429, "insufficient_quota", code="insufficient_quota"), Code.QUOTA_EXHAUSTED),
    ("openai", ModelError(429, "insufficient_quota"), Code.QUOTA_EXHAUSTED),
    ("openai", ModelError(500, "server_error", code="server_error"), Code.SERVER_ERROR),
    ("openai", ModelError(503, "server_error"), Code.OVERLOADED),
    ("openai", ModelError(409, "conflict"), Code.BUSY),
    ("openai", ModelError(404, "invalid_request_error", code="model_not_found"), Code.NEEDS_PERSON),
    ("openai", ModelError(400, "invalid_request_error", code="context_length_exceeded"), Code.TOO_LARGE),
    ("openai", ModelError(400, "invalid_request_error"), Code.MALFORMED_SCHEMA),
    ("openai", ModelError(400, "invalid_request_error", "To use function tools, use /v1/responses"), Code.NEEDS_PERSON),
    ("openai", ModelError(404, "invalid_request_error", "only supported in v1/responses"), Code.NEEDS_PERSON),
    ("responses", ModelError(400, "invalid_request_error", code="context_length_exceeded"), Code.TOO_LARGE),
    ("responses", ModelError(400, "invalid_request_error", code="invalid_encrypted_content"), Code.NEEDS_PERSON),
    ("responses", ModelError(400, "invalid_request_error", code="model_not_found"), Code.NEEDS_PERSON),
    ("responses", ModelError(400, "invalid_request_error", code="invalid_prompt"), Code.REFUSED),
    ("responses", ModelError(429, "insufficient_quota", code="insufficient_quota"), Code.QUOTA_EXHAUSTED),
    ("responses", ModelError(429, "tokens", code="rate_limit_exceeded"), Code.RATE_LIMITED),
    ("responses", ModelError(500, "server_error", code="server_error"), Code.SERVER_ERROR),
    ("openai", ModelError(403, "request_forbidden", code="unsupported_country_region_territory"), Code.FORBIDDEN),
    ("openai", ModelError(400, "invalid_request_error", code="content_filter"), Code.REFUSED),
]
"""What a provider says, and what it means: type and code before status, status before class."""


@pytest.mark.parametrize(("whose", "move", "code"), FAILURES)
async def test_what_a_refusal_means(whose: str, move: Response, code: Code) -> None:
    """One request on the wire, whatever the SDK would do by itself."""
    api, error = await failing(whose, move)

    assert (classify(error).code, len(api.bodies)) == (code, 1)


BROKEN: dict[str, tuple[RawBytes, Code]] = {
    "dropped": (DROPPED, Code.UNREACHABLE),
    "no HTTP": (RawBytes(b"nonsense\r\n\r\n"), Code.UNREACHABLE),
    "truncated": (RawBytes(json_answer(200, b'{"id": "x"', **{"content-length": "9999"})), Code.UNREACHABLE),
    "no JSON": (RawBytes(json_answer(200, b'{"id": ')), Code.SERVER_ERROR),
    "another JSON": (RawBytes(json_answer(200, b"{}")), Code.SERVER_ERROR),
    "a list": (RawBytes(json_answer(200, b"[1]")), Code.SERVER_ERROR),
    "a page": (RawBytes(json_answer(200, b"<html>hello", **{"content-type": "text/html"})), Code.SERVER_ERROR),
    "an error": (
        RawBytes(json_answer(200, b'{"type": "error", "error": {"type": "overloaded_error"}}')),
        Code.OVERLOADED,
    ),
    "a proxy's page": (RawBytes(json_answer(502, b"<html>bad", **{"content-type": "text/html"})), Code.SERVER_ERROR),
    "nothing": (RawBytes(json_answer(200, b"")), Code.SERVER_ERROR),
}


@pytest.mark.parametrize(("raw", "code"), BROKEN.values(), ids=BROKEN)
async def test_what_is_no_answer_is_transient(provider: str, raw: RawBytes, code: Code) -> None:
    """A connection that broke, and whatever somebody in between answered."""
    api, error = await failing(provider, raw)

    assert (classify(error).code, len(api.bodies)) == (code, 1)


async def test_a_server_that_is_not_there_is_unreachable(provider: str) -> None:
    """Nobody listens on the port any more."""
    async with running(api_of(provider, DROPPED)) as api:
        model = model_of(provider, api)
    with pytest.raises(Exception) as raised:  # which class is the SDK's business
        await model.reply(request(ASKED))

    assert classify(raised.value).code is Code.UNREACHABLE


def in_two_minutes() -> str:
    """As an HTTP date."""
    return format_datetime(datetime.now(UTC) + timedelta(seconds=120), usegmt=True)


@pytest.mark.parametrize(
    ("headers", "least", "most"),
    [
        ({"retry-after": "2"}, 2, 2),
        ({"retry-after": in_two_minutes}, 60, 120),
        ({"retry-after-ms": "1500", "retry-after": "2"}, 1.5, 1.5),
    ],
    ids=["seconds", "date", "milliseconds"],
)
async def test_the_wait_that_a_provider_asks_for(
    provider: str, headers: dict[str, Any], least: float, most: float
) -> None:
    """In seconds, as a date, or to the millisecond."""
    given = {name: value() if callable(value) else value for name, value in headers.items()}
    _, error = await failing(provider, ModelError(429, "rate_limit_error", headers=given))
    wait = classify(error).retry_after

    assert wait is not None and least <= wait <= most


ANSWERS = {
    "too many": ModelError(429, "rate_limit_error"),
    "a wrong key": ModelError(401, "authentication_error"),
    "broken": ModelError(500, "api_error"),
    **{name: raw for name, (raw, _) in BROKEN.items()},
}


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
async def test_a_server_in_the_provider_s_place_is_named(provider: str, answer: ModelError | RawBytes) -> None:
    """Whoever runs a model of their own is not sent to the provider, whatever that server answers."""
    _, error = await failing(provider, answer)

    assert "he model server at 127.0.0.1 " in classify(error).reason
    assert "'s API" not in classify(error).reason


async def test_a_wrong_key_is_said_without_the_key(provider: str) -> None:
    """Providers quote it in their answers; the fault never does."""
    _, error = await failing(provider, ModelReply(text="Rome."), key="sk-wrong-9876543210")
    fault = classify(error)

    assert fault.code is Code.UNAUTHORIZED
    assert "sk-" not in fault.model_dump_json()


async def test_a_cancelled_call_ends_the_request(provider: str) -> None:
    """The server sees that nobody waits any more."""
    async with running(api_of(provider, Delayed(60, ModelReply(text="Rome.")))) as api:
        asking = asyncio.create_task(model_of(provider, api).reply(request(ASKED)))
        while not api.bodies:
            await asyncio.sleep(0.05)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        while not api.aborted:
            await asyncio.sleep(0.05)

    assert (api.aborted, len(api.bodies)) == (1, 1)
