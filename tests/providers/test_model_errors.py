"""What vendors of models and gateways say when they fail, as real answers over HTTP: each is read as what it means.

The table's own examples come first; then answers that are not in it: other numbers, models, versions and wrappings.
"""

import json
import time
import tomllib
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from activities.borders import classify
from activities.borders.model_errors import Meaning, error_in, meaning_of, meaning_of_words, table
from evals.fakes.model_api import event_bytes, json_answer, running
from evals.fakes.script import DROPPED, ModelError, ModelReply, RawBytes, ReceivedRequest, Response, Streamed
from tests.gate import sampled
from tests.providers.acting import acting
from tests.providers.asking import ASKED, failing, request
from tests.providers.planning import adapter_of, api_of
from tests.providers.plates import GOAL, read_plate
from tests.providers.visitor import FOUND, visitor
from tests.providers.wire import body as whole_body, chunk, error_event, stream, used
from workflows.account.task import TaskStatus
from workflows.faults.fault import Code, Fault

VENDORS = sorted({row.vendor for row in table()})
LONG, SPENT, SLOW, BAD = Code.TOO_LARGE, Code.QUOTA_EXHAUSTED, Code.RATE_LIMITED, Code.MALFORMED_SCHEMA
FULL, BROKEN, PERSON, REFUSED = Code.OVERLOADED, Code.SERVER_ERROR, Code.NEEDS_PERSON, Code.REFUSED
INVALID = "invalid_request_error"
Case = tuple[int, Any, Code]


def answer(status: int, body: Any) -> RawBytes:
    """The answer of a server, whose body is JSON or a text."""
    return RawBytes(json_answer(status, (body if isinstance(body, str) else json.dumps(body)).encode()))


async def fault_of(wire: str, move: Response, key: str | None = None) -> Fault:
    """The fault that an answer to one request is."""
    api, error = await failing(wire, move, key) if key else await failing(wire, move)
    assert len(api.bodies) == 1
    return classify(error)


async def misread(wire: str, cases: list[Case]) -> list[tuple[Case, Code]]:
    """The answers that are read as something else than they mean, all of one server."""
    wrong = list[tuple[Case, Code]]()
    async with running(api_of(wire, *[answer(status, body) for status, body, _ in cases])) as api:
        model = adapter_of(wire, api)
        for case in cases:
            with pytest.raises(Exception) as raised:  # which class is the SDK's business
                await model.reply(request(ASKED))
            found = classify(raised.value).code
            wrong += [(case, found)] if found is not case[2] else []
    return wrong


@pytest.mark.parametrize("vendor", VENDORS)
async def test_the_examples_of_a_vendor_mean_what_their_rows_say(provider: str, vendor: str) -> None:
    """Whichever API the server speaks: proxies send the errors of all vendors in each of them."""
    rows = (row for row in table() if row.vendor == vendor)
    cases: list[Case] = [(example.status, example.body, row.means.code) for row in rows for example in row.examples]

    assert await misread(provider, cases) == []


def test_each_row_can_decide_and_has_a_source() -> None:
    """A row without a code or a text would fit each error; each example is read as its row, not as another reason."""
    examples = [(row.means, example) for row in table() for example in row.examples]

    assert [row.source for row in table() if (row.seen is None) is (row.written is None)] == []  # met, or written
    assert [row.source for row in table() if not (row.codes or row.texts)] == []
    assert [text for row in table() for text in row.texts if text != text.casefold()] == []
    assert [one for means, one in examples if meaning_of(json.loads(one.body), one.status) is not means] == []
    kinds = {Meaning.TOO_LONG, Meaning.QUOTA, Meaning.SLOW_DOWN, Meaning.FILTERED, Meaning.NO_MODEL, Meaning.KEY}
    assert {row.means for row in table()} >= kinds and len(VENDORS) > 25


def said(message: str, **more: Any) -> dict[str, Any]:
    """An error in the form of OpenAI."""
    return {"error": {"message": message, **more}}


SIBLINGS: dict[str, list[Case]] = {
    vendor: [(case["status"], case["body"], Code(case["code"])) for case in cases]
    for vendor, cases in tomllib.loads(Path(__file__).with_name("model_errors.toml").read_text()).items()
}


@pytest.mark.parametrize("vendor", SIBLINGS)
async def test_what_a_vendor_says_in_other_words_means_the_same(provider: str, vendor: str) -> None:
    """Numbers, names and versions differ, and nobody adds a row for each."""
    assert await misread(provider, SIBLINGS[vendor]) == []


POOR, TOO_MUCH = "Your credit balance is too low", "You exceeded your current quota"
QUOTED: list[Case] = [
    (400, said(f"Invalid value: '{POOR}'. Supported values are: 'a' and 'b'."), BAD),
    (400, said(f'messages.2.content: expected a list, got "{TOO_MUCH}, prompt is too long"'), BAD),
    (400, said(f"[{{'type': 'string_type', 'loc': ('body',), 'msg': 'bad', 'input': '{POOR}'}}]", code=400), BAD),
    (400, said(f"Could not parse `{TOO_MUCH}` as JSON", code="bad"), BAD),
    (400, said(f"Bad role in “{POOR}”"), BAD),
    (400, said("bad", failed_generation=POOR, param=TOO_MUCH), BAD),
    (422, {"detail": [{"msg": "Field required", "input": {"messages": [{"content": POOR}]}}]}, BAD),
    (400, said(f"Unexpected tokens in {'x ' * 500} {POOR}"), BAD),
    (400, said('Invalid body: {"messages": [{"role": "user", "content": "insufficient balance"}]}'), BAD),
    (429, said("Too many requests: 'prompt is too long, insufficient credits'"), SLOW),
    (500, said(f"Failed on {POOR}"), BROKEN),
]


async def test_a_quotation_of_a_prompt_says_nothing(provider: str) -> None:
    """A user who writes of an empty account has none."""
    assert await misread(provider, QUOTED) == []


FAILURES: list[tuple[str, ModelError, Code]] = [
    ("anthropic", ModelError(429, "rate_limit_error"), SLOW),
    ("anthropic", ModelError(500, "api_error"), BROKEN),
    ("anthropic", ModelError(529, "overloaded_error"), FULL),
    ("anthropic", ModelError(503, "api_error"), FULL),
    ("anthropic", ModelError(409, "conflict_error"), Code.BUSY),
    ("anthropic", ModelError(404, "not_found_error"), PERSON),
    ("anthropic", ModelError(403, "permission_error"), Code.FORBIDDEN),
    ("anthropic", ModelError(402, "billing_error"), SPENT),
    ("anthropic", ModelError(400, INVALID), BAD),
    ("anthropic", ModelError(400, INVALID, POOR), SPENT),
    ("anthropic", ModelError(400, INVALID, "prompt is too long: 2 > 1"), LONG),
    ("anthropic", ModelError(413, "request_too_large"), LONG),
    ("anthropic", ModelError(400, INVALID, code="organization_on_hold"), Code.FORBIDDEN),
    ("anthropic", ModelError(429, "rate_limit_error", code="enforced_spend_limit_reached"), SPENT),
    ("anthropic", ModelError(429, "rate_limit_error", code="ramp_limit_exceeded"), SLOW),
    ("anthropic", ModelError(422, "api_error", "Budget has been exceeded! Current cost: 2.0"), SPENT),
    ("anthropic", ModelError(429, "rate_limit_error", f"litellm.RateLimitError: OpenAIException - {TOO_MUCH},"), SPENT),
    ("anthropic", ModelError(429, "rate_limit_error", "litellm.RateLimitError: AnthropicException - slow"), SLOW),
    ("anthropic", ModelError(400, INVALID, "litellm.ContextWindowExceededError: too long"), LONG),
    ("anthropic", ModelError(400, INVALID, "Violated guardrail policy"), REFUSED),
    ("openai", ModelError(429, "requests", code="rate_limit_exceeded"), SLOW),
    ("openai", ModelError(429, "insufficient_quota", code="insufficient_quota"), SPENT),
    ("openai", ModelError(429, "insufficient_quota"), SPENT),
    ("openai", ModelError(500, "server_error", code="server_error"), BROKEN),
    ("openai", ModelError(503, "server_error"), FULL),
    ("openai", ModelError(409, "conflict"), Code.BUSY),
    ("openai", ModelError(404, INVALID, code="model_not_found"), PERSON),
    ("openai", ModelError(400, INVALID, code="context_length_exceeded"), LONG),
    ("openai", ModelError(400, INVALID), BAD),
    ("openai", ModelError(400, INVALID, "To use function tools, use /v1/responses"), PERSON),
    ("openai", ModelError(404, INVALID, "only supported in v1/responses"), PERSON),
    ("openai", ModelError(403, "request_forbidden", code="unsupported_country_region_territory"), Code.FORBIDDEN),
    ("openai", ModelError(400, INVALID, code="content_filter"), REFUSED),
    ("responses", ModelError(400, INVALID, code="context_length_exceeded"), LONG),
    ("responses", ModelError(400, INVALID, code="invalid_encrypted_content"), PERSON),
    ("responses", ModelError(400, INVALID, code="model_not_found"), PERSON),
    ("responses", ModelError(400, INVALID, code="invalid_prompt"), REFUSED),
    ("responses", ModelError(429, "insufficient_quota", code="insufficient_quota"), SPENT),
    ("responses", ModelError(429, "tokens", code="rate_limit_exceeded"), SLOW),
    ("responses", ModelError(500, "server_error", code="server_error"), BROKEN),
]
"""What a provider says, and what it means: type and code before status, status before class."""


@pytest.mark.parametrize(("whose", "move", "code"), FAILURES)
async def test_what_a_refusal_means(whose: str, move: Response, code: Code) -> None:
    """One request on the wire, whatever the SDK would do by itself."""
    assert (await fault_of(whose, move)).code is code


PAGE = {"content-type": "text/html"}
NO_ANSWER: dict[str, tuple[RawBytes | ModelError, Code]] = {
    "dropped": (DROPPED, Code.UNREACHABLE),
    "no HTTP": (RawBytes(b"nonsense\r\n\r\n"), Code.UNREACHABLE),
    "truncated": (RawBytes(json_answer(200, b'{"id": "x"', **{"content-length": "9999"})), Code.UNREACHABLE),
    "no JSON": (answer(200, '{"id": '), BROKEN),
    "another JSON": (answer(200, {}), BROKEN),
    "a list": (answer(200, [1]), BROKEN),
    "a page": (RawBytes(json_answer(200, b"<html>hello", **PAGE)), BROKEN),
    "an error": (answer(200, {"type": "error", "error": {"type": "overloaded_error"}}), FULL),
    "a proxy's page": (RawBytes(json_answer(502, b"<html>bad", **PAGE)), BROKEN),
    "nothing": (answer(200, ""), BROKEN),
    "too many": (ModelError(429, "rate_limit_error"), SLOW),
    "a wrong key": (ModelError(401, "authentication_error"), Code.UNAUTHORIZED),
}


@pytest.mark.parametrize(("move", "code"), NO_ANSWER.values(), ids=NO_ANSWER)
async def test_a_server_in_the_provider_s_place_is_named(provider: str, move: Response, code: Code) -> None:
    """A connection that broke, and whatever somebody in between answered: nobody is sent to the provider for it."""
    fault = await fault_of(provider, move)

    assert fault.code is code
    assert "he model server at 127.0.0.1 " in fault.reason and "'s API" not in fault.reason


async def test_a_wrong_key_is_said_without_the_key(provider: str) -> None:
    """Providers quote it in their answers; the fault never does."""
    fault = await fault_of(provider, ModelReply(text="Rome."), key="sk-wrong-9876543210")

    assert fault.code is Code.UNAUTHORIZED and "sk-" not in fault.model_dump_json()


async def test_the_wait_that_a_provider_asks_for(provider: str) -> None:
    """In seconds, as a date, or to the millisecond."""
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=120), usegmt=True)
    given = [{"retry-after": "2"}, {"retry-after": date}, {"retry-after-ms": "1500", "retry-after": "2"}]
    waits = [(await fault_of(provider, ModelError(429, "x", headers=one))).retry_after or 0 for one in given]

    assert (waits[0], waits[2], 60 <= waits[1] <= 120) == (2, 1.5, True)


REASONS: dict[str, tuple[int, Any, str]] = {
    "a key that the gateway's provider rejects": (
        *(401, said("litellm.AuthenticationError: OpenAIException - Incorrect API key provided", type=INVALID)),
        "its own provider",
    ),
    "no tools in vLLM": (400, said('"auto" tool choice requires --enable-auto-tool-choice'), "tool calls"),
    "no tools in Ollama": (400, said("library/gemma:2b does not support tools", type=INVALID), "tool calls"),
    "no tools in OpenRouter": (404, said("No endpoints found that support tool use.", code=404), "tool calls"),
}


@pytest.mark.parametrize(("status", "body", "words"), REASONS.values(), ids=REASONS)
async def test_a_person_is_told_where_to_look(status: int, body: Any, words: str) -> None:
    """Whoever is told to mend the worker's key, or the task, would look in the wrong place."""
    assert words in (await fault_of("openai", answer(status, body))).reason


CUT, GONE = "This endpoint's maximum context length is 4096 tokens", "litellm.ServiceUnavailableError: no"
EVENTS: dict[str, tuple[str, Any, Code]] = {
    "an error": ("openai", said("Insufficient credits", code=402), SPENT),
    "a text": ("openai", {"error": "Input validation error: `inputs` must have less than 9 tokens. Given: 10"}, LONG),
    "an error of a choice": (
        *("openai", {**chunk({}, "error"), "choices": [{"delta": {}, "error": {"code": 429, "message": "slow"}}]}),
        SLOW,
    ),
    "an error object": ("openai", {"object": "error", "message": "no", "type": "BadRequestError", "code": 400}, BAD),
    "MiniMax": ("openai", {"choices": None, "base_resp": {"status_code": 1008, "status_msg": "no"}}, SPENT),
    "Gemini's list": ("openai", [said("The model is overloaded.", code=503, status="UNAVAILABLE")], FULL),
    "a raw cause": ("openai", said("no", code=502, metadata={"raw": "prompt is too long: 9 > 8"}), LONG),
    "a reason to stop": ("openai", chunk({}, "error"), BROKEN),
    "a code that is no status": ("openai", said("Provider disconnected", code="server_error"), BROKEN),
    "LiteLLM: too many": ("openai", said("litellm.RateLimitError: no", type="throttling_error", code="429"), SLOW),
    "LiteLLM: a quota": ("openai", said(f"litellm.RateLimitError: {TOO_MUCH},", type="x", code="429"), SPENT),
    "LiteLLM: overloaded": ("openai", said(GONE, type="None", code="503"), FULL),
    "LiteLLM: a budget": ("openai", said("Budget has been exceeded!", type="budget_exceeded", code="422"), SPENT),
    "vLLM: broken": ("openai", said("Internal server error", type="InternalServerError", code=500), BROKEN),
    "vLLM: try again": ("openai", said("Please retry", type="ServiceUnavailableError", code=503), FULL),
    "OpenRouter: broken": ("openai", said("Provider returned error", code=502), BROKEN),
    "no code": ("openai", said("no"), BROKEN),
    "a number that is no status": ("openai", said("no", code=7), BROKEN),
    "of the server": ("openai", said("no", type="server_error", code="server_error", param=None), BROKEN),
    "a quota": ("openai", said("no", type="insufficient_quota", code="insufficient_quota"), SPENT),
    "invalid": ("openai", said("no", type=INVALID, code=None), BAD),
    "Messages: overloaded": ("anthropic", {"type": "error", "error": {"type": "overloaded_error"}}, FULL),
    "Messages: money": ("anthropic", {"type": "error", "error": {"type": INVALID, "message": POOR}}, SPENT),
    "Messages: billing": ("anthropic", {"type": "error", "error": {"type": "billing_error", "message": "no"}}, SPENT),
    "Messages: no type": ("anthropic", {"type": "error", "error": {"type": None, "message": "boom"}}, BROKEN),
    "Messages: invalid": ("anthropic", {"type": "error", "error": {"type": INVALID, "message": "no"}}, BAD),
    "Responses: too long": ("responses", {"type": "error", "code": "context_length_exceeded", "message": "x"}, LONG),
    "Responses: money": ("responses", {"type": "error", "code": None, "message": "Insufficient Balance"}, SPENT),
    "Responses: a quota": ("responses", {"type": "error", "code": "insufficient_quota", "message": "no"}, SPENT),
    "Responses: the server": ("responses", {"type": "error", "code": "server_error", "message": "no"}, BROKEN),
    "Responses: invalid": ("responses", {"type": "error", "code": None, "message": "no"}, BROKEN),  # no type is told
}


@pytest.mark.parametrize(("wire", "event", "code"), EVENTS.values(), ids=EVENTS)
async def test_an_error_in_a_stream_is_that_error(wire: str, event: Any, code: Code) -> None:
    """At its beginning, in its middle and in its words, although the stream began with 200."""
    sent = event_bytes(event) + b"data: [DONE]\n\n"
    moves = [Streamed(ModelReply(text="It is warmer in Rome."), events=events, then=sent) for events in (0, 2, 4)]

    assert [(await fault_of(wire, move)).code for move in moves] == [code] * 3


async def test_tokens_of_a_reply_that_an_error_ends_are_counted() -> None:
    """The server has told them, so they are paid, and the request is not made for ever."""
    _, error = await failing("openai", stream(chunk({"content": "It"}), chunk({}, "error"), used(), {}))

    assert (classify(error).code, getattr(error, "usage", None) is not None) == (BROKEN, True)


SIGNATURE = "messages.1.content.0: Invalid `signature` in `thinking` block"
AZURE = "The response was filtered due to the prompt triggering Azure OpenAI's content management policy."
WINDOW = "Your input exceeds the context window of this model. Please adjust your input and try again."
VLLM = "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens."
EXPECTED = (
    "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `text`. When `thinking` is"
    " enabled, a final `assistant` message must start with a thinking block"
)
UNFINISHED = "Could not finish the message because max_tokens or model output limit was reached."
POLICY = "Invalid prompt: your prompt was flagged as potentially violating our usage policy."
MAXIMUM = "prompt is too long: 250000 tokens > 200000 maximum"
EFFORT = "Unsupported parameter: 'reasoning.effort' is not supported with this model."
ADVICE: list[tuple[str, str, str | None, Code, str]] = [
    ("anthropic", MAXIMUM, None, LONG, "split the task"),
    ("anthropic", "Output blocked by content filtering policy", None, REFUSED, "in other words"),
    ("anthropic", SIGNATURE, None, PERSON, "without that proxy, and start the task again"),
    ("anthropic", "Invalid signature in thinking block", None, PERSON, "without that proxy"),
    ("anthropic", "messages.3.content.0.thinking.signature: Field required", None, PERSON, "that proxy"),
    ("anthropic", EXPECTED, None, PERSON, "without that proxy"),
    ("openai", SIGNATURE, "invalid_request_body", PERSON, "without that proxy"),
    ("anthropic", "Input is too long for requested model.", None, LONG, "split the task"),
    ("openai", UNFINISHED, None, PERSON, "--reply-tokens, or let the model reason less with --effort low"),
    ("openai", POLICY, None, REFUSED, "in other words"),
    ("responses", POLICY, None, REFUSED, "in other words"),
    ("anthropic", "This model does not support the effort parameter.", None, PERSON, "leave out --effort"),
    ("openai", VLLM, None, LONG, "split the task"),
    ("openai", VLLM, "400", LONG, "split the task"),
    ("openai", AZURE, "content_filter", REFUSED, "in other words"),
    ("openai", AZURE, None, REFUSED, "in other words"),
    ("openai", EFFORT.replace("reasoning.effort", "reasoning_effort"), None, PERSON, "leave out --effort"),
    ("responses", WINDOW, "context_length_exceeded", LONG, "split the task"),
    ("responses", WINDOW, None, LONG, "split the task"),
    ("responses", AZURE, "content_filter", REFUSED, "in other words"),
    ("responses", MAXIMUM, None, LONG, "split the task"),
    ("responses", "We cannot read it.", "invalid_encrypted_content", PERSON, "set the earlier key"),
    ("responses", EFFORT, "unsupported_parameter", PERSON, "leave out --effort"),
]
"""What a provider says with the type `invalid_request_error` and a code, and what that means."""


@pytest.mark.parametrize(("wire", "message", "code", "means", "advice"), ADVICE)
async def test_each_cause_has_its_own_advice(
    wire: str, message: str, code: str | None, means: Code, advice: str
) -> None:
    """The same whether the answer is an error, or breaks off with one."""
    event = error_event(wire, INVALID, message, code)
    broken = Streamed(ModelReply(text="I begin."), events=3, then=event)
    for move in (ModelError(400, INVALID, message, code), broken):
        fault = await fault_of(wire, move)

        assert (fault.code, advice in fault.reason) == (means, True), fault
        assert not [words for words in ("report it", "Fix the tool", "check what answers") if words in fault.reason]


ODD: list[Any] = [
    None, [], {}, 7, True, "", "{", "[[[[", {"error": []}, {"error": [None]},
    {"error": {"message": {"a": 1}, "code": True}},
    {"error": {"code": [1], "type": {"a": 1}, "details": {"violations": 3}, "metadata": "no", "innererror": 7}},
    {"error": {"message": "{" * 5_000}}, {"error": {"message": '{"error":' * 2_000}}, {"base_resp": 7},
    {"error": {"code": 10**400, "message": "x"}}, {"choices": [None, 7]}, [[[]]], {"error": {"metadata": {"raw": [1]}}},
]  # fmt: skip

GOOD: list[Any] = [{}, [], {"error": None}, {"choices": [None, 7]}, {"base_resp": {"status_code": 0}}]


def test_an_error_may_be_anything() -> None:
    """Whatever a server sends, it has a meaning, and nothing is raised; a text alone has one for old failures."""
    assert {meaning_of(odd, 418).code for odd in ODD} == {BAD}
    assert [error_in(good) for good in GOOD] == [None] * len(GOOD)
    assert (meaning_of_words(f"openai.BadRequestError: {VLLM}"), meaning_of_words("no")) == (Meaning.TOO_LONG, None)


def test_a_message_is_read_in_bounded_time() -> None:
    """Quotation marks and braces without end take no longer than a word."""
    began = time.monotonic()
    for text in ("'a" * 200_000, "\"' " * 200_000, '{"error": {"message": "' * 50_000, "token count of " * 100_000):
        meaning_of(said(text), 400)
        meaning_of(text, 400)

    assert time.monotonic() - began < 5


A_MINUTE = "Request too large for model `m` on tokens per minute (TPM): Limit 6000, Requested 7000"
TOO_LONG: dict[str, tuple[RawBytes]] = {
    "in a 200": (whole_body(json.dumps(said(CUT, code=400))),),
    "in a stream": (stream(said(CUT, code=400)),),
    "as a limit of a minute": (answer(413, said(A_MINUTE, type="tokens", code="rate_limit_exceeded")),),
    "in a list": (answer(400, [said("The input token count (9) exceeds the maximum number of tokens allowed (8).")]),),
}


@pytest.mark.parametrize("move", sampled(TOO_LONG, "in a 200", "as a limit of a minute"))
async def test_a_conversation_that_is_too_long_in_any_words_is_summarised(
    client: Client, tmp_path: Path, move: RawBytes
) -> None:
    """Once, and the task goes on: it is no malformed request, and no limit to wait for."""
    summaries = list[ReceivedRequest]()

    def limited(heard: ReceivedRequest) -> Response:
        summaries.extend([] if heard.tools else [heard])
        return visitor(heard) if summaries or heard.turn < 4 else move

    async with acting(client, tmp_path, "openai", limited, tools=[read_plate]) as one:
        ended = await one.run(GOAL, tool_calls=100)

    assert (ended.status, ended.result, len(ended.compactions)) == (TaskStatus.COMPLETED, FOUND, 1), ended.reason


async def test_an_empty_account_in_a_200_ends_the_task_after_one_request(client: Client, tmp_path: Path) -> None:
    """As a 402 does: a person pays, and no retry helps."""
    move = whole_body(json.dumps(said("Insufficient credits", code=402)))
    async with acting(client, tmp_path, "openai", lambda heard: move, tools=[read_plate]) as one:
        ended = await one.run(GOAL)

    assert (ended.status, ended.code, len(one.api.bodies)) == (TaskStatus.ESCALATED, "quota_exhausted", 1)
