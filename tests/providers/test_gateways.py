"""Errors of gateways and of servers of one's own, which speak as OpenAI does: each is the fault of the provider's own.

The bodies are those of the programs' sources: litellm 1.109.1 (`litellm/`), vllm 0.33.0 (`vllm/`), llama.cpp
(`tools/server/server-common.cpp`), Ollama (`openai/openai.go`), and the page "Errors" of OpenRouter's documentation.
"""

import json
from typing import Any

import pytest

from activities.borders import classify
from evals.fakes.model_api import json_answer
from evals.fakes.script import ModelError, ModelReply, RawBytes, Streamed
from tests.providers.asking import failing
from workflows.faults.fault import Code

WINDOW = "This model's maximum context length is 4096 tokens. However, your prompt contains 5000 input tokens"
QUOTA = "You exceeded your current quota, please check your plan and billing details."


def litellm(code: int, type: str, message: str) -> dict[str, Any]:
    """The body of LiteLLM's proxy, whose `code` is the status as a text: ProxyException.to_dict in proxy/_types.py."""
    return {"error": {"message": message, "type": type, "param": None, "code": str(code)}}


def vllm(code: int, type: str, message: str, param: str | None = None) -> dict[str, Any]:
    """The body of vLLM: ErrorResponse in entrypoints/serve/engine/protocol.py."""
    return {"error": {"message": message, "type": type, "param": param, "code": code}}


def llama_cpp(code: int, type: str, message: str) -> dict[str, Any]:
    """The body of llama.cpp: format_error_response."""
    return {"error": {"code": code, "message": message, "type": type}}


def ollama(type: str, message: str) -> dict[str, Any]:
    """The body of Ollama: NewError."""
    return {"error": {"message": message, "type": type, "param": None, "code": None}}


LITELLM: dict[str, tuple[int, Any, Code]] = {
    # proxy/auth/auth_exception_handler.py and budget_exceeded_status_code in __init__.py; earlier versions 429 and 400
    "a budget": (
        422,
        litellm(422, "budget_exceeded", "Budget has been exceeded! Current cost: 2.0"),
        Code.QUOTA_EXHAUSTED,
    ),
    "a budget, 429": (
        429,
        litellm(429, "budget_exceeded", "ExceededBudget: User=a over budget."),
        Code.QUOTA_EXHAUSTED,
    ),
    "a budget, 400": (400, litellm(400, "budget_exceeded", "ExceededTokenBudget: Current spend"), Code.QUOTA_EXHAUSTED),
    # RouterErrors in types/router.py
    "a budget of the provider": (
        429,
        litellm(
            429, "rate_limit_error", "No deployments available - crossed budget: Exceeded budget for provider openai"
        ),
        Code.QUOTA_EXHAUSTED,
    ),
    # proxy/hooks/parallel_request_limiter_v3.py
    "a rate limit of the key": (
        429,
        litellm(429, "throttling_error", "Rate limit exceeded for api_key: 88dc. Limit type: requests."),
        Code.RATE_LIMITED,
    ),
    # RouterRateLimitError in types/router.py
    "a cooldown": (
        429,
        litellm(
            429, "all_deployments_in_cooldown", "No deployments available for selected model, Try again in 5 seconds."
        ),
        Code.RATE_LIMITED,
    ),
    # litellm_core_utils/exception_mapping_utils.py and exceptions.py
    "a rate limit of the provider": (
        429,
        litellm(
            429, "throttling_error", "litellm.RateLimitError: RateLimitError: OpenAIException - Rate limit reached"
        ),
        Code.RATE_LIMITED,
    ),
    "a quota of the provider": (
        429,
        litellm(429, "throttling_error", f"litellm.RateLimitError: RateLimitError: OpenAIException - {QUOTA}"),
        Code.QUOTA_EXHAUSTED,
    ),
    "no credit": (
        400,
        litellm(
            400, "invalid_request_error", "litellm.BadRequestError: AnthropicException - Your credit balance is too low"
        ),
        Code.QUOTA_EXHAUSTED,
    ),
    "no payment": (
        402,
        litellm(402, "invalid_request_error", "litellm.PaymentRequiredError: pay"),
        Code.QUOTA_EXHAUSTED,
    ),
    "too long for OpenAI": (
        400,
        litellm(400, "invalid_request_error", f"litellm.ContextWindowExceededError: litellm.BadRequestError: {WINDOW}"),
        Code.TOO_LARGE,
    ),
    "too long for Anthropic": (
        400,
        litellm(
            400, "invalid_request_error", "litellm.ContextWindowExceededError: AnthropicError - prompt is too long"
        ),
        Code.TOO_LARGE,
    ),
    "a policy": (
        400,
        litellm(400, "invalid_request_error", "litellm.ContentPolicyViolationError: OpenAIException - violating"),
        Code.REFUSED,
    ),
    # proxy/guardrails/guardrail_hooks/lakera_ai_v2.py and others
    "a guardrail": (400, litellm(400, "invalid_request_error", "Violated guardrail policy"), Code.REFUSED),
    # proxy/route_llm_request.py
    "an unknown model": (
        400,
        litellm(
            400, "invalid_request_error", "/chat/completions: Invalid model name passed in model=x. Call `/v1/models`"
        ),
        Code.NEEDS_PERSON,
    ),
    # proxy/auth/user_api_key_auth.py and auth_checks.py
    "an unknown key": (401, litellm(401, "token_not_found_in_db", "Authentication Error, Invalid"), Code.UNAUTHORIZED),
    "an expired key": (401, litellm(401, "expired_key", "Authentication Error - Expired Key."), Code.UNAUTHORIZED),
    "a model that the key may not use": (
        403,
        litellm(403, "key_model_access_denied", "key not allowed"),
        Code.FORBIDDEN,
    ),
    "a wrong key of its own": (
        401,
        litellm(
            401, "invalid_request_error", "litellm.AuthenticationError: OpenAIException - Incorrect API key provided"
        ),
        Code.UNAUTHORIZED,
    ),
    # proxy/db/exception_handler.py
    "no database": (503, litellm(503, "no_db_connection", "DB not connected."), Code.OVERLOADED),
    "a timeout": (408, litellm(408, "timeout_error", "litellm.Timeout: APITimeoutError"), Code.TIMEOUT),
    "no connection": (500, litellm(500, "internal_server_error", "litellm.APIConnectionError: no"), Code.SERVER_ERROR),
    "overloaded": (503, litellm(503, "internal_server_error", "litellm.ServiceUnavailableError: no"), Code.OVERLOADED),
}
VLLM: dict[str, tuple[int, Any, Code]] = {
    # renderers/params.py, entrypoints/serve/utils/api_utils.py and entrypoints/openai/responses/serving.py
    "too long": (
        400,
        vllm(400, "BadRequestError", f"{WINDOW} (parameter=input_tokens)", "input_tokens"),
        Code.TOO_LARGE,
    ),
    "too long, an older version": (
        400,
        {"object": "error", "message": WINDOW, "type": "BadRequestError", "param": None, "code": 400},
        Code.TOO_LARGE,
    ),
    "too long by itself": (
        400,
        vllm(400, "BadRequestError", "Input length (5000) exceeds model's maximum context length (4096)."),
        Code.TOO_LARGE,
    ),
    "too long in Responses": (
        400,
        vllm(
            400, "invalid_request_error", "The engine prompt length 5000 exceeds the max_model_len 4096. Please reduce"
        ),
        Code.TOO_LARGE,
    ),
    # entrypoints/serve/engine/serving.py
    "an unknown model": (404, vllm(404, "NotFoundError", "The model `x` does not exist.", "model"), Code.NEEDS_PERSON),
    # renderers/online_renderer.py
    "no tools": (
        400,
        vllm(
            400,
            "BadRequestError",
            '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
        ),
        Code.NEEDS_PERSON,
    ),
    # entrypoints/serve/middleware/authenticate.py
    "a wrong key": (401, {"error": "Unauthorized"}, Code.UNAUTHORIZED),
    # QueueOverflowError in exceptions.py, and entrypoints/serve/elastic_ep/middleware.py
    "busy": (503, vllm(503, "Service Unavailable", "The engine is currently busy and cannot accept"), Code.OVERLOADED),
    "scaling": (503, {"error": "The model is currently scaling. Please try again later."}, Code.OVERLOADED),
    # EngineDeadError and GenerationError in entrypoints/serve/exception_handling/error_response.py
    "dead": (500, vllm(500, "InternalServerError", "EngineCore encountered an issue."), Code.SERVER_ERROR),
    "a wrong field": (400, vllm(400, "Bad Request", "[{'type': 'missing'}]", "messages"), Code.MALFORMED_SCHEMA),
}
OTHERS: dict[str, tuple[int, Any, Code]] = {
    "llama.cpp, too long": (
        400,
        llama_cpp(400, "exceed_context_size_error", "request (5000 tokens) exceeds the available context size (4096)"),
        Code.TOO_LARGE,
    ),
    "llama.cpp, loading": (503, llama_cpp(503, "unavailable_error", "Loading model"), Code.OVERLOADED),
    "llama.cpp, a wrong key": (401, llama_cpp(401, "authentication_error", "Invalid API Key"), Code.UNAUTHORIZED),
    "Ollama, an unknown model": (
        404,
        ollama("not_found_error", 'model "x" not found, try pulling it'),
        Code.NEEDS_PERSON,
    ),
    "Ollama, no tools": (
        400,
        ollama("invalid_request_error", "registry.ollama.ai/library/gemma:2b does not support tools"),
        Code.NEEDS_PERSON,
    ),
    "Ollama, busy": (
        503,
        ollama("api_error", "server busy, please try again.  maximum pending requests exceeded"),
        Code.OVERLOADED,
    ),
    "OpenRouter, no credit": (402, {"error": {"code": 402, "message": "Insufficient credits"}}, Code.QUOTA_EXHAUSTED),
    "OpenRouter, too many": (429, {"error": {"code": 429, "message": "Rate limit exceeded"}}, Code.RATE_LIMITED),
    "OpenRouter, moderated": (
        403,
        {"error": {"code": 403, "message": "Your chosen model requires moderation and your input was flagged"}},
        Code.REFUSED,
    ),
    "OpenRouter, no tools": (
        404,
        {"error": {"code": 404, "message": "No endpoints found that support tool use."}},
        Code.NEEDS_PERSON,
    ),
    "OpenRouter, too long": (
        400,
        {"error": {"code": 400, "message": "This endpoint's maximum context length is 4096 tokens."}},
        Code.TOO_LARGE,
    ),
    "OpenRouter, its provider": (
        502,
        {"error": {"code": 502, "message": "Provider returned error"}},
        Code.SERVER_ERROR,
    ),
    "a type that is no text": (400, {"error": {"message": "no", "type": {"a": 1}, "code": [1]}}, Code.MALFORMED_SCHEMA),
}
ERRORS = {
    f"{program}: {name}": error
    for program, errors in {"litellm": LITELLM, "vllm": VLLM, "others": OTHERS}.items()
    for name, error in errors.items()
}


@pytest.mark.parametrize("wire", ["openai", "responses"])
@pytest.mark.parametrize(("status", "body", "code"), ERRORS.values(), ids=ERRORS)
async def test_an_error_of_a_gateway_is_the_fault_of_the_provider_s_own(
    wire: str, status: int, body: Any, code: Code
) -> None:
    """One request, and the same decision as for the provider: retry, wait, summarise, another model, a person."""
    api, error = await failing(wire, RawBytes(json_answer(status, json.dumps(body).encode())))

    assert (classify(error).code, len(api.bodies)) == (code, 1)


AS_ANTHROPIC: dict[str, tuple[int, str, str, Code]] = {
    "a budget": (422, "api_error", "Budget has been exceeded! Current cost: 2.0", Code.QUOTA_EXHAUSTED),
    "a quota": (429, "rate_limit_error", f"litellm.RateLimitError: OpenAIException - {QUOTA}", Code.QUOTA_EXHAUSTED),
    "too many": (429, "rate_limit_error", "litellm.RateLimitError: AnthropicException - slow", Code.RATE_LIMITED),
    "too long": (400, "invalid_request_error", "litellm.ContextWindowExceededError: too long", Code.TOO_LARGE),
    "a policy": (400, "invalid_request_error", "Violated guardrail policy", Code.REFUSED),
}


@pytest.mark.parametrize(("status", "type", "message", "code"), AS_ANTHROPIC.values(), ids=AS_ANTHROPIC)
async def test_litellm_s_errors_in_anthropic_s_form_are_the_same(
    status: int, type: str, message: str, code: Code
) -> None:
    """The form is made from the status and the message: anthropic_interface/exceptions/exception_mapping_utils.py."""
    api, error = await failing("anthropic", ModelError(status, type, message))

    assert (classify(error).code, len(api.bodies)) == (code, 1)


IN_A_STREAM: dict[str, tuple[Any, Code]] = {
    "litellm: too many": (litellm(429, "throttling_error", "litellm.RateLimitError: no"), Code.RATE_LIMITED),
    "litellm: a quota": (litellm(429, "throttling_error", f"litellm.RateLimitError: {QUOTA}"), Code.QUOTA_EXHAUSTED),
    "litellm: overloaded": (litellm(503, "None", "litellm.ServiceUnavailableError: no"), Code.OVERLOADED),
    "litellm: a budget": (litellm(422, "budget_exceeded", "Budget has been exceeded!"), Code.QUOTA_EXHAUSTED),
    "vllm: broken": (vllm(500, "InternalServerError", "Internal server error"), Code.SERVER_ERROR),
    "vllm: try again": (vllm(503, "ServiceUnavailableError", "Request failed; please retry"), Code.OVERLOADED),
    "vllm: wrong": (vllm(400, "BadRequestError", "no"), Code.MALFORMED_SCHEMA),
    "openrouter: gone": ({"error": {"code": "server_error", "message": "Provider disconnected"}}, Code.SERVER_ERROR),
    "openrouter: broken": ({"error": {"code": 502, "message": "Provider returned error"}}, Code.SERVER_ERROR),
    "no code": ({"error": {"message": "no"}}, Code.SERVER_ERROR),
    "a code that is no status": ({"error": {"message": "no", "code": 7}}, Code.SERVER_ERROR),
}


@pytest.mark.parametrize(("event", "code"), IN_A_STREAM.values(), ids=IN_A_STREAM)
async def test_an_error_in_a_stream_has_its_status_as_its_code(event: Any, code: Code) -> None:
    """After 200 there is no other status: LiteLLM sends it as text, vLLM and OpenRouter as a number."""
    failed = f"data: {json.dumps(event)}\n\n".encode()
    _, error = await failing("openai", Streamed(ModelReply(text="It is warmer in Rome."), events=2, then=failed))

    assert classify(error).code is code


async def test_the_wait_until_a_gateway_s_limit_ends_is_kept() -> None:
    """LiteLLM says it for a limit of a key and for a cooldown of all deployments."""
    body = json.dumps(LITELLM["a cooldown"][1]).encode()
    _, error = await failing("openai", RawBytes(json_answer(429, body, **{"retry-after": "5"})))

    assert (classify(error).code, classify(error).retry_after) == (Code.RATE_LIMITED, 5)


async def test_a_key_that_the_gateway_s_provider_rejects_is_not_the_worker_s() -> None:
    """Whoever is told to mend the worker's key would look in the wrong place."""
    status, body, _ = LITELLM["a wrong key of its own"]
    _, error = await failing("openai", RawBytes(json_answer(status, json.dumps(body).encode())))

    assert "its own provider" in classify(error).reason


@pytest.mark.parametrize("name", ["vllm: no tools", "others: Ollama, no tools", "others: OpenRouter, no tools"])
async def test_a_model_without_tool_calls_is_said_to_be_one(name: str) -> None:
    """The remedy is another model, or an option of the server."""
    status, body, _ = ERRORS[name]
    _, error = await failing("openai", RawBytes(json_answer(status, json.dumps(body).encode())))

    assert "tool calls" in classify(error).reason
